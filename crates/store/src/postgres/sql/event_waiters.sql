-- After the heads are locked: the oldest waits that a new event fits (instance $1, type $2, key $3): those that take any key,
-- and those that take this one, at most $4 each.
-- Indexes: awaited_pkey, wait_pkey.
SELECT k.instance, w.kind, w.since, w.due_at, w.call_kind, w.call_name, w.call_count, w.awaited
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS k (instance, type, key)
CROSS JOIN LATERAL (
    (SELECT call
     FROM awaited a
     WHERE a.instance = k.instance AND a.type = k.type AND a.key = ''
     ORDER BY a.opened
     LIMIT $4::bigint)
    UNION ALL
    (SELECT call
     FROM awaited a
     WHERE k.key <> '' AND a.instance = k.instance AND a.type = k.type AND a.key = k.key
     ORDER BY a.opened
     LIMIT $4::bigint)
) a
CROSS JOIN LATERAL (SELECT * FROM wait w WHERE w.instance = k.instance AND w.call = a.call LIMIT 1) w
