-- In a transaction with starts: the instances that have the names asked for (namespace $1, workflow $2, id $3).
-- Indexes: instance_name_pkey, instance_pkey.
SELECT k.nth, n.instance, n.fingerprint, i.status
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (namespace, workflow, id, nth)
CROSS JOIN LATERAL (
    SELECT instance, fingerprint
    FROM instance_name n
    WHERE n.namespace = k.namespace AND n.workflow = k.workflow AND n.id = k.id
    LIMIT 1
) n
CROSS JOIN LATERAL (SELECT status FROM instance i WHERE i.id = n.instance LIMIT 1) i
