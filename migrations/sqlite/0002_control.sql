-- What people do to instances: pause, cancel, restart, delete, and how long an ended one is kept.

-- The same table with a fifth status, and with how long its start wants it kept: milliseconds, null as its workflow says.
CREATE TABLE instance_new (
    uid           BLOB    NOT NULL PRIMARY KEY CHECK (length(uid) = 16),
    namespace     TEXT    NOT NULL,
    workflow      TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    run           INTEGER NOT NULL CHECK (run >= 1),
    generation    INTEGER NOT NULL CHECK (generation >= 1),
    -- 0 open, 1 complete, 2 errored, 3 terminated, 4 cancelled.
    status        INTEGER NOT NULL CHECK (status BETWEEN 0 AND 4),
    epoch         INTEGER NOT NULL CHECK (epoch >= 0),
    position      INTEGER NOT NULL CHECK (position >= 0),
    reports       INTEGER NOT NULL,
    waits         INTEGER NOT NULL,
    steps         INTEGER NOT NULL,
    journal_bytes INTEGER NOT NULL,
    deaths        INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    keep_complete INTEGER CHECK (keep_complete >= 0),
    keep_failed   INTEGER CHECK (keep_failed >= 0),
    CHECK ((status <> 0) = (ended_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
INSERT INTO instance_new SELECT *, NULL, NULL FROM instance;
DROP TABLE instance;
ALTER TABLE instance_new RENAME TO instance;
CREATE INDEX instance_open ON instance (uid) WHERE status = 0;
CREATE INDEX instance_ended ON instance (namespace, status, uid) WHERE status > 0;
CREATE INDEX instance_failed ON instance (namespace, workflow, status, uid) WHERE status > 1;

-- Pauses and cancels in force: one row an open instance that has one. `cancel_position` is the entry that says so.
CREATE TABLE control (
    uid             BLOB    NOT NULL PRIMARY KEY,
    paused_at       INTEGER,
    cancel_position INTEGER CHECK (cancel_position >= 1),
    cancel_until    INTEGER,
    CHECK (paused_at IS NOT NULL OR cancel_until IS NOT NULL),
    CHECK ((cancel_until IS NULL) = (cancel_position IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX control_deadline ON control (cancel_until) WHERE cancel_until IS NOT NULL;

-- When ended instances are deleted (rule P32).
CREATE TABLE expiry (
    uid       BLOB    NOT NULL PRIMARY KEY,
    delete_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX expiry_time ON expiry (delete_at);

-- Deleted instances whose journals are still to be removed, a part at a time.
CREATE TABLE journal_cut (
    uid BLOB NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- A deleted instance takes the decisions on its messages along.
CREATE INDEX message_decision_instance ON message_decision (namespace, workflow, id);
