-- Forgets the children of instances $1 that runs before $2 started. OFFSET 0 keeps the search below the list, so that the join
-- cannot turn round, and they are deleted by ctid (rule W37); the heads are locked, so nobody moves them meanwhile.
-- Index: child_pkey, then Tid Scan.
DELETE FROM child
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::integer[]) AS k (instance, below)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM child t WHERE t.instance = k.instance AND t.run < k.below OFFSET 0
    ) t
))
