-- The first statement of an effect: waits for whoever writes under the same key, and gives the number of this transaction, which
-- savepoints do not change. Called by Once.
INSERT INTO /*schema.*/everstep_effect (key, part, input, workflow, instance, step, attempt)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (key, part) DO NOTHING
RETURNING pg_current_xact_id()::text
