-- Letters after number $1 that nobody has taken, in their order, at most $2 and $3 bytes, but at least one; with the instance that
-- bears the name which one goes to, whether another letter is about to start it, and how many there were before the bytes were
-- counted. The bytes of a body in TOAST are known without reading it. No locks.
-- Indexes: mailbox_pkey, instance_name_pkey, mailbox_starts.
SELECT m.number, m.caller, m.run, m.call, m.body, coalesce(m.instance, n.instance), m.namespace, m.workflow, m.name,
       s.number IS NOT NULL AS starting, m.total
FROM (
    SELECT t.*, row_number() OVER whole AS place, sum(octet_length(t.body)) OVER whole AS bytes, count(*) OVER () AS total
    FROM (
        SELECT * FROM mailbox WHERE number > $1::bigint ORDER BY number LIMIT $2::bigint
    ) t
    WINDOW whole AS (ORDER BY t.number ROWS UNBOUNDED PRECEDING)
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
WHERE m.place = 1 OR m.bytes <= $3::bigint
ORDER BY m.number
