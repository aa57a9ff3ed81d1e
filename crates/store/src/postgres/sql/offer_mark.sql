-- Marks ready rows (instance $1, subject $2) as offered at $3, unless they are gone, locked, or were offered after $4.
-- Index: ready_pkey, then Tid Scan.
WITH taken AS MATERIALIZED (
    SELECT t.place
    FROM unnest($1::uuid[], $2::bytea[]) AS k (instance, subject)
    CROSS JOIN LATERAL (
        SELECT ctid AS place
        FROM ready t
        WHERE t.instance = k.instance AND t.subject = k.subject
          AND (t.offered_at IS NULL OR t.offered_at <= $4::bigint)
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) t
)
UPDATE ready r
SET offered_at = $3::bigint
FROM taken
WHERE r.ctid = taken.place
RETURNING r.instance, r.subject
