-- Those of sessions $1 that may end early, since their inbox has gone: the way must be open, and it must have been for $2
-- microseconds, or the session must have been heard since it is (rule W9).
-- Index: session_pkey (id = ANY).
SELECT s.id
FROM (SELECT everstep_clock() AS now OFFSET 0) c, session_clock k, session s
WHERE s.id = ANY($1::uuid[])
  AND s.ended_at IS NULL
  AND k.last_beat_at >= c.now - k.gap
  AND (k.open_since <= c.now - $2::bigint OR s.heard_at > k.open_since)
ORDER BY s.id
