-- Right after lock_heads.sql, as a statement of its own so that its snapshot is younger than the locks: the leases of the
-- instances $1, their pauses and cancels, the ready rows and open questions of the instances $2.
-- Indexes: lease_pkey, ready_pkey (instance = ANY, subject = zero), attention_pkey, control_pkey (instance = ANY).
SELECT 1::smallint, instance, session, epoch, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::boolean,
       NULL::bigint, NULL::bytea
FROM lease
WHERE instance = ANY($1::uuid[]) AND subject = '\x00000000000000000000000000000000'
UNION ALL
SELECT 2::smallint, instance, NULL, ready_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM ready
WHERE instance = ANY($2::uuid[]) AND subject = '\x00000000000000000000000000000000'
UNION ALL
SELECT 3::smallint, instance, NULL, NULL, code, message, NULL, NULL, NULL, NULL, changed
FROM attention
WHERE instance = ANY($2::uuid[])
UNION ALL
SELECT 4::smallint, instance, NULL, paused_at, NULL, NULL, cancel_position, cancel_until, cancel_rollback, compensating_at,
       NULL
FROM control
WHERE instance = ANY($1::uuid[])
