-- Writes a letter (kind $5, body $6) to each attached child that may be open of the instances $2 and their runs $3, or only of
-- the call $4 where one is given. OFFSET 0 keeps the search below the list, so that the join cannot turn round (rule W37).
-- Index: child_pkey.
INSERT INTO mailbox (written_at, kind, namespace, workflow, name, caller, run, call, body)
SELECT $1::bigint, k.kind, c.namespace, c.workflow, c.name, k.instance, c.run, c.call, k.body
FROM unnest($2::uuid[], $3::integer[], $4::bytea[], $5::smallint[], $6::bytea[]) AS k (instance, run, call, kind, body)
CROSS JOIN LATERAL (
    SELECT *
    FROM child c
    WHERE c.instance = k.instance AND c.run = k.run AND (k.call IS NULL OR c.call = k.call)
      AND NOT c.over AND NOT c.detached
    OFFSET 0
) c
