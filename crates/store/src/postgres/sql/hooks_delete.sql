-- Instances $1 are deleted, and their tokens are free.
-- Index: hook_by_instance.
DELETE FROM hook WHERE instance = ANY($1::uuid[])
