-- Ends session $1 as lost with its process, if $2 is still its inbox, and it still may end early: the way must be open, and it must have
-- been for $3 microseconds, or the session must have been heard since it is (rule W9).
-- Index: session_pkey.
UPDATE session s
SET ended_at = c.now, counts = true
FROM (SELECT everstep_clock() AS now OFFSET 0) c, session_clock k
WHERE s.id = $1::uuid
  AND s.ended_at IS NULL
  AND s.inbox = $2::text
  AND k.last_beat_at >= c.now - k.gap
  AND (k.open_since <= c.now - $3::bigint OR s.heard_at > k.open_since)
