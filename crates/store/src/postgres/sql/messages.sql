-- In a transaction with starts: kept decisions on their messages (namespace $1, workflow $2, app $3, message $4).
-- Index: message_decision_pkey.
SELECT k.nth, m.id, m.answer
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
    AS k (namespace, workflow, app_id, message_id, nth)
CROSS JOIN LATERAL (
    SELECT id, answer
    FROM message_decision m
    WHERE m.namespace = k.namespace AND m.workflow = k.workflow
      AND m.app_id = k.app_id AND m.message_id = k.message_id
    LIMIT 1
) m
