-- The due scan (rule W23): waits due from $1 (the low-water mark) until now, at most $2, and one that is next. No locks.
-- The mark spares the dead entries at the head of the index. Those of paused instances are not due (rule P29); the resume
-- makes them due anew. A scalar query cannot turn round.
-- Indexes: wait_by_due, control_pkey.
SELECT c.now, w.instance, w.call, w.due_at
FROM (SELECT everstep_clock() AS now OFFSET 0) c
LEFT JOIN LATERAL (
    (SELECT instance, call, due_at FROM wait
     WHERE due_at >= $1::bigint AND due_at <= c.now
       AND (SELECT p.paused_at FROM control p WHERE p.instance = wait.instance LIMIT 1) IS NULL
     ORDER BY due_at LIMIT $2::bigint)
    UNION ALL
    (SELECT instance, call, due_at FROM wait WHERE due_at > c.now ORDER BY due_at LIMIT 1)
) w ON true
