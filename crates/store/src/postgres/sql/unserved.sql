-- Every quarter of a minute, by one coordinator: queues with ready rows that are none of those that are served (namespaces $1, names
-- $2, kinds $3), each with its rows counted up to $5; at most $4 of them. Goes from queue to queue, not from row to row: the ends
-- of the index ranges are looked up one after the other.
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
), unserved AS (
    SELECT h.namespace, h.queue, h.kind
    FROM held h
    WHERE NOT EXISTS (
        SELECT FROM unnest($1::text[], $2::text[], $3::smallint[]) AS s (namespace, queue, kind)
        WHERE s.namespace = h.namespace AND s.queue = h.queue AND s.kind = h.kind
    )
    LIMIT $4::bigint
)
SELECT u.namespace, u.queue, u.kind, c.rows
FROM unserved u
CROSS JOIN LATERAL (
    SELECT count(*) AS rows
    FROM (
        SELECT FROM ready r
        WHERE r.namespace = u.namespace AND r.queue = u.queue AND r.kind = u.kind
        LIMIT $5::bigint
    ) bounded
) c
