-- A coordinator $1 heard itself; after a gap of more than $2 microseconds the way counts as newly open (rule W8).
UPDATE session_clock k
SET open_since = CASE WHEN c.now - k.last_beat_at > $2::bigint THEN c.now ELSE k.open_since END,
    last_beat_at = greatest(k.last_beat_at, c.now), gap = $2::bigint, coordinator = $1::uuid
FROM (SELECT everstep_clock() AS now OFFSET 0) c
