-- Writes letters, in their order.
INSERT INTO mailbox (written_at, kind, instance, namespace, workflow, name, caller, run, call, body)
SELECT $1::bigint, *
FROM unnest($2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::integer[], $9::bytea[],
            $10::bytea[])
