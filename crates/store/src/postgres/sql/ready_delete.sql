-- Deletes ready rows of remote steps by instance $1 and subject $2, after ready_lock.sql.
-- Index: ready_pkey, then Tid Scan.
DELETE FROM ready
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::bytea[]) AS k (instance, subject)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM ready t WHERE t.instance = k.instance AND t.subject = k.subject LIMIT 1
    ) t
))
