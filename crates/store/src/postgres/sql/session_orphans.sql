-- Leases, at most $1, that ended sessions still hold.
-- Indexes: session_ended, lease_by_session.
SELECT l.instance, l.subject, l.epoch, s.counts, s.*
FROM session s
CROSS JOIN LATERAL (SELECT instance, subject, epoch FROM lease l WHERE l.session = s.id LIMIT $1::bigint) l
WHERE s.ended_at IS NOT NULL
LIMIT $1::bigint
