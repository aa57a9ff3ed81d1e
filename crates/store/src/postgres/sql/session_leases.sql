-- The leases of sessions $1.
-- Index: lease_by_session.
SELECT session, instance, subject, epoch FROM lease WHERE session = ANY($1::uuid[])
