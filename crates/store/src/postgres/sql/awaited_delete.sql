-- Deletes rows by instance $1, type $2, key $3 and opening position $4, found below a list with LIMIT 1 and deleted by ctid, so
-- that nothing can turn round (rule W37); the heads are locked, so nobody moves them meanwhile.
-- Index: awaited_pkey, then Tid Scan.
DELETE FROM awaited
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) AS k (instance, type, key, opened)
    CROSS JOIN LATERAL (
        SELECT ctid AS place
        FROM awaited t
        WHERE t.instance = k.instance AND t.type = k.type AND t.key = k.key AND t.opened = k.opened
        LIMIT 1
    ) t
))
