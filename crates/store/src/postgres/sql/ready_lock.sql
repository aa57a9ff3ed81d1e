-- Right before ready_delete.sql: locks the same rows. Whoever marks offers does not lock heads, so a row could move between
-- that statement's reading and its deleting; after this one it cannot.
-- Index: ready_pkey.
SELECT count(*)
FROM unnest($1::uuid[], $2::bytea[]) AS k (instance, subject)
CROSS JOIN LATERAL (
    SELECT 1 FROM ready t WHERE t.instance = k.instance AND t.subject = k.subject LIMIT 1 FOR UPDATE
) t
