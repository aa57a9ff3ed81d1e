-- The next $3 open instances below the id $2, newest first, each with whether it is of the namespace $1 and of the workflow $4,
-- which may be empty for any: what is open has a row beside its head (promise 5), however many others have ended.
-- Called by: lists of what is open, for exports and bulk operations.
-- Indexes: lease_pkey, ready_pkey, wait_pkey, attention_pkey, control_pkey, instance_pkey.
SELECT t.instance, i.status = 0 AND i.namespace = $1::text AND ($4::text = '' OR i.workflow = $4::text)
FROM (
    SELECT DISTINCT instance
    FROM (
        (SELECT DISTINCT instance FROM lease WHERE instance < $2::uuid ORDER BY instance DESC LIMIT $3::bigint)
        UNION ALL
        (SELECT DISTINCT instance FROM ready WHERE instance < $2::uuid ORDER BY instance DESC LIMIT $3::bigint)
        UNION ALL
        (SELECT DISTINCT instance FROM wait WHERE instance < $2::uuid ORDER BY instance DESC LIMIT $3::bigint)
        UNION ALL
        (SELECT instance FROM attention WHERE instance < $2::uuid ORDER BY instance DESC LIMIT $3::bigint)
        UNION ALL
        (SELECT instance FROM control WHERE instance < $2::uuid ORDER BY instance DESC LIMIT $3::bigint)
    ) s
    ORDER BY instance DESC
    LIMIT $3::bigint
) t
CROSS JOIN LATERAL (SELECT status, namespace, workflow FROM instance i WHERE i.id = t.instance LIMIT 1) i
ORDER BY t.instance DESC
