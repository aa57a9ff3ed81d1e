-- The leases of sessions $1, each with how far its head has come (rule W6). One row a lease, however long the journals.
-- Indexes: lease_by_session, instance_pkey and control_pkey below a LIMIT 1.
SELECT l.session, l.instance, l.subject, l.epoch, h.run, h.position, h.reports,
       (SELECT p.paused_at FROM control p WHERE p.instance = l.instance LIMIT 1) IS NOT NULL
FROM lease l
CROSS JOIN LATERAL (SELECT run, position, reports FROM instance h WHERE h.id = l.instance LIMIT 1) h
WHERE l.session = ANY($1::uuid[])
