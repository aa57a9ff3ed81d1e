-- After message_delete.sql: what is left of them lasts 7 days, like the decisions that met no instance (rule P27). The mark
-- in the answer puts them into the index by time. OFFSET 0 keeps the search below the list, so that the join cannot turn round
-- (rule W37).
-- Index: message_decision_by_instance, then Tid Scan.
UPDATE message_decision
SET answer = 'was:' || answer
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::text[], $2::text[], $3::text[]) AS k (namespace, workflow, id)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM message_decision t
        WHERE t.namespace = k.namespace AND t.workflow = k.workflow AND t.id = k.id AND t.id <> ''
          AND substr(t.answer, 1, 4) <> 'was:'
        OFFSET 0
    ) t
))
