-- One page of the auditor's walk: of the next $2 instances after $1 those that are open and that nothing will move as it should, each
-- with what seems wrong (see everstep_engine::breach); and first the page itself: its last instance, and how many were open.
-- $3: calls of children that were made less than so many microseconds ago are left alone. Every search below a list is by the
-- instance's key, with LIMIT, so that nothing can turn round (rule W37); only the mailbox is read whole, for the few calls of children
-- that no watcher stands for.
-- Indexes: instance_pkey, lease_pkey, ready_pkey, wait_pkey, attention_pkey, control_pkey, remote_step_pkey, awaited_pkey, event_unread, event_unread_by_key, hook_by_instance, session_pkey, child_pkey, instance_name_pkey, watcher_pkey.
WITH page AS MATERIALIZED (
    SELECT id, namespace, workflow, name, run, waits, status
    FROM instance
    WHERE id > $1::uuid
    ORDER BY id
    LIMIT $2::bigint
), open AS MATERIALIZED (
    SELECT p.*, (SELECT count(*) FROM wait w WHERE w.instance = p.id) AS counted
    FROM page p
    WHERE status = 0
), waiting AS MATERIALIZED (
    SELECT o.*, w.kind, w.call, w.call_kind, w.due_at, w.since, w.awaited
    FROM open o
    CROSS JOIN LATERAL (SELECT * FROM wait w WHERE w.instance = o.id LIMIT 100000) w
    WHERE o.counted > 0
)
SELECT 0::smallint AS breach, (SELECT id FROM page ORDER BY id DESC LIMIT 1) AS instance, NULL::text AS namespace,
       NULL::text AS workflow, NULL::text AS name, (SELECT count(*) FROM page)::integer AS run, NULL::uuid AS session,
       NULL::bytea AS call, NULL::bytea AS awaited, NULL::text AS child_namespace, NULL::text AS child_workflow,
       NULL::text AS child_name, (SELECT count(*) FROM open) AS open
UNION ALL
SELECT 1::smallint, o.id, o.namespace, o.workflow, o.name, o.run, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM open o
WHERE o.waits = 0 AND o.counted = 0
  AND (SELECT true FROM lease l WHERE l.instance = o.id AND l.subject = '\x00000000000000000000000000000000' LIMIT 1) IS NULL
  AND (SELECT true FROM ready r WHERE r.instance = o.id AND r.subject = '\x00000000000000000000000000000000' LIMIT 1) IS NULL
  AND (SELECT true FROM attention a WHERE a.instance = o.id LIMIT 1) IS NULL
  AND (SELECT true FROM control c WHERE c.instance = o.id AND c.paused_at IS NOT NULL LIMIT 1) IS NULL
UNION ALL
SELECT 2::smallint, o.id, o.namespace, o.workflow, o.name, o.run, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM open o
WHERE o.waits <> o.counted
UNION ALL
SELECT 3::smallint, o.id, o.namespace, o.workflow, o.name, o.run, l.session, l.subject, NULL, NULL, NULL, NULL, NULL
FROM open o
CROSS JOIN LATERAL (SELECT l.session, l.subject FROM lease l WHERE l.instance = o.id LIMIT 100000) l
WHERE (SELECT true FROM session s WHERE s.id = l.session LIMIT 1) IS NULL
UNION ALL
SELECT 4::smallint, w.id, w.namespace, w.workflow, w.name, w.run, NULL, w.call, NULL, NULL, NULL, NULL, NULL
FROM waiting w
WHERE w.kind = 3 AND w.due_at IS NULL
  AND (SELECT true FROM remote_step s WHERE s.instance = w.id AND s.call = w.call LIMIT 1)
  AND (SELECT true FROM lease l WHERE l.instance = w.id AND l.subject = w.call LIMIT 1) IS NULL
  AND (SELECT true FROM ready r WHERE r.instance = w.id AND r.subject = w.call LIMIT 1) IS NULL
UNION ALL
SELECT 5::smallint, w.id, w.namespace, w.workflow, w.name, w.run, NULL, w.call, NULL, NULL, NULL, NULL, NULL
FROM waiting w
WHERE w.kind = 3
  AND (SELECT true FROM remote_step s WHERE s.instance = w.id AND s.call = w.call LIMIT 1) IS NULL
  AND (SELECT true FROM attention a WHERE a.instance = w.id LIMIT 1) IS NULL
UNION ALL
SELECT 6::smallint, w.id, w.namespace, w.workflow, w.name, w.run, NULL, w.call, w.awaited, NULL, NULL, NULL, NULL
FROM waiting w
WHERE w.kind IN (4, 6)
  AND ((SELECT true FROM awaited a WHERE a.instance = w.id AND a.call = w.call LIMIT 1) IS NULL
       OR (SELECT true
           FROM awaited a
           CROSS JOIN LATERAL (
               (SELECT true FROM event e
                WHERE a.key = '' AND e.instance = a.instance AND e.type = a.type AND e.unread LIMIT 1)
               UNION ALL
               (SELECT true FROM event e
                WHERE a.key <> '' AND e.instance = a.instance AND e.type = a.type AND e.key = a.key AND e.unread AND e.key <> ''
                LIMIT 1)
           ) e
           WHERE a.instance = w.id AND a.call = w.call
           LIMIT 1))
UNION ALL
SELECT 7::smallint, w.id, w.namespace, w.workflow, w.name, w.run, NULL, w.call, NULL, NULL, NULL, NULL, NULL
FROM waiting w
WHERE w.kind = 6
  AND (SELECT true FROM hook h WHERE h.instance = w.id AND NOT h.ended LIMIT 1) IS NULL
UNION ALL
SELECT 8::smallint, w.id, w.namespace, w.workflow, w.name, w.run, NULL, w.call, NULL, c.namespace, c.workflow, c.name, NULL
FROM waiting w
CROSS JOIN LATERAL (
    SELECT c.namespace, c.workflow, c.name FROM child c WHERE c.instance = w.id AND c.run = w.run AND c.call = w.call LIMIT 1
) c
WHERE w.kind = 5 AND w.call_kind = 5 AND w.since < (SELECT everstep_clock()) - $3::bigint
  AND (SELECT true
       FROM (SELECT instance FROM instance_name n
             WHERE n.namespace = c.namespace AND n.workflow = c.workflow AND n.id = c.name LIMIT 1) n
       CROSS JOIN LATERAL (
           SELECT true FROM watcher t WHERE t.instance = n.instance AND t.caller = w.id AND t.run = w.run AND t.call = w.call LIMIT 1
       ) t
       LIMIT 1) IS NULL
  AND (SELECT true FROM mailbox m WHERE m.caller = w.id AND m.run = w.run AND m.call = w.call LIMIT 1) IS NULL
