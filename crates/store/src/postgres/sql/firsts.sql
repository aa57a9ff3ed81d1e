-- After the heads are locked: the first entries of the current runs of the instances $1, for a restart, and whether they have
-- attributes: looked up for each, not as a list of all that have some (rule W37).
-- Indexes: instance_pkey, journal_pkey, attribute_pkey.
SELECT k.instance, j.at, j.entry, j.payload, a.instance IS NOT NULL
FROM unnest($1::uuid[]) AS k (instance)
CROSS JOIN LATERAL (SELECT run FROM instance i WHERE i.id = k.instance LIMIT 1) i
CROSS JOIN LATERAL (
    SELECT at, entry, payload FROM journal j
    WHERE j.instance = k.instance AND j.run = i.run AND j.position = 1
    LIMIT 1
) j
LEFT JOIN LATERAL (SELECT instance FROM attribute a WHERE a.instance = k.instance LIMIT 1) a ON true
