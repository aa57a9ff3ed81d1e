-- Ends session $1 as lost with its process, if it has still not been heard for $2 microseconds in which it could have been: whoever
-- found it silent may have taken long to come to this (rule W8).
-- Index: session_pkey.
UPDATE session s
SET ended_at = c.now, counts = true
FROM (SELECT everstep_clock() AS now OFFSET 0) c, session_clock k
WHERE s.id = $1::uuid
  AND s.ended_at IS NULL
  AND k.open_since <= c.now - $2::bigint
  AND k.last_beat_at >= c.now - k.gap
  AND s.heard_at <= c.now - $2::bigint
