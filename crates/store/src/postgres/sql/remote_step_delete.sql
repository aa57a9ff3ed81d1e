-- Deletes rows by instance $1 and call $2. They are found below a list with LIMIT 1 and deleted by ctid, so that nothing
-- can turn round (rule W37); the heads are locked, so nobody moves them meanwhile.
-- Index: remote_step_pkey, then Tid Scan.
DELETE FROM remote_step
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::bytea[]) AS k (instance, call)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM remote_step t WHERE t.instance = k.instance AND t.call = k.call LIMIT 1
    ) t
))
