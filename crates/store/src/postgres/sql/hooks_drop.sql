-- Instances $1 are run again: they let go of all but what they were started with.
-- Index: hook_by_instance.
DELETE FROM hook WHERE instance = ANY($1::uuid[]) AND run > 0
