-- After the heads are locked: the oldest waits that the events fit which calls have got (instance $1, call $2) in the instance's
-- current run, should these return; at most $3 each.
-- Indexes: event_by_call, instance_pkey, awaited_pkey, wait_pkey.
SELECT k.instance, w.kind, w.since, w.due_at, w.call_kind, w.call_name, w.call_count, w.awaited
FROM unnest($1::uuid[], $2::bytea[]) AS k (instance, call)
CROSS JOIN LATERAL (
    SELECT type, key FROM event e
    WHERE e.instance = k.instance AND e.call = k.call AND e.run = (SELECT run FROM instance i WHERE i.id = k.instance)
    OFFSET 0
) e
CROSS JOIN LATERAL (
    (SELECT call
     FROM awaited a
     WHERE a.instance = k.instance AND a.type = e.type AND a.key = ''
     ORDER BY a.opened
     LIMIT $3::bigint)
    UNION ALL
    (SELECT call
     FROM awaited a
     WHERE e.key <> '' AND a.instance = k.instance AND a.type = e.type AND a.key = e.key
     ORDER BY a.opened
     LIMIT $3::bigint)
) a
CROSS JOIN LATERAL (SELECT * FROM wait w WHERE w.instance = k.instance AND w.call = a.call LIMIT 1) w
