-- After the heads are locked: the events that calls have got (instance $1, call $2) in the instance's current run. Of earlier runs,
-- in which the same call may have got one each, none returns, and their journals may be gone.
-- Indexes: event_by_call, instance_pkey, journal_pkey.
SELECT e.instance, e.sequence, e.received_at, e.run, e.position, e.unread, e.type, e.key, e.app_id, e.event_id, e.call,
       e.fingerprint, coalesce(e.payload, j.payload)
FROM unnest($1::uuid[], $2::bytea[]) AS k (instance, call)
CROSS JOIN LATERAL (
    SELECT * FROM event e
    WHERE e.instance = k.instance AND e.call = k.call AND e.run = (SELECT run FROM instance i WHERE i.id = k.instance)
    OFFSET 0
) e
LEFT JOIN LATERAL (
    SELECT payload
    FROM journal j
    WHERE e.payload IS NULL AND j.instance = e.instance AND j.run = e.run AND j.position = e.position
    LIMIT 1
) j ON true
