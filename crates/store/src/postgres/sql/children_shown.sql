-- The children of the instance $1 that are shown, at most 100: those that may be open first, then the latest. With the status
-- that is stored, if they exist, and the count of all.
-- Indexes: child_pkey, instance_name_pkey, instance_pkey.
SELECT c.call, c.run, c.workflow, c.name, c.detached, i.status, c.total
FROM (
    SELECT *, count(*) OVER () AS total FROM child WHERE instance = $1::uuid ORDER BY over, run DESC, call LIMIT 100
) c
LEFT JOIN LATERAL (
    SELECT instance FROM instance_name n
    WHERE n.namespace = c.namespace AND n.workflow = c.workflow AND n.id = c.name
    LIMIT 1
) n ON true
LEFT JOIN LATERAL (SELECT status FROM instance i WHERE i.id = n.instance LIMIT 1) i ON true
ORDER BY c.over, c.run DESC, c.call
