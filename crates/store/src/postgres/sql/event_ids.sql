-- After the heads are locked: what is known of events by their ids (instance $1, app $2, id $3).
-- Index: event_by_id.
SELECT k.nth, e.type, e.key, e.fingerprint
FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS k (instance, app_id, event_id, nth)
CROSS JOIN LATERAL (
    SELECT type, key, fingerprint
    FROM event e
    WHERE e.instance = k.instance AND e.app_id = k.app_id AND e.event_id = k.event_id AND e.event_id <> ''
    LIMIT 1
) e
