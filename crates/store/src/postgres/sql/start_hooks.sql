-- After the heads are locked, for a restart: the hooks that the instances $1 were started with. Locked, so that nobody takes one
-- whose retention ends at this moment.
-- Indexes: hook_by_instance, instance_pkey.
SELECT 0::bigint, h.instance, i.workflow, i.name, h.run, h.position, h.since, h.retain_until, h.ended, h.metadata, h.webhook,
       h.from_workflow, h.from_name, h.schema, h.unheard, h.namespace, h.token
FROM unnest($1::uuid[]) AS k (instance)
CROSS JOIN LATERAL (
    SELECT * FROM hook t WHERE t.instance = k.instance AND t.run = 0 LIMIT 1 FOR UPDATE
) h
CROSS JOIN LATERAL (SELECT workflow, name FROM instance t WHERE t.id = h.instance LIMIT 1) i
