-- Instances $1 have ended: what has no retention, or none that lasts beyond $2, is free.
-- Index: hook_by_instance.
DELETE FROM hook WHERE instance = ANY($1::uuid[]) AND coalesce(retain_until, 0) <= $2::bigint
