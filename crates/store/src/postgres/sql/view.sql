-- What API and CLI show of the instances $1, with at most $2 waits each: one row a wait, one row if there is none. The
-- status follows from which side rows exist (rule W24), all in one snapshot.
-- Indexes: the primary keys.
SELECT k.nth, i.id, i.namespace, i.workflow, i.name, i.run, i.generation, i.status, i.created_at, i.ended_at, i.position,
       i.steps, i.epoch, i.waits,
       l.session, l.build, l.host, r.ready_at,
       EXISTS (
           SELECT FROM session s
           WHERE s.ended_at IS NULL AND s.namespace = i.namespace AND i.workflow = ANY(s.workflows)
             AND coalesce(i.pin, '*') IN ('*', s.build)
       ) AS served,
       a.since, a.code, a.message, e.entry, e.payload, c.paused_at, c.cancel_position, c.cancel_until,
       c.cancel_rollback, c.compensating_at,
       c.paused_at IS NOT NULL AND EXISTS (SELECT FROM lease p WHERE p.instance = k.id) AS pausing,
       w.call_kind, w.call_name, w.call_count, w.kind, w.since, w.due_at, w.awaited, i.events, i.pin, u.entry AS compensated,
       a.changed
FROM unnest($1::uuid[]) WITH ORDINALITY AS k (id, nth)
CROSS JOIN LATERAL (SELECT * FROM instance i WHERE i.id = k.id LIMIT 1) i
LEFT JOIN LATERAL (
    SELECT l.session, s.build, s.host
    FROM lease l
    LEFT JOIN LATERAL (SELECT build, host FROM session s WHERE s.id = l.session LIMIT 1) s ON true
    WHERE l.instance = k.id AND l.subject = '\x00000000000000000000000000000000'
    LIMIT 1
) l ON true
LEFT JOIN LATERAL (
    SELECT ready_at FROM ready r
    WHERE r.instance = k.id AND r.subject = '\x00000000000000000000000000000000'
    LIMIT 1
) r ON true
LEFT JOIN LATERAL (SELECT since, code, message, changed FROM attention a WHERE a.instance = k.id LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT * FROM control c WHERE c.instance = k.id LIMIT 1) c ON true
LEFT JOIN LATERAL (
    SELECT entry, payload
    FROM journal j
    WHERE i.status <> 0 AND $3::boolean AND j.instance = k.id AND j.run = i.run AND j.position = i.position AND j.kind = 8
    LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT entry
    FROM journal j
    WHERE i.status > 1 AND $3::boolean AND j.instance = k.id AND j.run = i.run AND j.position = i.position - 1 AND j.kind = 16
    LIMIT 1
) u ON true
LEFT JOIN LATERAL (
    SELECT * FROM wait w WHERE w.instance = k.id ORDER BY w.kind <> 7, w.due_at NULLS LAST, w.since LIMIT $2::bigint
) w ON true
ORDER BY k.nth
