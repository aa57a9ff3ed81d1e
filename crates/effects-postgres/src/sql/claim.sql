-- The first statement of an effect: waits for whoever writes under the same key. Called by Once.
INSERT INTO /*schema.*/everstep_effect (key, part, input, workflow, instance, step, attempt)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (key, part) DO NOTHING
