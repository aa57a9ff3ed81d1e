-- When somebody asks the doctor: what the store says of the state of an installation, each line a word, a name and two numbers.
-- Waits that are due are counted up to $1.
-- Indexes: wait_by_due, control_pkey, mailbox_pkey, outbox_by_time, duty_pkey, breach_by_time, rejected_by_time.
SELECT 'now' AS word, NULL::text AS name, everstep_clock() AS one, NULL::bigint AS two
UNION ALL
SELECT 'schema', NULL, (SELECT coalesce(max(version), 0)::bigint FROM everstep_migration), NULL
UNION ALL
SELECT 'overdue', NULL, count(*), min(d.due_at)
FROM (
    SELECT w.due_at
    FROM wait w
    WHERE w.due_at IS NOT NULL AND w.due_at <= (SELECT everstep_clock())
      AND (SELECT true FROM control c WHERE c.instance = w.instance AND c.paused_at IS NOT NULL LIMIT 1) IS NULL
    ORDER BY w.due_at
    LIMIT $1::bigint
) d
UNION ALL
SELECT 'letter', NULL, (SELECT m.written_at FROM mailbox m ORDER BY m.number LIMIT 1), NULL
UNION ALL
SELECT 'outbox', NULL, (SELECT o.created_at FROM outbox o ORDER BY o.created_at LIMIT 1), NULL
UNION ALL
SELECT 'duty', d.name, d.until_at, NULL
FROM duty d
UNION ALL
SELECT 'breach', b.kind, count(*), NULL
FROM (SELECT kind FROM breach WHERE at > (SELECT everstep_clock()) - 86400000000 ORDER BY at LIMIT 1000) b
GROUP BY b.kind
UNION ALL
SELECT 'rejected', r.code, count(*), NULL
FROM (SELECT code FROM rejected WHERE at > (SELECT everstep_clock()) - 3600000000 ORDER BY at LIMIT 1000) r
GROUP BY r.code
