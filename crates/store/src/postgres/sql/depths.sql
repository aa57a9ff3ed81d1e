-- Every quarter of a minute, by one coordinator: the queues that are named (namespaces $1, names $2, kinds $3) and at most $4 others
-- with ready rows, each with its rows counted up to $5 and how many microseconds the oldest has waited. Goes from queue to queue, not
-- from row to row, as unserved.sql does.
-- Index: ready_by_queue.
WITH RECURSIVE named AS (
    SELECT DISTINCT namespace, queue, kind
    FROM unnest($1::text[], $2::text[], $3::smallint[]) AS s (namespace, queue, kind)
), held AS (
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
), other AS (
    SELECT h.namespace, h.queue, h.kind
    FROM held h
    WHERE NOT EXISTS (
        SELECT FROM named s WHERE s.namespace = h.namespace AND s.queue = h.queue AND s.kind = h.kind
    )
    LIMIT $4::bigint
)
SELECT m.namespace, m.queue, m.kind, c.rows, greatest((SELECT everstep_clock()) - c.oldest, 0)
FROM (SELECT * FROM named UNION ALL SELECT * FROM other) m
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, min(ready_at) AS oldest
    FROM (
        SELECT ready_at FROM ready r
        WHERE r.namespace = m.namespace AND r.queue = m.queue AND r.kind = m.kind
        ORDER BY ready_at
        LIMIT $5::bigint
    ) bounded
) c
WHERE c.rows > 0
