-- Called by `ends`: $1 namespace, $2 and $3 after this transaction and instance, $4 before this transaction, $5 workflow or nothing,
-- $6 status or 0, $7 how many.
-- Index: ended_by_tx.
SELECT instance, tx FROM ended
WHERE tx >= $2::bigint AND tx < $4::bigint AND (tx, instance) > ($2::bigint, $3::uuid)
    AND namespace = $1::text
    AND ($5::text = '' OR workflow = $5::text)
    AND ($6::smallint = 0 OR status = $6::smallint)
ORDER BY tx, instance
LIMIT $7::bigint
