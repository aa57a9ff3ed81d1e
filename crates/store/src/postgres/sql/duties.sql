-- Takes or keeps the duties $2 for coordinator $1 for $3 microseconds, unless another holds them.
-- Index: duty_pkey.
INSERT INTO duty (name, coordinator, until_at)
SELECT n, $1::uuid, everstep_clock() + $3::bigint FROM unnest($2::text[]) n
ON CONFLICT (name) DO UPDATE SET coordinator = excluded.coordinator, until_at = excluded.until_at
WHERE duty.coordinator = excluded.coordinator OR duty.until_at <= everstep_clock()
RETURNING name
