-- Deletes the decisions on messages that met deleted instances (namespace $1, workflow $2, id $3), but for those that are
-- younger than $4, each instance's own moment (rule P27). OFFSET 0 keeps the search below the list, so that the join cannot turn
-- round (rule W37).
-- Index: message_decision_by_instance, then Tid Scan.
DELETE FROM message_decision
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS k (namespace, workflow, id, before)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM message_decision t
        WHERE t.namespace = k.namespace AND t.workflow = k.workflow AND t.id = k.id AND t.id <> ''
          AND t.decided_at < k.before
        OFFSET 0
    ) t
))
