-- Notes how many tokens ($2) the instances $1 may own, and until when they are kept ($3), after their heads are written in the
-- same transaction, which holds their locks. Only sent where that has changed.
-- Index: instance_pkey, then Tid Scan.
WITH taken AS MATERIALIZED (
    SELECT t.place, k.hooks, k.hooks_until
    FROM unnest($1::uuid[], $2::integer[], $3::bigint[]) AS k (id, hooks, hooks_until)
    CROSS JOIN LATERAL (SELECT ctid AS place FROM instance t WHERE t.id = k.id LIMIT 1) t
)
UPDATE instance i
SET hooks = taken.hooks, hooks_until = taken.hooks_until
FROM taken
WHERE i.ctid = taken.place
