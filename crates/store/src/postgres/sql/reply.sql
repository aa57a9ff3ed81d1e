-- Whoever waits for the answer to a request of a webhook (instance $1, app $2, id $3): the answer, if there is one, and the status of
-- the instance.
-- Indexes: event_by_id, instance_pkey.
SELECT (
    SELECT e.reply FROM event e
    WHERE e.instance = i.id AND e.app_id = $2::text AND e.event_id = $3::text AND e.event_id <> ''
    LIMIT 1
), i.status
FROM instance i
WHERE i.id = $1::uuid
