-- Deletes tokens (namespace $1, token $2) of instances ($3). Without $4 their owners let go of them, whose heads are locked, or
-- were deleted. With it these have ended and the retention is over at $4, for whoever claims them: nobody holds a lock of theirs, so what an instance that
-- is run again has taken back meanwhile stays, and the insert that follows fails.
-- Index: hook_pkey, then Tid Scan.
DELETE FROM hook
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::text[], $2::text[], $3::uuid[]) AS k (namespace, token, instance)
    CROSS JOIN LATERAL (
        SELECT ctid AS place, instance FROM hook t
        WHERE t.namespace = k.namespace AND t.token = k.token
        LIMIT 1
    ) t
    WHERE t.instance = k.instance
))
-- So written that no index is for it.
AND CASE WHEN $4::bigint IS NULL THEN true WHEN ended THEN retain_until <= $4::bigint ELSE false END
