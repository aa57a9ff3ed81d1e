-- Notes that sessions $1 with inboxes $2 live. Ids come sorted, so that two coordinators lock them in one order.
-- Index: session_pkey, under a list.
WITH found AS MATERIALIZED (
    SELECT t.place, k.inbox
    FROM unnest($1::uuid[], $2::text[]) AS k (id, inbox)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM session t WHERE t.id = k.id AND t.ended_at IS NULL LIMIT 1 FOR NO KEY UPDATE
    ) t
)
UPDATE session s
SET heard_at = everstep_clock(), inbox = found.inbox
FROM found
WHERE s.ctid = found.place
RETURNING s.id
