-- After the heads are locked: the first entries of the current runs of the instances $1, for a restart, what people decided there
-- about keys, in order, and whether they have attributes: looked up for each, not as a list of all that have some (rule W37).
-- Indexes: instance_pkey, journal_pkey, journal_by_key_choice, attribute_pkey.
SELECT k.instance, j.at, j.entry, j.payload, a.instance IS NOT NULL, j.position
FROM unnest($1::uuid[]) AS k (instance)
CROSS JOIN LATERAL (SELECT run FROM instance i WHERE i.id = k.instance LIMIT 1) i
CROSS JOIN LATERAL (
    (SELECT at, entry, payload, position FROM journal f
     WHERE f.instance = k.instance AND f.run = i.run AND f.position = 1
     LIMIT 1)
    UNION ALL
    (SELECT at, entry, payload, position FROM journal c
     WHERE c.instance = k.instance AND c.run = i.run AND c.kind = 43
     ORDER BY position)
) j
LEFT JOIN LATERAL (SELECT instance FROM attribute a WHERE a.instance = k.instance LIMIT 1) a ON true
ORDER BY k.instance, j.position
