-- The embedded store's first schema. It mirrors migrations/postgres: the same tables, with UUIDs and call hashes as
-- 16-byte blobs and times as microseconds since 1970. Every per-instance table leads with the instance's internal id.

CREATE TABLE installation (
    one         INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    incarnation INTEGER NOT NULL CHECK (incarnation >= 1),
    -- The time of the last commit: the clock never goes behind it.
    last_at     INTEGER NOT NULL,
    -- How many ends there ever were.
    ends        INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO installation (one, incarnation, last_at) VALUES (1, 1, 0);

CREATE TABLE instance (
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
    events        INTEGER NOT NULL,
    unread        INTEGER NOT NULL,
    links         INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    -- How long its start wants it kept after its end, in milliseconds; null as its workflow says. Never changes.
    keep_complete INTEGER CHECK (keep_complete >= 0),
    keep_failed   INTEGER CHECK (keep_failed >= 0),
    -- The session that may have kept the body, fed up to cached_position.
    cached_by       BLOB,
    cached_position INTEGER,
    -- The build whose workers alone take it up; * that of whoever takes it up first; null any.
    pin           TEXT,
    -- Tokens that it owns, never less than there are; and the end of the longest retention that one ever had.
    hooks         INTEGER NOT NULL DEFAULT 0,
    hooks_until   INTEGER,
    CHECK ((status <> 0) = (ended_at IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- What is open stays small, so that lists of it do not walk all that has ended.
CREATE INDEX instance_open ON instance (uid) WHERE status = 0;

CREATE TABLE instance_name (
    namespace   TEXT NOT NULL,
    workflow    TEXT NOT NULL,
    id          TEXT NOT NULL,
    uid         BLOB NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    PRIMARY KEY (namespace, workflow, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE message_decision (
    namespace  TEXT    NOT NULL,
    workflow   TEXT    NOT NULL,
    app_id     TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    answer     TEXT    NOT NULL,
    PRIMARY KEY (namespace, workflow, app_id, message_id)
) STRICT, WITHOUT ROWID;

-- A decision that met an instance is kept as long as that, so cleaning never looks at it.
CREATE INDEX message_decision_at ON message_decision (at)
    WHERE substr(answer, 1, 7) NOT IN ('created', 'exists:', 'conflic');
-- A deleted instance takes them along; what is to outlive it gets another answer, and is cleaned by its time. The id leads, so
-- that no search for a message, which names namespace and workflow too, can take this index (rule W37).
CREATE INDEX message_decision_instance ON message_decision (id, workflow, namespace);

CREATE TABLE journal (
    uid      BLOB    NOT NULL,
    run      INTEGER NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 1),
    kind     INTEGER NOT NULL,
    call     BLOB,
    at       INTEGER NOT NULL,
    -- MessagePack of the fact without its main payload, which is JSON text of its own.
    entry    BLOB    NOT NULL,
    payload  TEXT,
    -- What the service of a step calls what the step did; null where the step did not say (rule L14).
    reference TEXT,
    PRIMARY KEY (uid, run, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX journal_by_reference ON journal (reference) WHERE reference IS NOT NULL;
-- What people decided about keys, which a restart takes over.
CREATE INDEX journal_by_key_choice ON journal (uid, run, position) WHERE kind = 43;

-- `subject` is 16 zero bytes for the instance itself, otherwise the hash of a remote step's call.
CREATE TABLE lease (
    uid     BLOB    NOT NULL,
    subject BLOB    NOT NULL CHECK (length(subject) = 16),
    session BLOB    NOT NULL,
    epoch   INTEGER NOT NULL CHECK (epoch >= 1),
    PRIMARY KEY (uid, subject)
) STRICT, WITHOUT ROWID;

CREATE INDEX lease_session ON lease (session);

CREATE TABLE ready (
    uid        BLOB    NOT NULL,
    subject    BLOB    NOT NULL CHECK (length(subject) = 16),
    namespace  TEXT    NOT NULL,
    -- With a dot and the build behind it for an instance that is pinned to one.
    workflow   TEXT    NOT NULL,
    -- Set for a remote step.
    pool       TEXT,
    ready_at   INTEGER NOT NULL,
    offered_at INTEGER,
    PRIMARY KEY (uid, subject)
) STRICT, WITHOUT ROWID;

-- Not offered (null) and offered long ago are each one range, oldest first in the former.
CREATE INDEX ready_run ON ready (namespace, workflow, offered_at, ready_at) WHERE pool IS NULL;
CREATE INDEX ready_step ON ready (namespace, pool, offered_at, ready_at) WHERE pool IS NOT NULL;

CREATE TABLE wait (
    uid        BLOB    NOT NULL,
    call       BLOB    NOT NULL CHECK (length(call) = 16),
    -- 1 sleep, 2 retry, 3 remote step, 4 event, 5 another instance, 6 hook, 7 person.
    kind       INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 7),
    since      INTEGER NOT NULL,
    -- Null where something other than time ends it.
    due_at     INTEGER,
    call_kind  TEXT    NOT NULL,
    call_name  TEXT    NOT NULL,
    call_count INTEGER NOT NULL,
    -- MessagePack of what a wait for an event waits for, or of what a person is asked.
    awaited    BLOB,
    PRIMARY KEY (uid, call),
    CHECK ((kind IN (4, 6, 7)) = (awaited IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX wait_due ON wait (due_at) WHERE due_at IS NOT NULL;
-- What people are asked, oldest first.
CREATE INDEX wait_question ON wait (since) WHERE kind = 7;

-- What open waits for events wait for, one row a type. The key is empty where any will do.
CREATE TABLE awaited (
    uid    BLOB    NOT NULL,
    type   TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    opened INTEGER NOT NULL,
    call   BLOB    NOT NULL CHECK (length(call) = 16),
    PRIMARY KEY (uid, type, key, opened)
) STRICT, WITHOUT ROWID;

-- Kept as long as their instance. The payload of one that was delivered is in the journal, at this run and position.
CREATE TABLE event (
    uid         BLOB    NOT NULL,
    type        TEXT    NOT NULL,
    sequence    INTEGER NOT NULL CHECK (sequence >= 1),
    key         TEXT    NOT NULL,
    app_id      TEXT    NOT NULL,
    event_id    TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    received_at INTEGER NOT NULL,
    unread      INTEGER NOT NULL CHECK (unread IN (0, 1)),
    call        BLOB,
    run         INTEGER,
    position    INTEGER,
    payload     TEXT,
    -- MessagePack of what the code has answered the request of a webhook.
    reply       BLOB,
    PRIMARY KEY (uid, type, sequence),
    CHECK (unread = (call IS NULL)),
    CHECK ((payload IS NULL) = (position IS NOT NULL)),
    CHECK ((position IS NULL) = (run IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX event_id ON event (uid, app_id, event_id);
CREATE INDEX event_unread ON event (uid, type, sequence) WHERE unread = 1;
CREATE INDEX event_unread_key ON event (uid, type, key, sequence) WHERE unread = 1 AND key <> '';
CREATE INDEX event_call ON event (uid, call) WHERE call IS NOT NULL;

-- Letters between instances that nobody has taken yet, in their order.
CREATE TABLE mailbox (
    number     INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    written_at INTEGER NOT NULL,
    -- 1 start, 2 watch, 3 event, 4 returned, 5 terminate, 6 cancel, 7 claim, 8 claimed, 9 resume.
    kind       INTEGER NOT NULL,
    -- To whom it goes; of a resume its sender.
    uid        BLOB,
    namespace  TEXT,
    workflow   TEXT,
    name       TEXT,
    caller     BLOB    NOT NULL,
    run        INTEGER NOT NULL,
    call       BLOB    NOT NULL CHECK (length(call) = 16),
    -- MessagePack of what it says.
    body       BLOB    NOT NULL,
    CHECK ((uid IS NULL) = (name IS NOT NULL))
) STRICT;

CREATE INDEX mailbox_starts ON mailbox (namespace, workflow, name) WHERE kind = 1;

CREATE TABLE child (
    uid       BLOB    NOT NULL,
    run       INTEGER NOT NULL,
    call      BLOB    NOT NULL CHECK (length(call) = 16),
    namespace TEXT    NOT NULL,
    workflow  TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    detached  INTEGER NOT NULL CHECK (detached IN (0, 1)),
    -- It is known to have ended, or never was a child.
    over      INTEGER NOT NULL CHECK (over IN (0, 1)),
    PRIMARY KEY (uid, run, call)
) STRICT, WITHOUT ROWID;

CREATE TABLE parent (
    uid      BLOB    NOT NULL PRIMARY KEY,
    caller   BLOB    NOT NULL,
    run      INTEGER NOT NULL,
    call     BLOB    NOT NULL CHECK (length(call) = 16),
    workflow TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    detached INTEGER NOT NULL CHECK (detached IN (0, 1)),
    depth    INTEGER NOT NULL CHECK (depth >= 0)
) STRICT, WITHOUT ROWID;

-- Calls that wait for the end of an instance.
CREATE TABLE watcher (
    uid    BLOB    NOT NULL,
    caller BLOB    NOT NULL,
    run    INTEGER NOT NULL,
    call   BLOB    NOT NULL CHECK (length(call) = 16),
    PRIMARY KEY (uid, caller, run, call)
) STRICT, WITHOUT ROWID;

-- Tokens of hooks that somebody owns: the key guards that. Run and position say which hook it is: those of the entry that opened
-- it, zero for one that the instance was started with. ended: the owner has ended and keeps it by its retention alone.
CREATE TABLE hook (
    namespace     TEXT    NOT NULL,
    token         TEXT    NOT NULL,
    uid           BLOB    NOT NULL,
    run           INTEGER NOT NULL CHECK (run >= 0),
    position      INTEGER NOT NULL CHECK (position >= 0),
    since         INTEGER NOT NULL,
    retain_until  INTEGER,
    ended         INTEGER NOT NULL CHECK (ended IN (0, 1)),
    metadata      TEXT,
    -- MessagePack of what a webhook answers.
    webhook       BLOB,
    -- JSON Schema that every payload fits before it is kept.
    schema        TEXT,
    -- From whom it was taken.
    from_workflow TEXT,
    from_id       TEXT,
    -- A forced claim has moved it to the owner, who has not relied on it otherwise than by the answer.
    unheard       INTEGER NOT NULL CHECK (unheard IN (0, 1)),
    PRIMARY KEY (namespace, token),
    CHECK (ended = 0 OR retain_until IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX hook_instance ON hook (uid);
CREATE INDEX hook_kept ON hook (retain_until) WHERE ended = 1;

CREATE TABLE remote_step (
    uid          BLOB    NOT NULL,
    call         BLOB    NOT NULL CHECK (length(call) = 16),
    call_kind    TEXT    NOT NULL,
    call_name    TEXT    NOT NULL,
    call_count   INTEGER NOT NULL,
    called_after INTEGER NOT NULL,
    attempt      INTEGER NOT NULL CHECK (attempt >= 1),
    epoch        INTEGER NOT NULL CHECK (epoch >= 0),
    first_at     INTEGER,
    granted_at   INTEGER,
    -- MessagePack: pool, function, input, key, policy.
    remote       BLOB    NOT NULL,
    -- What its attempts told last of their progress, as JSON.
    progress     TEXT,
    PRIMARY KEY (uid, call)
) STRICT, WITHOUT ROWID;

CREATE TABLE attention (
    uid     BLOB    NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,
    code    TEXT    NOT NULL,
    message TEXT    NOT NULL,
    -- MessagePack of the step whose input has changed, where a person may choose its key.
    changed BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX attention_age ON attention (at);

-- Pauses and cancels in force: one row an open instance that has one. `cancel_position` is the entry that says so.
CREATE TABLE control (
    uid             BLOB    NOT NULL PRIMARY KEY,
    paused_at       INTEGER,
    cancel_position INTEGER CHECK (cancel_position >= 1),
    cancel_until    INTEGER,
    -- Whether compensations run then, and since when the body is over and they run, or are to.
    cancel_rollback INTEGER NOT NULL DEFAULT 0 CHECK (cancel_rollback IN (0, 1)),
    compensating_at INTEGER,
    CHECK (paused_at IS NOT NULL OR cancel_position IS NOT NULL OR compensating_at IS NOT NULL),
    CHECK (cancel_position IS NOT NULL OR (cancel_until IS NULL AND cancel_rollback = 0))
) STRICT, WITHOUT ROWID;
CREATE INDEX control_deadline ON control (cancel_until) WHERE cancel_until IS NOT NULL;

-- What instances can be found by (rule P37): only those that have attributes have rows. The value is canonical JSON.
CREATE TABLE attribute (
    uid       BLOB NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (uid, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX attribute_value ON attribute (namespace, name, value, uid);

-- What workflows have published last (rule P37): only those that publish have a row.
CREATE TABLE published (
    uid   BLOB    NOT NULL PRIMARY KEY,
    at    INTEGER NOT NULL,
    run   INTEGER NOT NULL,
    state TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- One row an ended instance: by it those of one final status are listed, and deleted when their time has come (rule P32).
CREATE TABLE ended (
    uid       BLOB    NOT NULL PRIMARY KEY,
    namespace TEXT    NOT NULL,
    workflow  TEXT    NOT NULL,
    status    INTEGER NOT NULL CHECK (status BETWEEN 1 AND 4),
    delete_at INTEGER NOT NULL,
    -- Which end it was of all that there ever were: the order in which they are told.
    number    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ended_number ON ended (number);
CREATE INDEX ended_time ON ended (delete_at);
-- Lists, newest first; and of what went wrong in one workflow, which are few rows.
CREATE INDEX ended_status ON ended (namespace, status, uid);
CREATE INDEX ended_failed ON ended (namespace, workflow, status, uid) WHERE status > 1;

-- Instances whose journals of runs below a number are to be removed, a part at a time: deleted ones, and those that have gone
-- on as new.
CREATE TABLE journal_cut (
    uid   BLOB    NOT NULL,
    below INTEGER NOT NULL,
    PRIMARY KEY (uid, below)
) STRICT, WITHOUT ROWID;

CREATE TABLE operation (
    uid       BLOB    NOT NULL,
    operation TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    answer    TEXT    NOT NULL,
    PRIMARY KEY (uid, operation)
) STRICT, WITHOUT ROWID;

-- Rows live from an instance's end until the broker has confirmed the message.
CREATE TABLE outbox (
    uid         BLOB    NOT NULL,
    run         INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    routing_key TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    PRIMARY KEY (uid, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
    session   BLOB    NOT NULL PRIMARY KEY CHECK (length(session) = 16),
    inbox     TEXT    NOT NULL,
    opened_at INTEGER NOT NULL,
    heard_at  INTEGER NOT NULL,
    ended_at  INTEGER,
    -- Whether the loss of its leases counts as an attempt; known once it has ended.
    counts    INTEGER CHECK (counts IN (0, 1)),
    -- MessagePack of how it presented itself.
    open      BLOB    NOT NULL,
    -- MessagePack of what its running attempts have told of their progress; set if any has.
    progress  BLOB,
    CHECK ((ended_at IS NULL) = (counts IS NULL))
) STRICT, WITHOUT ROWID;

-- How long the way of heartbeats has been open without a gap (rule W8).
CREATE TABLE session_clock (
    one          INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    open_since   INTEGER NOT NULL,
    last_beat_at INTEGER NOT NULL,
    gap          INTEGER NOT NULL
) STRICT;

CREATE TABLE duty (
    name        TEXT    NOT NULL PRIMARY KEY,
    coordinator BLOB    NOT NULL,
    until_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Coordinators that are there: for people, who see versions and clocks that differ.
CREATE TABLE coordinator (
    coordinator  BLOB    NOT NULL PRIMARY KEY,
    heard_at     INTEGER NOT NULL,
    version      TEXT    NOT NULL,
    -- How far its own clock is behind, in microseconds.
    clock_offset INTEGER
) STRICT, WITHOUT ROWID;

-- What the auditor has found and mended (promise 5).
CREATE TABLE breach (
    number    INTEGER NOT NULL PRIMARY KEY,
    at        INTEGER NOT NULL,
    uid       BLOB    NOT NULL,
    run       INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    namespace TEXT    NOT NULL,
    workflow  TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    message   TEXT    NOT NULL
) STRICT;
CREATE INDEX breach_namespace ON breach (namespace, number);

CREATE TABLE rejected (
    number     INTEGER NOT NULL PRIMARY KEY,
    at         INTEGER NOT NULL,
    namespace  TEXT    NOT NULL,
    -- Set if the message is known to name one.
    workflow   TEXT,
    -- Together set if the message has an id.
    app_id     TEXT,
    message_id TEXT,
    code       TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    headers    TEXT    NOT NULL,
    body_bytes INTEGER NOT NULL,
    body       BLOB    NOT NULL,
    CHECK ((message_id IS NULL) = (app_id IS NULL))
) STRICT;

CREATE UNIQUE INDEX rejected_message ON rejected (namespace, app_id, message_id)
    WHERE message_id IS NOT NULL;
-- With what their sizes are summed from, so that measuring reads no record.
CREATE INDEX rejected_namespace ON rejected (namespace, number, body_bytes);

-- Operations on many instances, kept for 30 days after they are over. `cursor` is the instance after which one goes on.
CREATE TABLE bulk (
    namespace  TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,
    -- 0 running, 1 done, 2 stopped.
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2),
    cursor     BLOB CHECK (length(cursor) = 16),
    looked_at  INTEGER NOT NULL,
    matched    INTEGER NOT NULL,
    done       INTEGER NOT NULL,
    refused    INTEGER NOT NULL,
    request    TEXT    NOT NULL,
    begun_by   TEXT    NOT NULL,
    PRIMARY KEY (namespace, id),
    CHECK ((state = 0) = (ended_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX bulk_running ON bulk (created_at) WHERE state = 0;
CREATE INDEX bulk_time ON bulk (namespace, created_at);

-- Schedules: what each starts and when, and where it stands. `version` counts the changes, `wake_at` is when to look at it again.
CREATE TABLE schedule (
    namespace  TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    wake_at    INTEGER,
    definition TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (wake_at, namespace, id) WHERE wake_at IS NOT NULL;

-- The audit log: who did what to which instance, schedule, bulk operation or access token, and what came of it; kept for 90 days, also of
-- what was deleted. A row is written in the transaction that does it. `namespace` is * for what belongs to none.
CREATE TABLE action (
    number    INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    namespace TEXT    NOT NULL,
    target    TEXT    NOT NULL,
    operation TEXT    NOT NULL,
    who       TEXT    NOT NULL,
    came_from TEXT    NOT NULL,
    -- Who asked for it as the request says, which nobody has checked.
    named     TEXT,
    outcome   TEXT    NOT NULL,
    detail    TEXT
) STRICT;

CREATE INDEX action_by_namespace ON action (namespace, number);
CREATE INDEX action_by_target ON action (namespace, target, number);
CREATE INDEX action_by_time ON action (at);

-- Access tokens: what opens the HTTP API. `hash` is of the secret, which nobody has but the token's owner. `namespace` is * for all.
CREATE TABLE access_token (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL CHECK (role IN ('viewer', 'producer', 'operator', 'admin')),
    namespace  TEXT    NOT NULL,
    hash       BLOB    NOT NULL CHECK (length(hash) = 32),
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    revoked_by TEXT,
    -- About when it was used last.
    used_at    INTEGER,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) STRICT, WITHOUT ROWID;
