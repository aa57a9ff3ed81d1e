-- Notes what the code has answered requests of webhooks (instance $1, app $2, id $3; answer $4). The first answer stays.
-- Index: event_by_id, then Tid Scan.
UPDATE event e
SET reply = found.reply
FROM (
    SELECT t.place, k.reply
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[]) AS k (instance, app_id, event_id, reply)
    CROSS JOIN LATERAL (
        SELECT ctid AS place
        FROM event t
        WHERE t.instance = k.instance AND t.app_id = k.app_id AND t.event_id = k.event_id AND t.event_id <> ''
        LIMIT 1
    ) t
) found
WHERE e.ctid = found.place AND e.reply IS NULL
