-- Writes the locked heads that changed, by the ctid that lock_heads.sql returned in the same transaction: the row cannot
-- have moved since, and the join cannot turn round (rule W37). A head that is not found divides by zero, so that the
-- COMMIT already under way becomes a ROLLBACK.
-- Access: Tid Scan.
WITH written AS (
    UPDATE instance h
    SET epoch = r.epoch, position = r.position, reports = r.reports, steps = r.steps, journal_bytes = r.journal_bytes,
        run = r.run, generation = r.generation, waits = r.waits, deaths = r.deaths, status = r.status,
        ended_at = r.ended_at, events = r.events, unread = r.unread, links = r.links, cached_by = r.cached_by,
        cached_position = r.cached_position
    FROM unnest($1::tid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[],
                $8::integer[], $9::integer[], $10::integer[], $11::smallint[], $12::bigint[], $13::bigint[], $14::bigint[],
                $15::integer[], $16::uuid[], $17::bigint[])
        AS r (place, epoch, position, reports, steps, journal_bytes, run, generation, waits, deaths, status, ended_at,
              events, unread, links, cached_by, cached_position)
    WHERE h.ctid = r.place
    RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1::tid[]))::integer FROM written
