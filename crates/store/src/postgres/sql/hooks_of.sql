-- After the heads are locked: who owns these tokens ($2) in the namespaces of these instances ($1). An owner without a name was
-- deleted.
-- Indexes: hook_pkey, instance_pkey.
SELECT k.nth, h.instance, i.workflow, i.name, h.run, h.position, h.since, h.retain_until, h.ended, h.metadata, h.webhook,
       h.from_workflow, h.from_name, h.schema, h.unheard, o.namespace
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS k (instance, token, nth)
CROSS JOIN LATERAL (SELECT namespace FROM instance t WHERE t.id = k.instance LIMIT 1) o
CROSS JOIN LATERAL (SELECT * FROM hook t WHERE t.namespace = o.namespace AND t.token = k.token LIMIT 1) h
LEFT JOIN LATERAL (SELECT workflow, name FROM instance t WHERE t.id = h.instance LIMIT 1) i ON true
