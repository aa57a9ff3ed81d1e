-- Records rejected messages, once per namespace, application id and message id, and the decisions on those that name a
-- workflow (rule W17).
WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::text[], $10::bytea[], $11::text[], $12::text[])
        AS r (id, body_bytes, namespace, workflow, app_id, message_id, code, reason, headers, body, name, answer)
), decided AS (
    INSERT INTO message_decision (decided_at, namespace, workflow, app_id, message_id, id, answer)
    SELECT everstep_clock(), namespace, workflow, app_id, message_id, name, answer
    FROM input
    WHERE message_id IS NOT NULL AND workflow IS NOT NULL
    ON CONFLICT DO NOTHING
)
INSERT INTO rejected (id, at, body_bytes, namespace, workflow, app_id, message_id, code, reason, headers, body)
SELECT id, everstep_clock(), body_bytes, namespace, workflow, app_id, message_id, code, reason, headers, body
FROM input
ON CONFLICT DO NOTHING
