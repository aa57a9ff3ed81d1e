-- Notes that children (instance $1, run $2, call $3) have ended. They are found below a list with LIMIT 1 and changed by ctid, so
-- that nothing can turn round (rule W37); the heads are locked, so nobody moves them meanwhile.
-- Index: child_pkey, then Tid Scan.
UPDATE child
SET over = true
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::integer[], $3::bytea[]) AS k (instance, run, call)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM child t WHERE t.instance = k.instance AND t.run = k.run AND t.call = k.call LIMIT 1
    ) t
))
