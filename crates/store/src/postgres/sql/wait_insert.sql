-- Opens waits.
INSERT INTO wait (instance, call, kind, since, due_at, call_kind, call_name, call_count, awaited)
SELECT *
FROM unnest($1::uuid[], $2::bytea[], $3::smallint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::text[],
            $8::integer[], $9::bytea[])
