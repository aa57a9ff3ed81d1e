-- The last statement of an effect. Changes no row if the transaction is not the one that claimed the key. Called by Once.
-- A key that was claimed in a savepoint bears another number than its transaction; $4 says not to compare.
UPDATE /*schema.*/everstep_effect SET output = $3
WHERE key = $1 AND part = $2 AND output IS NULL AND ($4 OR xmin = pg_current_xact_id()::xid)
