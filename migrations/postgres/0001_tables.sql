-- All tables of the first version. Times are microseconds since 1970 in UTC, by this database's clock (rule W18).
--
-- Every per-instance table leads with the instance's internal id, a UUIDv7: inserts go to the right edge, and the tables
-- can be hash-partitioned by it. There are no foreign keys and no triggers: the head's row lock protects the side rows.
-- A text that people choose is compared by its bytes (COLLATE "C").
--
-- A second index that shares columns with the primary key has a condition that every row meets: only a statement that repeats it
-- can use the index. Else the planner takes it for searches by the key while the table is small, and keeps to it (rule W37).

CREATE FUNCTION everstep_clock() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- One row. `everstep restored` raises the incarnation after an older database was restored.
CREATE TABLE installation (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    incarnation bigint NOT NULL CHECK (incarnation > 0),
    restored_at bigint
);
COMMENT ON COLUMN installation.restored_at IS
    'when an older database was restored; null: never, or its questions are over';
INSERT INTO installation (incarnation) VALUES (1);

-- The heads: one row an instance, locked by every decision. Immutable columns first, nothing that changes is indexed, so that all
-- updates stay heap-only (rule W24). What an instance is doing, or that it has ended, is found by the side tables.
-- Few conditions: PostgreSQL reads each from its text again in every statement that writes the table, which was a fifth of what
-- the update of a head costs. That counts are not negative their types in the engine say.
CREATE TABLE instance (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    position bigint NOT NULL,
    reports bigint NOT NULL,
    steps bigint NOT NULL,
    journal_bytes bigint NOT NULL,
    run integer NOT NULL,
    generation integer NOT NULL,
    waits integer NOT NULL,
    deaths integer NOT NULL,
    events bigint NOT NULL,
    unread bigint NOT NULL CHECK (unread BETWEEN 0 AND events),
    links integer NOT NULL,
    status smallint NOT NULL CHECK (status BETWEEN 0 AND 4),
    ended_at bigint,
    keep_complete bigint,
    keep_failed bigint,
    cached_by uuid,
    cached_position bigint,
    pin text COLLATE "C",
    hooks integer NOT NULL DEFAULT 0,
    hooks_until bigint,
    CONSTRAINT ended_has_a_time CHECK ((status <> 0) = (ended_at IS NOT NULL)),
    CONSTRAINT ended_waits_for_nothing CHECK (status = 0 OR waits = 0)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN instance.status IS '0 open, 1 complete, 2 errored, 3 terminated, 4 cancelled';
COMMENT ON COLUMN instance.links IS 'rows that tie it to other instances: child, parent, watcher; never less than there are';
COMMENT ON COLUMN instance.keep_complete IS
    'milliseconds from an end with an output to the deletion; null: as the workflow says; never changes';
COMMENT ON COLUMN instance.keep_failed IS 'the same from any other end';
COMMENT ON COLUMN instance.cached_by IS 'the session that may have kept the body, fed up to cached_position';
COMMENT ON COLUMN instance.hooks IS 'tokens that it owns; never less than there are; written only when it changes';
COMMENT ON COLUMN instance.hooks_until IS 'the end of the longest retention of a hook that it ever had: it is kept as long';
COMMENT ON COLUMN instance.pin IS
    'the build whose workers alone take it up; * the build of whoever takes it up first; null any';
-- Lists of one workflow, newest first. All its columns are immutable. The id is in it as bytes, which order as the id does:
-- while the table is small, the planner would else search this index for an id, and read all of it (rule W37).
CREATE INDEX instance_by_workflow ON instance (namespace, workflow, uuid_send(id));

-- What users call an instance.
CREATE TABLE instance_name (
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    instance uuid NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    PRIMARY KEY (namespace, workflow, id)
);

-- Decisions on start messages, refusals too, kept for 7 days.
CREATE TABLE message_decision (
    decided_at bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    app_id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    answer text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, workflow, app_id, message_id)
);
-- A decision that met an instance is kept as long as that, so cleaning never looks at it.
CREATE INDEX message_decision_by_time ON message_decision (decided_at)
    WHERE substr(answer, 1, 7) NOT IN ('created', 'exists:', 'conflic');
-- A deleted instance takes them along; what is to outlive it gets another answer, and is cleaned by its time.
CREATE INDEX message_decision_by_instance ON message_decision (id, workflow, namespace) WHERE id <> '';

-- The journals: insert-only. `entry` is the fact as MessagePack without its payload, `payload` the JSON text that was
-- taken out of it: a step's output, an input, the instance's output.
CREATE TABLE journal (
    instance uuid NOT NULL,
    position bigint NOT NULL CHECK (position > 0),
    at bigint NOT NULL,
    run integer NOT NULL CHECK (run > 0),
    kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 99),
    call bytea CHECK (octet_length(call) = 16),
    entry bytea NOT NULL,
    payload text,
    reference text COLLATE "C",
    PRIMARY KEY (instance, run, position)
);
COMMENT ON COLUMN journal.reference IS 'what the service of a step calls what the step did; null where the step did not say';
-- Few entries have one, and only those are in it (rule L14).
CREATE INDEX journal_by_reference ON journal (reference) WHERE reference IS NOT NULL;
-- What people decided about keys, which a restart takes over.
CREATE INDEX journal_by_key_choice ON journal (instance, run, position) WHERE kind = 43;
COMMENT ON COLUMN journal.kind IS '1 started, 2 attempted, 3 opened, 4 fired, 5 lost, 6 parked, 7 retried, 8 ended, 9 delivered, 10 closed, 12 cancelled, 14 patched, 15 compensating, 16 compensated, 17 returned, 21 continued, 25 rollback, 26 reusable, 30 registered, 31 received, 32 taken over, 40 intended, 41 withdrawn, 42 resolved, 43 rekeyed';

-- The side tables of open instances. `subject` is zero for the instance itself, else the hash of a remote step's call.

-- Who holds what, for as long as the session lives (rule W5).
CREATE TABLE lease (
    instance uuid NOT NULL,
    session uuid NOT NULL,
    epoch bigint NOT NULL CHECK (epoch > 0),
    subject bytea NOT NULL CHECK (octet_length(subject) = 16),
    PRIMARY KEY (instance, subject)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lease_by_session ON lease (session);

-- What is runnable and held by nobody. `queue` is the workflow of an instance, the workflow and the build that it is pinned to
-- with a dot between, or the pool of a remote step. No name holds a dot.
CREATE TABLE ready (
    instance uuid NOT NULL,
    ready_at bigint NOT NULL,
    offered_at bigint,
    subject bytea NOT NULL CHECK (octet_length(subject) = 16),
    kind smallint NOT NULL CHECK (kind IN (1, 2)),
    namespace text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    PRIMARY KEY (instance, subject),
    CONSTRAINT steps_have_a_call CHECK ((kind = 2) = (subject <> '\x00000000000000000000000000000000'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN ready.kind IS '1 run task of a workflow, 2 step task of a pool';
-- Offers, oldest first. The mark of an offer is in no index, so that offering stays heap-only.
CREATE INDEX ready_by_queue ON ready (namespace, queue, kind, ready_at);

-- What will wake an instance (promise 5).
CREATE TABLE wait (
    instance uuid NOT NULL,
    since bigint NOT NULL,
    due_at bigint,
    call_count integer NOT NULL,
    kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 99),
    call_kind smallint NOT NULL CHECK (call_kind BETWEEN 1 AND 99),
    call bytea NOT NULL CHECK (octet_length(call) = 16),
    call_name text NOT NULL,
    awaited bytea,
    PRIMARY KEY (instance, call),
    CONSTRAINT only_what_others_do_has_no_time CHECK (due_at IS NOT NULL OR kind IN (3, 5, 6, 7)),
    CONSTRAINT waits_for_events_and_people_say_for_what CHECK ((kind IN (4, 6, 7)) = (awaited IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN wait.kind IS '1 sleep, 2 retry, 3 remote step, 4 event, 5 another instance, 6 hook, 7 person';
COMMENT ON COLUMN wait.awaited IS
    'MessagePack: types, key and the position of the entry that opened it; of a person: what is asked';
CREATE INDEX wait_by_due ON wait (due_at) WHERE due_at IS NOT NULL;
-- What people are asked, oldest first.
CREATE INDEX wait_by_question ON wait (since) WHERE kind = 7;

-- What open waits for events wait for: one row a type, by which a new event finds the oldest wait that it fits. The key is
-- empty where any will do.
CREATE TABLE awaited (
    instance uuid NOT NULL,
    opened bigint NOT NULL,
    call bytea NOT NULL CHECK (octet_length(call) = 16),
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (instance, type, key, opened)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Events, kept as long as their instance, so that one that is sent again is known (rule P24). What a hook is resumed with is one, of a
-- type that begins with a control character, as no name of a user does. The payload of one that was
-- delivered is in the journal, at the run and position given here, for as long as that is kept.
CREATE TABLE event (
    instance uuid NOT NULL,
    sequence bigint NOT NULL CHECK (sequence > 0),
    received_at bigint NOT NULL,
    position bigint,
    run integer,
    unread boolean NOT NULL,
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    app_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL CHECK (event_id <> ''),
    call bytea CHECK (octet_length(call) = 16),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    payload text,
    reply bytea,
    PRIMARY KEY (instance, type, sequence),
    CONSTRAINT unread_has_no_call CHECK (unread = (call IS NULL)),
    CONSTRAINT a_payload_is_here_or_in_the_journal CHECK ((payload IS NULL) = (position IS NOT NULL)),
    CONSTRAINT a_place_is_whole CHECK ((position IS NULL) = (run IS NULL))
);
COMMENT ON COLUMN event.reply IS 'MessagePack: what the code has answered the request of a webhook';
CREATE UNIQUE INDEX event_by_id ON event (instance, app_id, event_id) WHERE event_id <> '';
CREATE INDEX event_unread ON event (instance, type, sequence) WHERE unread;
CREATE INDEX event_unread_by_key ON event (instance, type, key, sequence) WHERE unread AND key <> '';
CREATE INDEX event_by_call ON event (instance, call, run) WHERE call IS NOT NULL;

-- Letters between instances that nobody has taken yet (rule W22): written in the transaction of the sender's decision, deleted
-- in that of the addressee's. It is a queue, so its rows lead with their place in line.
CREATE TABLE mailbox (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    written_at bigint NOT NULL,
    caller uuid NOT NULL,
    instance uuid,
    run integer NOT NULL,
    kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 99),
    call bytea NOT NULL CHECK (octet_length(call) = 16),
    namespace text COLLATE "C",
    workflow text COLLATE "C",
    name text COLLATE "C",
    body bytea NOT NULL,
    CONSTRAINT a_name_is_whole CHECK ((name IS NULL) = (namespace IS NULL) AND (name IS NULL) = (workflow IS NULL)),
    CONSTRAINT a_letter_has_one_address CHECK ((instance IS NULL) = (name IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN mailbox.kind IS '1 start, 2 watch, 3 event, 4 returned, 5 terminate, 6 cancel, 7 claim, 8 claimed, 9 resume';
COMMENT ON COLUMN mailbox.instance IS 'to whom it goes; of a resume its sender, since who has the token is looked up when it is carried';
COMMENT ON COLUMN mailbox.caller IS 'with run and call: the call that it is about';
COMMENT ON COLUMN mailbox.body IS 'MessagePack: what it says';
-- Who is about to exist.
CREATE INDEX mailbox_starts ON mailbox (namespace, workflow, name) WHERE kind = 1;

-- The children of an instance, and its parent (rule P36): as long as it is kept.
CREATE TABLE child (
    instance uuid NOT NULL,
    run integer NOT NULL CHECK (run > 0),
    detached boolean NOT NULL,
    over boolean NOT NULL,
    call bytea NOT NULL CHECK (octet_length(call) = 16),
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (instance, run, call)
) WITH (fillfactor = 90);
COMMENT ON COLUMN child.over IS 'it is known to have ended, or never was a child';

CREATE TABLE parent (
    instance uuid PRIMARY KEY,
    caller uuid NOT NULL,
    run integer NOT NULL CHECK (run > 0),
    depth integer NOT NULL CHECK (depth >= 0),
    detached boolean NOT NULL,
    call bytea NOT NULL CHECK (octet_length(call) = 16),
    workflow text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL
);

COMMENT ON COLUMN parent.depth IS 'how many attached children in a row it is the last of';

-- Calls that wait for the end of an instance.
CREATE TABLE watcher (
    instance uuid NOT NULL,
    caller uuid NOT NULL,
    run integer NOT NULL CHECK (run > 0),
    call bytea NOT NULL CHECK (octet_length(call) = 16),
    PRIMARY KEY (instance, caller, run, call)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Tokens of hooks that somebody owns (rule H36): the key guards that. A row is the owner's, and changed by its decisions alone. When
-- that has ended, what has no retention is deleted; the others are kept, and from the end of the retention on they are deleted, or
-- replaced by whoever claims the token. Run and position say which hook it is: those of the entry that opened it, zero for one that the
-- instance was started with.
CREATE TABLE hook (
    instance uuid NOT NULL,
    since bigint NOT NULL,
    retain_until bigint,
    position bigint NOT NULL CHECK (position >= 0),
    run integer NOT NULL CHECK (run >= 0),
    ended boolean NOT NULL,
    unheard boolean NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    from_workflow text COLLATE "C",
    from_name text COLLATE "C",
    metadata text,
    webhook bytea,
    schema text,
    PRIMARY KEY (namespace, token),
    CONSTRAINT what_is_kept_has_a_time CHECK (NOT ended OR retain_until IS NOT NULL),
    CONSTRAINT whom_it_was_taken_from_is_whole CHECK ((from_workflow IS NULL) = (from_name IS NULL))
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
COMMENT ON COLUMN hook.ended IS 'the owner has ended and keeps it by its retention alone';
COMMENT ON COLUMN hook.unheard IS 'a forced claim has moved it to the owner, who has not relied on it otherwise than by the answer';
COMMENT ON COLUMN hook.webhook IS 'MessagePack: what it answers whoever resumes it over HTTP without an access token';
COMMENT ON COLUMN hook.schema IS 'JSON Schema that every payload fits before it is kept';
CREATE INDEX hook_by_instance ON hook (instance);
CREATE INDEX hook_kept ON hook (retain_until) WHERE ended;

-- Remote steps without an outcome (rule W39). `body` is MessagePack: call, position and what to run.
CREATE TABLE remote_step (
    instance uuid NOT NULL,
    epoch bigint NOT NULL CHECK (epoch >= 0),
    first_at bigint,
    granted_at bigint,
    attempt integer NOT NULL CHECK (attempt > 0),
    call bytea NOT NULL CHECK (octet_length(call) = 16),
    body bytea NOT NULL,
    PRIMARY KEY (instance, call)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- What instances can be found by (rule P37): only those that have attributes have rows. The value is canonical JSON.
CREATE TABLE attribute (
    instance uuid NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (instance, name)
) WITH (fillfactor = 90);
-- The id is in it as bytes for the same reason as in instance_by_workflow.
CREATE INDEX attribute_by_value ON attribute (namespace, name, value, uuid_send(instance));

-- What workflows have published last (rule P37): only those that publish have a row.
CREATE TABLE published (
    instance uuid PRIMARY KEY,
    at bigint NOT NULL,
    run integer NOT NULL CHECK (run > 0),
    state text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- Why instances are parked: what people are asked about instances as a whole. What they are asked about a call is a wait.
CREATE TABLE attention (
    instance uuid PRIMARY KEY,
    since bigint NOT NULL,
    code text COLLATE "C" NOT NULL,
    message text NOT NULL,
    changed bytea
);
COMMENT ON COLUMN attention.changed IS 'MessagePack of the step whose input has changed, where a person may choose its key; otherwise null';
CREATE INDEX attention_by_age ON attention (since);

-- Pauses, cancels and rollbacks in force: one row an open instance that has one. `cancel_position` is the entry that says so,
-- `cancel_rollback` whether compensations run then, `compensating_at` since when the body is over and they run, or are to.
CREATE TABLE control (
    instance uuid PRIMARY KEY,
    paused_at bigint,
    cancel_position bigint CHECK (cancel_position > 0),
    cancel_until bigint,
    cancel_rollback boolean NOT NULL DEFAULT false,
    compensating_at bigint,
    CONSTRAINT control_says_something
        CHECK (paused_at IS NOT NULL OR cancel_position IS NOT NULL OR compensating_at IS NOT NULL),
    CONSTRAINT cancel_is_whole CHECK (cancel_position IS NOT NULL OR (cancel_until IS NULL AND NOT cancel_rollback))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX control_by_deadline ON control (cancel_until) WHERE cancel_until IS NOT NULL;

-- One row an ended instance: by it those of one final status are listed, and deleted when their time has come (rule P32). It is
-- apart from the head so that a head's updates stay heap-only to its end.
CREATE TABLE ended (
    instance uuid PRIMARY KEY,
    delete_at bigint NOT NULL,
    status smallint NOT NULL CHECK (status BETWEEN 1 AND 4),
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    tx bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint
);
COMMENT ON COLUMN ended.tx IS 'the transaction that wrote the end: by it ends are told in an order that no later commit can change';
-- Rows come in about this order, so that a summary of each few pages is enough, and costs the writer nothing.
CREATE INDEX ended_by_tx ON ended USING brin (tx) WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX ended_by_time ON ended (delete_at);
-- Lists, newest first; and of what went wrong in one workflow, which are few rows, however many others there are.
CREATE INDEX ended_by_status ON ended (namespace, status, instance) WHERE status > 0;
CREATE INDEX ended_failed ON ended (namespace, workflow, status, instance) WHERE status > 1;

-- Instances whose journals of runs below a number are to be removed, a part at a time: deleted ones, and those that have gone
-- on as new.
CREATE TABLE journal_cut (
    instance uuid NOT NULL,
    below integer NOT NULL,
    PRIMARY KEY (instance, below)
);

-- First answers of control operations (rule W4).
CREATE TABLE operation (
    instance uuid NOT NULL,
    decided_at bigint NOT NULL,
    operation text COLLATE "C" NOT NULL,
    answer text COLLATE "C" NOT NULL,
    PRIMARY KEY (instance, operation)
);

-- Lifecycle messages that the broker has not confirmed.
CREATE TABLE outbox (
    instance uuid NOT NULL,
    created_at bigint NOT NULL,
    run integer NOT NULL,
    routing_key text NOT NULL,
    message_id text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (instance, run)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_by_time ON outbox (created_at);

-- Worker processes. The time is kept here once for all that one holds (rule W5).
CREATE TABLE session (
    id uuid PRIMARY KEY,
    opened_at bigint NOT NULL,
    heard_at bigint NOT NULL,
    ended_at bigint,
    counts boolean,
    slots bigint NOT NULL,
    instances bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    build text NOT NULL,
    inbox text NOT NULL,
    host text NOT NULL,
    workflows text[] COLLATE "C" NOT NULL,
    pinned text[] COLLATE "C" NOT NULL,
    pools text[] COLLATE "C" NOT NULL,
    functions text[] COLLATE "C" NOT NULL,
    CONSTRAINT ended_says_whether_it_counts CHECK ((ended_at IS NULL) = (counts IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX session_live ON session (id) WHERE ended_at IS NULL;
CREATE INDEX session_ended ON session (ended_at) WHERE ended_at IS NOT NULL;

-- What the running attempts of a session have told of their progress, as MessagePack: for those that come after them.
CREATE TABLE session_progress (
    session uuid PRIMARY KEY REFERENCES session ON DELETE CASCADE,
    body bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- One row: since when the way of heartbeats has been open, and its own last beat (rule W8).
CREATE TABLE session_clock (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    last_beat_at bigint NOT NULL,
    open_since bigint NOT NULL,
    gap bigint NOT NULL,
    coordinator uuid
) WITH (fillfactor = 50);
INSERT INTO session_clock (last_beat_at, open_since, gap) VALUES (0, 0, 0);

-- Duties that one coordinator at a time has.
CREATE TABLE duty (
    name text COLLATE "C" PRIMARY KEY,
    coordinator uuid NOT NULL,
    until_at bigint NOT NULL
) WITH (fillfactor = 50);

-- Coordinators that are there, each noted every few seconds: for people, who see versions and clocks that differ.
CREATE TABLE coordinator (
    id uuid PRIMARY KEY,
    heard_at bigint NOT NULL,
    version text NOT NULL,
    clock_offset bigint
) WITH (fillfactor = 50);
COMMENT ON COLUMN coordinator.clock_offset IS 'how far its own clock is behind, in microseconds';

-- Messages that can never be accepted, kept for 30 days (rule W17).
CREATE TABLE rejected (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    body_bytes bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C",
    app_id text COLLATE "C",
    message_id text COLLATE "C",
    code text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    headers text NOT NULL,
    body bytea NOT NULL
);
CREATE UNIQUE INDEX rejected_once ON rejected (namespace, app_id, message_id) WHERE message_id IS NOT NULL;
-- With what their sizes are summed from, so that measuring reads no record.
CREATE INDEX rejected_by_namespace ON rejected (namespace, at) INCLUDE (body_bytes);
CREATE INDEX rejected_by_time ON rejected (at);

-- What the auditor has found and mended (promise 5), kept for 30 days.
CREATE TABLE breach (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    instance uuid NOT NULL,
    run integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    message text NOT NULL
);
CREATE INDEX breach_by_namespace ON breach (namespace, at);
CREATE INDEX breach_by_time ON breach (at);

-- Operations on many instances, kept for 30 days after they are over (rule P33). `cursor` is the instance after which one goes on,
-- in a walk from the newest to the oldest; it changes with each page, so that two coordinators do not count one page twice.
CREATE TABLE bulk (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    state smallint NOT NULL CHECK (state BETWEEN 0 AND 2),
    cursor uuid,
    looked_at bigint NOT NULL,
    matched bigint NOT NULL,
    done bigint NOT NULL,
    refused bigint NOT NULL,
    request text NOT NULL,
    begun_by text NOT NULL,
    PRIMARY KEY (namespace, id),
    CONSTRAINT what_is_over_has_a_time CHECK ((state = 0) = (ended_at IS NULL))
) WITH (fillfactor = 50);
COMMENT ON COLUMN bulk.state IS '0 running, 1 done, 2 stopped';
CREATE INDEX bulk_running ON bulk (created_at) WHERE state = 0;
CREATE INDEX bulk_by_time ON bulk (namespace, created_at);

-- Where the versions of each schedule begin: so far from the others that no version of one that was deleted comes again under its id.
CREATE SEQUENCE schedule_version INCREMENT BY 4294967296;

-- Schedules (rules S1 to S16): what each starts and when, and where it stands. A row changes twice for each of its due times, and by people;
-- `version` counts the changes, and each is made to the version that was read. `wake_at` is when to look at it again.
CREATE TABLE schedule (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    wake_at bigint,
    definition text NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (namespace, id)
) WITH (fillfactor = 50);
COMMENT ON COLUMN schedule.changed_at IS 'when a person changed it last';
COMMENT ON COLUMN schedule.wake_at IS 'none: nothing is to come, until somebody changes it';
CREATE INDEX schedule_due ON schedule (wake_at, namespace, id) WHERE wake_at IS NOT NULL;

-- The audit log: who did what to which instance, schedule, bulk operation or access token, and what came of it; kept for 90 days, also of
-- what was deleted (rules A6, S15). A row is written in the transaction that does it. `namespace` is * for what belongs to none.
CREATE TABLE action (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    who text COLLATE "C" NOT NULL,
    came_from text NOT NULL,
    named text,
    outcome text COLLATE "C" NOT NULL,
    detail text
);
COMMENT ON COLUMN action.named IS 'who asked for it as the request says, which nobody has checked';
CREATE INDEX action_by_namespace ON action (namespace, number);
CREATE INDEX action_by_target ON action (namespace, target, number);
CREATE INDEX action_by_time ON action (at);

-- Access tokens: what opens the HTTP API. `hash` is of the secret, which nobody has but the token's owner. `namespace` is * for all.
-- Kept for 90 days after it opens nothing any more.
CREATE TABLE access_token (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    role text COLLATE "C" NOT NULL CHECK (role IN ('viewer', 'producer', 'operator', 'admin')),
    namespace text COLLATE "C" NOT NULL,
    hash bytea NOT NULL CHECK (length(hash) = 32),
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    revoked_by text,
    used_at bigint,
    CONSTRAINT who_revoked_is_known CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) WITH (fillfactor = 50);
COMMENT ON COLUMN access_token.used_at IS 'about when it was used last';
