-- Open instances by status and reason; of each table at most ?1 rows are read. As postgres/sql/open_counts.sql.
WITH held AS (
    SELECT uid FROM lease WHERE subject = zeroblob(16) LIMIT ?1
), paused AS (
    SELECT uid FROM control WHERE paused_at IS NOT NULL LIMIT ?1
), asked AS (
    SELECT uid, code FROM attention LIMIT ?1
), runnable AS (
    SELECT uid FROM ready WHERE subject = zeroblob(16) LIMIT ?1
), waiting AS (
    SELECT w.uid, min(w.kind) AS first, max(CASE WHEN w.kind = 7 THEN 1 ELSE 0 END) AS asks
    FROM (SELECT uid, kind FROM wait LIMIT ?1) w
    WHERE NOT EXISTS (SELECT 1 FROM held h WHERE h.uid = w.uid)
      AND NOT EXISTS (SELECT 1 FROM paused p WHERE p.uid = w.uid)
      AND NOT EXISTS (SELECT 1 FROM asked a WHERE a.uid = w.uid)
      AND NOT EXISTS (SELECT 1 FROM runnable r WHERE r.uid = w.uid)
    GROUP BY w.uid
)
SELECT CASE WHEN p.uid IS NULL THEN 'running' ELSE 'pausing' END, NULL, NULL, count(*)
FROM held h LEFT JOIN paused p ON p.uid = h.uid
GROUP BY 1
UNION ALL
SELECT 'attention', a.code, NULL, count(*)
FROM asked a
WHERE NOT EXISTS (SELECT 1 FROM held h WHERE h.uid = a.uid)
GROUP BY a.code
UNION ALL
SELECT CASE WHEN EXISTS (SELECT 1 FROM lease l WHERE l.uid = p.uid) THEN 'pausing' ELSE 'paused' END, NULL, NULL, count(*)
FROM paused p
WHERE NOT EXISTS (SELECT 1 FROM held h WHERE h.uid = p.uid)
  AND NOT EXISTS (SELECT 1 FROM asked a WHERE a.uid = p.uid)
GROUP BY 1
UNION ALL
SELECT 'queued', NULL, NULL, count(*)
FROM runnable r
WHERE NOT EXISTS (SELECT 1 FROM held h WHERE h.uid = r.uid)
  AND NOT EXISTS (SELECT 1 FROM asked a WHERE a.uid = r.uid)
  AND NOT EXISTS (SELECT 1 FROM paused p WHERE p.uid = r.uid)
UNION ALL
SELECT CASE WHEN w.asks = 1 THEN 'attention' ELSE 'waiting' END, CASE WHEN w.asks = 1 THEN 'unknown_outcome' END,
       CASE WHEN w.asks = 0 THEN w.first END, count(*)
FROM waiting w
GROUP BY 1, 2, 3
