-- Deletes lifecycle messages that were confirmed (instance $1, run $2). Two coordinators may do so at once: a row that the
-- other has deleted is passed over.
-- Index: outbox_pkey, then Tid Scan.
DELETE FROM outbox
WHERE ctid = ANY(ARRAY(
    SELECT t.place
    FROM unnest($1::uuid[], $2::integer[]) AS k (instance, run)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM outbox t WHERE t.instance = k.instance AND t.run = k.run LIMIT 1
    ) t
))
