-- In a transaction with starts: who owns the tokens asked for (namespace $1, token $2). An owner without a name was deleted.
-- Indexes: hook_pkey, instance_pkey.
SELECT k.nth, h.instance, i.workflow, i.name, h.run, h.position, h.since, h.retain_until, h.ended, h.metadata, h.webhook,
       h.from_workflow, h.from_name, h.schema, h.unheard
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (namespace, token, nth)
CROSS JOIN LATERAL (SELECT * FROM hook t WHERE t.namespace = k.namespace AND t.token = k.token LIMIT 1) h
LEFT JOIN LATERAL (SELECT workflow, name FROM instance t WHERE t.id = h.instance LIMIT 1) i ON true
