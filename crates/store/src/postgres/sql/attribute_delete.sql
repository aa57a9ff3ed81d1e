-- Deletes attributes by instance $1 and name $2, like wait_delete.sql. The names are compared as no index can: while the table is
-- small, the planner would else search attribute_by_value for them, and read all of it (rule W37).
-- Index: attribute_pkey, then Tid Scan.
DELETE FROM attribute
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::text[]) AS k (instance, name)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM attribute t WHERE t.instance = k.instance AND t.name || '' = k.name LIMIT 1
    ) t
))
