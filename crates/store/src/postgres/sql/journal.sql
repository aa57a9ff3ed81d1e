-- The entries after a position (instance $1, run $2, position $3), at most 1,000 and $4 bytes a range, but at least one.
-- The bytes of a payload in TOAST are known without reading it. Read by grants and gaps.
-- Index: journal_pkey.
SELECT k.nth, j.position, j.at, j.entry, j.payload
FROM unnest($1::uuid[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS k (instance, run, after, nth)
CROSS JOIN LATERAL (
    SELECT t.*, row_number() OVER whole AS place,
           sum(coalesce(octet_length(t.payload), 0) + octet_length(t.entry)) OVER whole AS bytes
    FROM (
        SELECT position, at, entry, payload
        FROM journal j
        WHERE j.instance = k.instance AND j.run = k.run AND j.position > k.after
        ORDER BY j.position
        LIMIT 1000
    ) t
    WINDOW whole AS (ORDER BY t.position ROWS UNBOUNDED PRECEDING)
) j
WHERE j.place = 1 OR j.bytes <= $4::bigint
ORDER BY k.nth, j.position
