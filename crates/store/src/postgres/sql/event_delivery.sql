-- Notes where events have gone (instance $1, type $2, sequence $3; call $4, run $5, position $6), or that they are unread
-- again (no call), with the payload $7. One that is not found divides by zero, as in heads_update.sql.
-- Index: event_pkey, then Tid Scan.
WITH found AS MATERIALIZED (
    SELECT t.place, k.call, k.run, k.position, k.payload
    FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bytea[], $5::integer[], $6::bigint[],
                $7::text[])
        AS k (instance, type, sequence, call, run, position, payload)
    CROSS JOIN LATERAL (
        SELECT ctid AS place
        FROM event t
        WHERE t.instance = k.instance AND t.type = k.type AND t.sequence = k.sequence
        LIMIT 1
    ) t
), written AS (
    UPDATE event e
    SET unread = found.call IS NULL, call = found.call, run = found.run, position = found.position, payload = found.payload
    FROM found
    WHERE e.ctid = found.place
    RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1::uuid[]))::integer FROM written
