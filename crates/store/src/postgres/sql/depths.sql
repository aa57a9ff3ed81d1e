-- Every quarter of a minute, by one coordinator: queues with ready rows, at most $1 of them, each with its rows counted up to $2 and
-- how many microseconds the oldest has waited. Goes from queue to queue, not from row to row, as unserved.sql does.
-- Index: ready_by_queue.
WITH RECURSIVE held AS (
    (SELECT namespace, queue, kind FROM ready ORDER BY namespace, queue, kind LIMIT 1)
    UNION ALL
    SELECT n.namespace, n.queue, n.kind
    FROM held h
    CROSS JOIN LATERAL (
        SELECT namespace, queue, kind
        FROM ready r
        WHERE (r.namespace, r.queue, r.kind) > (h.namespace, h.queue, h.kind)
        ORDER BY namespace, queue, kind
        LIMIT 1
    ) n
)
SELECT h.namespace, h.queue, h.kind, c.rows, greatest((SELECT everstep_clock()) - c.oldest, 0)
FROM (SELECT * FROM held LIMIT $1::bigint) h
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, min(ready_at) AS oldest
    FROM (
        SELECT ready_at FROM ready r
        WHERE r.namespace = h.namespace AND r.queue = h.queue AND r.kind = h.kind
        ORDER BY ready_at
        LIMIT $2::bigint
    ) bounded
) c
WHERE c.rows > 0
