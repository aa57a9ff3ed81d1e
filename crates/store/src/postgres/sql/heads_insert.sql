-- Writes the heads of new instances. Ids are new UUIDv7, so the rows go to the right edge of instance_pkey.
INSERT INTO instance (id, created_at, namespace, workflow, name, epoch, position, reports, steps, journal_bytes, run,
                      generation, waits, deaths, status, ended_at, events, unread, keep_complete, keep_failed, links)
SELECT *
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::integer[], $12::integer[], $13::integer[], $14::integer[],
            $15::smallint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[],
            $21::integer[])
