-- Deletes tokens (namespace $1, token $2) that their owners ($3) let go of. The owners' heads are locked.
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
