-- After the heads are locked: the oldest unread events of a type, and of a key where it is not empty (instance $1, type $2,
-- key $3), at most $4 each.
-- Indexes: event_unread, event_unread_by_key.
SELECT e.instance, e.sequence, e.received_at, e.run, e.position, e.unread, e.type, e.key, e.app_id, e.event_id, e.call,
       e.fingerprint, e.payload
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS k (instance, type, key)
CROSS JOIN LATERAL (
    (SELECT *
     FROM event e
     WHERE k.key = '' AND e.instance = k.instance AND e.type = k.type AND e.unread
     ORDER BY e.sequence
     LIMIT $4::bigint)
    UNION ALL
    (SELECT *
     FROM event e
     WHERE e.instance = k.instance AND e.type = k.type AND e.key = k.key AND e.unread AND e.key <> ''
     ORDER BY e.sequence
     LIMIT $4::bigint)
) e
