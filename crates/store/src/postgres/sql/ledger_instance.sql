-- The entries of the calls of a run ($2) of an instance ($1) that are first heard of after a position ($3): $4 calls. Also of those
-- that are no steps: what a call is stands in its entry.
-- Indexes: instance_pkey, journal_pkey.
SELECT i.namespace, i.workflow, i.name, j.instance, j.run, j.call, j.position, j.at, j.entry
FROM instance i
JOIN LATERAL (
    SELECT h.call, min(h.position) AS first
    FROM journal h
    WHERE h.instance = i.id AND h.run = $2::integer AND h.kind IN (2, 3, 40)
    GROUP BY h.call
    HAVING min(h.position) > $3::bigint
    ORDER BY first
    LIMIT $4::bigint
) hit ON true
JOIN journal j ON j.instance = i.id AND j.run = $2::integer AND j.call = hit.call AND j.position >= hit.first
WHERE i.id = $1::uuid
ORDER BY hit.first, j.position
