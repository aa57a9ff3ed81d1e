-- What API and CLI show of the events of an instance $1 (rule P25): the types of its unread events with their counts, which the
-- limit of unread events bounds, and the types that are awaited and of which none was ever sent.
-- Indexes: event_unread, awaited_pkey, event_pkey.
(SELECT type, count(*) AS unread, min(received_at) AS since
 FROM event
 WHERE instance = $1::uuid AND unread
 GROUP BY type
 ORDER BY min(sequence)
 LIMIT 100)
UNION ALL
(SELECT DISTINCT a.type, NULL::bigint, NULL::bigint
 FROM awaited a
 WHERE a.instance = $1::uuid AND NOT EXISTS (SELECT FROM event e WHERE e.instance = $1::uuid AND e.type = a.type)
 LIMIT 100)
