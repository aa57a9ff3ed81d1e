-- Letters after number $1 that nobody has taken, in their order, at most $2; with the instance that bears the name which one
-- goes to, and whether another letter is about to start it. No locks.
-- Indexes: mailbox_pkey, instance_name_pkey, mailbox_starts.
SELECT m.number, m.caller, m.run, m.call, m.body, coalesce(m.instance, n.instance), m.namespace, m.workflow, m.name,
       s.number IS NOT NULL AS starting
FROM (
    SELECT * FROM mailbox WHERE number > $1::bigint ORDER BY number LIMIT $2::bigint
) m
LEFT JOIN LATERAL (
    SELECT instance FROM instance_name n
    WHERE n.namespace = m.namespace AND n.workflow = m.workflow AND n.id = m.name
    LIMIT 1
) n ON true
LEFT JOIN LATERAL (
    SELECT number FROM mailbox s
    WHERE s.kind = 1 AND s.namespace = m.namespace AND s.workflow = m.workflow AND s.name = m.name AND s.number <> m.number
    LIMIT 1
) s ON true
