-- The entries of the calls of steps of an instance's current run ($1) that are first heard of after a position ($2): $3 calls.
-- Indexes: instance_pkey, journal_pkey.
SELECT i.namespace, i.workflow, i.name, j.instance, j.run, j.call, j.position, j.at, j.entry
FROM instance i
JOIN LATERAL (
    SELECT h.call, min(h.position) AS first
    FROM journal h
    WHERE h.instance = i.id AND h.run = i.run AND h.kind IN (2, 3, 40)
    GROUP BY h.call
    HAVING min(h.position) > $2::bigint
    ORDER BY first
    LIMIT $3::bigint
) hit ON true
JOIN journal j ON j.instance = i.id AND j.run = i.run AND j.call = hit.call AND j.position >= hit.first
WHERE i.id = $1::uuid
ORDER BY hit.first, j.position
