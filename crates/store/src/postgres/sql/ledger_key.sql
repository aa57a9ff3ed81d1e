-- The entries of the call of a step of a namespace ($1) whose key is this ($2), in the instances that were created in a window
-- ($3 to $4) and whose ids are from there ($5 to $6): $7 calls. Keys are in no index, since every step of every instance would pay
-- for it: the journals of the window are read.
-- Indexes: instance_pkey, journal_pkey.
SELECT hit.namespace, hit.workflow, hit.name, j.instance, j.run, j.call, j.position, j.at, j.entry
FROM (
    SELECT DISTINCT h.instance, h.run, h.call, i.namespace, i.workflow, i.name
    FROM instance i
    JOIN journal h ON h.instance = i.id
    WHERE i.id >= $5::uuid AND i.id < $6::uuid AND i.namespace = $1::text
      AND i.created_at >= $3::bigint AND i.created_at < $4::bigint
      AND h.kind IN (2, 3, 40) AND position($2::bytea IN h.entry) > 0
    LIMIT $7::bigint
) hit
JOIN journal j ON j.instance = hit.instance AND j.run = hit.run AND j.call = hit.call
ORDER BY j.instance, j.run, j.call, j.position
