-- Writes who owns which token from now on. One that is taken meanwhile fails the batch, which is then run again.
INSERT INTO hook (namespace, token, instance, run, position, since, retain_until, ended, metadata, webhook, from_workflow,
                  from_name, schema, unheard)
SELECT *
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[],
            $9::text[], $10::bytea[], $11::text[], $12::text[], $13::text[], $14::boolean[])
