-- Live sessions not heard for $1 microseconds. Silence counts only while it could have been heard: the way must have been
-- open for as long, and must still be (rule W8).
-- Index: session_live.
SELECT s.id
FROM (SELECT everstep_clock() AS now OFFSET 0) c, session_clock k, session s
WHERE k.open_since <= c.now - $1::bigint
  AND k.last_beat_at >= c.now - k.gap
  AND s.ended_at IS NULL
  AND s.heard_at <= c.now - $1::bigint
ORDER BY s.heard_at
