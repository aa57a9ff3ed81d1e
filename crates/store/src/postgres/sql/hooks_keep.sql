-- Instances $1 have ended: what is left is kept by its retention alone.
-- Index: hook_by_instance.
UPDATE hook SET ended = true WHERE instance = ANY($1::uuid[])
