-- Notes to which builds ($2, null for any) the instances $1 are pinned (rule P40), after their heads are written in the same
-- transaction, which holds their locks. Only sent where a pin has changed.
-- Index: instance_pkey, then Tid Scan.
WITH taken AS MATERIALIZED (
    SELECT t.place, k.pin
    FROM unnest($1::uuid[], $2::text[]) AS k (id, pin)
    CROSS JOIN LATERAL (SELECT ctid AS place FROM instance t WHERE t.id = k.id LIMIT 1) t
)
UPDATE instance i
SET pin = taken.pin
FROM taken
WHERE i.ctid = taken.place
