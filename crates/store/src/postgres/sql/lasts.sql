-- After the heads are locked: the last entries of the current runs of the instances $1, for those who ask how they have ended.
-- Indexes: instance_pkey, journal_pkey.
SELECT k.instance, j.position, j.at, j.entry, j.payload
FROM unnest($1::uuid[]) AS k (instance)
CROSS JOIN LATERAL (SELECT run, position FROM instance i WHERE i.id = k.instance LIMIT 1) i
CROSS JOIN LATERAL (
    SELECT position, at, entry, payload FROM journal j
    WHERE j.instance = k.instance AND j.run = i.run AND j.position = i.position
    LIMIT 1
) j
