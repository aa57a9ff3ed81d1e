-- After the heads are locked: first answers of control operations (instance $1, operation $2).
-- Index: operation_pkey.
SELECT k.nth, o.answer
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS k (instance, operation, nth)
CROSS JOIN LATERAL (
    SELECT answer FROM operation o WHERE o.instance = k.instance AND o.operation = k.operation LIMIT 1
) o
