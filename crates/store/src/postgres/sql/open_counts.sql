-- Every minute or more rarely, by one coordinator: open instances by status and reason, as StatusWord::derive says. Reads the side
-- tables, never the heads: each open instance has a row in one of them. Of each table at most $1 rows are read: past
-- that the counts are no longer exact.
-- Index: none, it reads whole tables.
WITH held AS (
    SELECT instance FROM lease WHERE subject = '\x00000000000000000000000000000000' LIMIT $1::bigint
), paused AS (
    SELECT instance FROM control WHERE paused_at IS NOT NULL LIMIT $1::bigint
), asked AS (
    SELECT instance, code FROM attention LIMIT $1::bigint
), runnable AS (
    SELECT instance FROM ready WHERE subject = '\x00000000000000000000000000000000' LIMIT $1::bigint
), waiting AS (
    SELECT w.instance, min(w.kind) AS first, max(CASE WHEN w.kind = 7 THEN 1 ELSE 0 END) AS asks
    FROM (SELECT instance, kind FROM wait LIMIT $1::bigint) w
    WHERE NOT EXISTS (SELECT FROM held h WHERE h.instance = w.instance)
      AND NOT EXISTS (SELECT FROM paused p WHERE p.instance = w.instance)
      AND NOT EXISTS (SELECT FROM asked a WHERE a.instance = w.instance)
      AND NOT EXISTS (SELECT FROM runnable r WHERE r.instance = w.instance)
    GROUP BY w.instance
)
SELECT CASE WHEN p.instance IS NULL THEN 'running' ELSE 'pausing' END, NULL::text, NULL::smallint, count(*)
FROM held h LEFT JOIN paused p ON p.instance = h.instance
GROUP BY 1
UNION ALL
SELECT 'attention', a.code, NULL, count(*)
FROM asked a
WHERE NOT EXISTS (SELECT FROM held h WHERE h.instance = a.instance)
GROUP BY a.code
UNION ALL
SELECT CASE WHEN EXISTS (SELECT FROM lease l WHERE l.instance = p.instance) THEN 'pausing' ELSE 'paused' END, NULL, NULL, count(*)
FROM paused p
WHERE NOT EXISTS (SELECT FROM held h WHERE h.instance = p.instance)
  AND NOT EXISTS (SELECT FROM asked a WHERE a.instance = p.instance)
GROUP BY 1
UNION ALL
SELECT 'queued', NULL, NULL, count(*)
FROM runnable r
WHERE NOT EXISTS (SELECT FROM held h WHERE h.instance = r.instance)
  AND NOT EXISTS (SELECT FROM asked a WHERE a.instance = r.instance)
  AND NOT EXISTS (SELECT FROM paused p WHERE p.instance = r.instance)
UNION ALL
SELECT CASE WHEN w.asks = 1 THEN 'attention' ELSE 'waiting' END, CASE WHEN w.asks = 1 THEN 'unknown_outcome' END,
       CASE WHEN w.asks = 0 THEN w.first END, count(*)
FROM waiting w
GROUP BY 1, 2, 3
