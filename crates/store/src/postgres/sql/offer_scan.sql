-- The head of each queue (namespace $1, name $2, kind $3), oldest first, at most $4 rows. What is offered already stands at
-- the head, since offers go by age; so the window is counted there. No locks.
-- Index: ready_by_queue.
SELECT k.nth, everstep_clock(), r.instance, r.subject, r.offered_at
FROM unnest($1::text[], $2::text[], $3::smallint[]) WITH ORDINALITY AS k (namespace, queue, kind, nth)
CROSS JOIN LATERAL (
    SELECT instance, subject, offered_at
    FROM ready r
    WHERE r.namespace = k.namespace AND r.queue = k.queue AND r.kind = k.kind
    ORDER BY r.ready_at
    LIMIT $4::bigint
) r
