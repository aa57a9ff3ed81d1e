-- Forgets the calls that waited for the end of instances $1 in runs of the caller $2 before $3: nobody would hear the answer.
-- OFFSET 0 keeps the search below the list, so that the join cannot turn round, and they are deleted by ctid (rule W37); the
-- heads are locked, so nobody moves them meanwhile.
-- Index: watcher_pkey, then Tid Scan.
DELETE FROM watcher
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::uuid[], $3::integer[]) AS k (instance, caller, run)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM watcher t
        WHERE t.instance = k.instance AND t.caller = k.caller AND t.run < k.run OFFSET 0
    ) t
))
