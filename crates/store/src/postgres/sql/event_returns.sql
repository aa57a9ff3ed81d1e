-- After the heads are locked: the events that calls have got last (instance $1, call $2): after a restart the same call may have
-- got one in each run. One whose journal was removed is of an earlier generation, and does not return.
-- Indexes: event_by_call, journal_pkey.
SELECT e.instance, e.sequence, e.received_at, e.run, e.position, e.unread, e.type, e.key, e.app_id, e.event_id, e.call,
       e.fingerprint, coalesce(e.payload, j.payload)
FROM unnest($1::uuid[], $2::bytea[]) AS k (instance, call)
CROSS JOIN LATERAL (SELECT * FROM event e WHERE e.instance = k.instance AND e.call = k.call ORDER BY run DESC LIMIT 1) e
LEFT JOIN LATERAL (
    SELECT payload
    FROM journal j
    WHERE e.payload IS NULL AND j.instance = e.instance AND j.run = e.run AND j.position = e.position
    LIMIT 1
) j ON true
WHERE coalesce(e.payload, j.payload) IS NOT NULL
