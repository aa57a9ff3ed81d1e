-- Instances of the namespace $1, and of the workflow $2, which may be empty for any, with ids from $3 to below $4; at most $5.
-- Workflows are found one by one from the index, so that each is one range of ids.
-- Called by: lists by the beginning of the id.
-- Index: instance_name_pkey.
WITH RECURSIVE known AS (
    (SELECT workflow FROM instance_name WHERE namespace = $1::text AND workflow >= $2::text ORDER BY workflow LIMIT 1)
    UNION ALL
    SELECT (SELECT n.workflow FROM instance_name n WHERE n.namespace = $1::text AND n.workflow > k.workflow
            ORDER BY n.workflow LIMIT 1)
    FROM known k
    WHERE k.workflow IS NOT NULL AND $2::text = ''
)
SELECT n.instance
FROM known k
CROSS JOIN LATERAL (
    SELECT instance FROM instance_name n
    WHERE n.namespace = $1::text AND n.workflow = k.workflow AND n.id >= $3::text AND n.id < $4::text
    LIMIT $5::bigint
) n
WHERE $2::text IN ('', k.workflow)
LIMIT $5::bigint
