-- Instances $1 have ended: what is left is kept by its retention alone. A token without one that was handed over since the
-- statement before goes when the instance is told of it.
-- Index: hook_by_instance.
UPDATE hook SET ended = true WHERE instance = ANY($1::uuid[]) AND retain_until IS NOT NULL
