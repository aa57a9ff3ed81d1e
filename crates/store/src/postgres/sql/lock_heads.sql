-- First statement of every transaction that is about instances (rules W18, W19): locks their heads in one order, skips
-- those locked elsewhere, returns the time. Its ctids serve heads_update.sql in the same transaction.
-- Index: instance_pkey (id = ANY).
SELECT clock_timestamp(), ctid, id, namespace, workflow, name, run, generation, status, epoch, position, reports, waits,
       steps, journal_bytes, deaths, created_at, ended_at, events, unread, keep_complete, keep_failed,
       cached_by, cached_position, pin, links, hooks, hooks_until
FROM instance
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR UPDATE SKIP LOCKED
