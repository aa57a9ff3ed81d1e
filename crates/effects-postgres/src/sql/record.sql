-- The last statement of an effect. Changes no row if the transaction is not the one that claimed the key. Called by Once.
UPDATE /*schema.*/everstep_effect SET output = $3
WHERE key = $1 AND part = $2 AND output IS NULL AND pg_current_xact_id()::text = $4
