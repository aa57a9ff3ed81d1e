-- Registers a session, or notes the new inbox of a live one; an ended one stays ended (rule W10).
INSERT INTO session (id, opened_at, heard_at, namespace, workflows, pools, functions, build, inbox, slots, instances, host,
                     pinned)
SELECT $1::uuid, c.now, c.now, $2::text, $3::text[], $4::text[], $5::text[], $6::text, $7::text, $8::bigint, $9::bigint,
       $10::text, $11::text[]
FROM (SELECT everstep_clock() AS now OFFSET 0) c
ON CONFLICT (id) DO UPDATE SET inbox = excluded.inbox, heard_at = greatest(session.heard_at, excluded.heard_at)
WHERE session.ended_at IS NULL
