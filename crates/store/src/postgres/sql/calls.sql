-- After the heads are locked: what stands beside the calls (instance $1, hash $2): wait, remote step, its lease and its
-- ready row. LIMIT 1 keeps each lookup below the list, so that the join cannot turn round (rule W37).
-- Indexes: wait_pkey, remote_step_pkey, lease_pkey, ready_pkey.
SELECT k.nth,
       w.kind, w.since, w.due_at, w.call_kind, w.call_name, w.call_count,
       s.body, s.attempt, s.epoch, s.first_at, s.granted_at,
       l.session, l.epoch, r.ready_at, w.awaited
FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY AS k (instance, call, nth)
LEFT JOIN LATERAL (SELECT * FROM wait WHERE instance = k.instance AND call = k.call LIMIT 1) w ON true
LEFT JOIN LATERAL (SELECT * FROM remote_step WHERE instance = k.instance AND call = k.call LIMIT 1) s ON true
LEFT JOIN LATERAL (SELECT * FROM lease WHERE instance = k.instance AND subject = k.call LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT * FROM ready WHERE instance = k.instance AND subject = k.call LIMIT 1) r ON true
