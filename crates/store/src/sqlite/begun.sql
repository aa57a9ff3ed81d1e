-- Instances of the namespace ?1, and of the workflow ?2, which may be empty for any, with ids from ?3 to below ?4; at most ?5.
-- Workflows are found one by one from the index, so that each is one range of ids.
-- Index: the primary key of instance_name.
WITH RECURSIVE known (workflow) AS (
    SELECT * FROM (
        SELECT workflow FROM instance_name WHERE namespace = ?1 AND workflow >= ?2 ORDER BY workflow LIMIT 1
    )
    UNION ALL
    SELECT (SELECT n.workflow FROM instance_name n WHERE n.namespace = ?1 AND n.workflow > k.workflow
            ORDER BY n.workflow LIMIT 1)
    FROM known k
    WHERE k.workflow IS NOT NULL AND ?2 = ''
)
SELECT n.uid
FROM known k
CROSS JOIN instance_name n ON n.namespace = ?1 AND n.workflow = k.workflow AND n.id >= ?3 AND n.id < ?4
WHERE ?2 IN ('', k.workflow)
LIMIT ?5
