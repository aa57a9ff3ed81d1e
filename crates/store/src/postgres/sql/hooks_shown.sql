-- GET /hooks: the tokens of the namespace $1 from $2 to $4 that somebody owns, or keeps by a retention, at most $3, but for $5. Two
-- bounds of the index, so that looking up one token reads one row.
-- Indexes: hook_pkey, instance_pkey.
SELECT 0::bigint, h.instance, i.workflow, i.name, h.run, h.position, h.since, h.retain_until, h.ended, h.metadata, h.webhook,
       h.from_workflow, h.from_name, h.schema, h.unheard, h.namespace, h.token, i.status
FROM (
    SELECT * FROM hook t
    WHERE t.namespace = $1::text AND t.token >= $2::text AND t.token <= $4::text AND t.token <> $5::text
      AND NOT (t.ended AND t.retain_until <= everstep_clock())
    ORDER BY t.token
    LIMIT $3::bigint
) h
JOIN instance i ON i.id = h.instance
ORDER BY h.token
