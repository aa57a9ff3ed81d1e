-- The entries of the calls of steps of a namespace ($1) of which an attempt bears a reference ($2): $3 calls, oldest first.
-- Indexes: journal_by_reference, instance_pkey, journal_pkey.
SELECT hit.namespace, hit.workflow, hit.name, j.instance, j.run, j.call, j.position, j.at, j.entry
FROM (
    SELECT DISTINCT h.instance, h.run, h.call, i.namespace, i.workflow, i.name
    FROM journal h
    JOIN instance i ON i.id = h.instance
    WHERE h.reference = $2::text AND i.namespace = $1::text
    ORDER BY h.instance, h.run, h.call
    LIMIT $3::bigint
) hit
JOIN journal j ON j.instance = hit.instance AND j.run = hit.run AND j.call = hit.call
ORDER BY j.instance, j.run, j.call, j.position
