-- Keeps events that were accepted. One that was delivered at once has its payload in the journal.
INSERT INTO event (instance, sequence, received_at, position, run, unread, type, key, app_id, event_id, call, fingerprint,
                   payload)
SELECT *
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::boolean[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::text[])
