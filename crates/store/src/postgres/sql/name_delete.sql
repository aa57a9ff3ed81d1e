-- Deletes the names of deleted instances (namespace $1, workflow $2, id $3). The heads are locked, so nobody moves them.
-- Index: instance_name_pkey, then Tid Scan.
DELETE FROM instance_name
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::text[], $2::text[], $3::text[]) AS k (namespace, workflow, id)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM instance_name t
        WHERE t.namespace = k.namespace AND t.workflow = k.workflow AND t.id = k.id
        LIMIT 1
    ) t
))
