-- One batch of the oldest effects, by everstep_effect_recorded_at. Called by purge.
DELETE FROM /*schema.*/everstep_effect
WHERE (key, part) IN (
    SELECT key, part FROM /*schema.*/everstep_effect
    WHERE recorded_at < now() - make_interval(secs => $1)
    ORDER BY recorded_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
