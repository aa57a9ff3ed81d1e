-- What people do to instances: pause, cancel, restart, delete, and how long an ended one is kept. The version before this one
-- still works on it: it writes no row of the new tables, and keeps what has ended for ever.

-- Instances may end cancelled, and a start may say how long its instance is kept. Both columns never change.
ALTER TABLE instance
    DROP CONSTRAINT instance_status_check,
    ADD CONSTRAINT instance_status_check CHECK (status BETWEEN 0 AND 4) NOT VALID,
    ADD COLUMN keep_complete bigint CHECK (keep_complete >= 0),
    ADD COLUMN keep_failed bigint CHECK (keep_failed >= 0);
COMMENT ON COLUMN instance.status IS '0 open, 1 complete, 2 errored, 3 terminated, 4 cancelled';
COMMENT ON COLUMN instance.keep_complete IS 'milliseconds from its end to its deletion; null: as its workflow says';
COMMENT ON COLUMN journal.kind IS
    '1 started, 2 attempted, 3 opened, 4 fired, 5 lost, 6 parked, 7 retried, 8 ended, 12 cancelled';

-- Pauses and cancels in force: one row an open instance that has one. `cancel_position` is the entry that says so.
CREATE TABLE control (
    instance uuid PRIMARY KEY,
    paused_at bigint,
    cancel_position bigint CHECK (cancel_position > 0),
    cancel_until bigint,
    CONSTRAINT control_says_something CHECK (paused_at IS NOT NULL OR cancel_until IS NOT NULL),
    CONSTRAINT cancel_is_whole CHECK ((cancel_until IS NULL) = (cancel_position IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX control_by_deadline ON control (cancel_until) WHERE cancel_until IS NOT NULL;

-- When ended instances are deleted (rule P32).
CREATE TABLE expiry (
    instance uuid PRIMARY KEY,
    delete_at bigint NOT NULL
);
CREATE INDEX expiry_by_time ON expiry (delete_at);

-- Deleted instances whose journals are still to be removed, a part at a time.
CREATE TABLE journal_cut (
    instance uuid PRIMARY KEY
);

-- A deleted instance takes the decisions on its messages along.
CREATE INDEX message_decision_by_instance ON message_decision (namespace, workflow, id);
