-- The questions of the namespace $1, of the workflow $2 and the kind $3 if they are not empty, that were asked at least $4 microseconds ago, in the order
-- in which they were asked, after the place ($5, $6, $7), at most $8. What is parked has a row of its own, what is asked about a call
-- is a wait.
-- Indexes: attention_by_age, wait_by_question, instance_pkey.
SELECT q.instance, i.namespace, i.workflow, i.name, i.run, q.since, q.code, q.message, q.call_kind, q.call_name, q.call_count, q.body
FROM (
    (SELECT a.instance, a.since, '\x00000000000000000000000000000000'::bytea AS call, a.code, a.message,
            NULL::smallint AS call_kind, NULL::text AS call_name, NULL::integer AS call_count, a.changed AS body
     FROM attention a
     JOIN instance i ON i.id = a.instance
     WHERE a.since >= $5::bigint AND a.since <= (SELECT everstep_clock()) - $4::bigint AND ($3::text = '' OR a.code = $3::text)
       AND i.namespace = $1::text AND ($2::text = '' OR i.workflow = $2::text)
       AND (a.since, a.instance, '\x00000000000000000000000000000000'::bytea) > ($5::bigint, $6::uuid, $7::bytea)
     ORDER BY a.since, a.instance
     LIMIT $8::bigint)
    UNION ALL
    (SELECT w.instance, w.since, w.call, NULL, NULL, w.call_kind, w.call_name, w.call_count, w.awaited
     FROM wait w
     JOIN instance i ON i.id = w.instance
     WHERE w.kind = 7 AND w.since >= $5::bigint AND w.since <= (SELECT everstep_clock()) - $4::bigint AND $3::text IN ('', 'unknown_outcome')
       AND i.namespace = $1::text AND ($2::text = '' OR i.workflow = $2::text)
       AND (w.since, w.instance, w.call) > ($5::bigint, $6::uuid, $7::bytea)
     ORDER BY w.since, w.instance, w.call
     LIMIT $8::bigint)
    ORDER BY since, instance, call
    LIMIT $8::bigint
) q
JOIN instance i ON i.id = q.instance
ORDER BY q.since, q.instance, q.call
