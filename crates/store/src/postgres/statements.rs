//! The hot statements. Each connection prepares them when it is made; a test asserts their plans on empty and on full tables
//! (rule W37): keys are found by `= ANY`, below a list with LIMIT 1, or by ctid, and rows are inserted from `unnest`, so that
//! no join can turn round and read a whole table.

use futures::future::try_join_all;

/// A statement and the tables that it may only reach by key.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// What it is called in the plans' test.
    pub name: &'static str,
    /// Its text.
    pub sql: &'static str,
}

macro_rules! statements {
    ($($name:ident = $sql:expr;)*) => {
        $(pub(super) const $name: &str = $sql;)*

        /// Every hot statement.
        #[doc(hidden)]
        #[must_use]
        pub fn hot_statements() -> Vec<Statement> {
            vec![$(Statement { name: stringify!($name), sql: $name }),*]
        }
    };
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("sql/", $name, ".sql"))
    };
}

statements! {
    CLOCK = "SELECT clock_timestamp()";
    LOCK_HEADS = file!("lock_heads");
    SIDES = file!("sides");
    CALLS = file!("calls");
    OPERATIONS = file!("operations");
    FIRSTS = file!("firsts");
    EXPIRIES = "SELECT instance, delete_at FROM ended WHERE instance = ANY($1::uuid[])";
    NAMES = file!("names");
    MESSAGES = file!("messages");
    LASTS = file!("lasts");
    PARENTS = "SELECT instance, caller, run, call, workflow, name, detached, depth FROM parent WHERE instance = ANY($1::uuid[])";
    LETTERS_LOCK = file!("letters_lock");
    HOOKS = file!("hooks");
    HOOKS_OF = file!("hooks_of");
    START_HOOKS = file!("start_hooks");
    EVENT_IDS = file!("event_ids");
    EVENT_REPLY = file!("event_reply");
    REPLY = file!("reply");
    EVENT_UNREAD = file!("event_unread");
    EVENT_WAITERS = file!("event_waiters");
    EVENT_RETURNS = file!("event_returns");
    EVENT_RETURN_WAITERS = file!("event_return_waiters");
    ELSEWHERE = "SELECT clock_timestamp(), ARRAY(SELECT id FROM instance WHERE id = ANY($1::uuid[]))";

    HEADS_UPDATE = file!("heads_update");
    HEADS_INSERT = file!("heads_insert");
    PINS = file!("pins");
    NAMES_INSERT = "INSERT INTO instance_name (namespace, workflow, id, instance, fingerprint)
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::bytea[])";
    MESSAGES_INSERT = "INSERT INTO message_decision (decided_at, namespace, workflow, app_id, message_id, id, answer)
        SELECT $1::bigint, * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])";
    JOURNAL_INSERT = "INSERT INTO journal (instance, run, position, at, kind, call, entry, payload, reference)
        SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bytea[], $7::bytea[],
                             $8::text[], $9::text[])";
    LEASE_END = "DELETE FROM lease
        WHERE instance = ANY($1::uuid[]) AND subject = '\\x00000000000000000000000000000000'";
    LEASE_DELETE = file!("lease_delete");
    LEASE_CLEAR = "DELETE FROM lease
        WHERE instance = ANY($1::uuid[]) AND subject > '\\x00000000000000000000000000000000'
        RETURNING instance, subject, session, epoch";
    LEASE_INSERT = "INSERT INTO lease (instance, subject, session, epoch)
        SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::uuid[], $4::bigint[])";
    READY_END = "DELETE FROM ready
        WHERE instance = ANY($1::uuid[]) AND subject = '\\x00000000000000000000000000000000'";
    READY_LOCK = file!("ready_lock");
    READY_DELETE = file!("ready_delete");
    READY_CLEAR = "DELETE FROM ready
        WHERE instance = ANY($1::uuid[]) AND subject > '\\x00000000000000000000000000000000'";
    READY_INSERT = "INSERT INTO ready (instance, subject, kind, namespace, queue, ready_at, offered_at)
        SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::smallint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])";
    WAIT_DELETE = file!("wait_delete");
    WAIT_CLEAR = "DELETE FROM wait WHERE instance = ANY($1::uuid[])";
    WAIT_INSERT = file!("wait_insert");
    AWAITED_DELETE = file!("awaited_delete");
    EVENTS_DELETE = "DELETE FROM event WHERE instance = ANY($1::uuid[])";
    AWAITED_CLEAR = "DELETE FROM awaited WHERE instance = ANY($1::uuid[])";
    AWAITED_INSERT = "INSERT INTO awaited (instance, type, key, opened, call)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bytea[])
        ON CONFLICT (instance, type, key, opened) DO NOTHING";
    EVENT_INSERT = file!("event_insert");
    EVENT_DELIVERY = file!("event_delivery");
    REMOTE_DELETE = file!("remote_step_delete");
    REMOTE_CLEAR = "DELETE FROM remote_step WHERE instance = ANY($1::uuid[])";
    REMOTE_INSERT = "INSERT INTO remote_step (instance, call, body, attempt, epoch, first_at, granted_at)
        SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::bytea[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[])";
    ATTENTION_DELETE = "DELETE FROM attention WHERE instance = ANY($1::uuid[])";
    ATTENTION_INSERT = "INSERT INTO attention (instance, since, code, message, changed)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bytea[])";
    OPERATION_INSERT = "INSERT INTO operation (decided_at, instance, operation, answer)
        SELECT $1::bigint, * FROM unnest($2::uuid[], $3::text[], $4::text[])";
    ACTION_INSERT = "INSERT INTO action (at, namespace, target, operation, who, came_from, named, outcome, detail)
        SELECT $1::bigint, * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])";
    OUTBOX_INSERT = "INSERT INTO outbox (instance, run, routing_key, message_id, body, created_at)
        SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::bigint[])";
    OUTBOX_DELETE = file!("outbox_delete");
    WAITS_DUE = "UPDATE wait SET due_at = $2::bigint WHERE instance = ANY($1::uuid[])
        AND coalesce(due_at, $2::bigint) < $2::bigint";
    CONTROL_DELETE = "DELETE FROM control WHERE instance = ANY($1::uuid[])";
    CONTROL_INSERT = "INSERT INTO control (instance, paused_at, cancel_position, cancel_until,
            cancel_rollback, compensating_at)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::bigint[])";
    ENDED_DELETE = "DELETE FROM ended WHERE instance = ANY($1::uuid[])";
    ENDED_INSERT = "INSERT INTO ended (instance, delete_at, status, namespace, workflow)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::text[])";
    ATTRIBUTES_CLEAR = "DELETE FROM attribute WHERE instance = ANY($1::uuid[])";
    ATTRIBUTE_DELETE = file!("attribute_delete");
    // One that has the value already is not written again.
    ATTRIBUTE_SET = "INSERT INTO attribute (instance, namespace, name, value)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
        ON CONFLICT (instance, name) DO UPDATE SET value = excluded.value WHERE attribute.value <> excluded.value";
    PUBLISHED_DELETE = "DELETE FROM published WHERE instance = ANY($1::uuid[])";
    PUBLISH = "INSERT INTO published (instance, at, run, state)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::text[])
        ON CONFLICT (instance) DO UPDATE SET at = excluded.at, run = excluded.run, state = excluded.state
        WHERE published.state <> excluded.state OR published.run <> excluded.run";
    HEADS_DELETE = "DELETE FROM instance WHERE id = ANY($1::uuid[])";
    READY_ALL_DELETE = "DELETE FROM ready WHERE instance = ANY($1::uuid[])";
    OPERATIONS_DELETE = "DELETE FROM operation WHERE instance = ANY($1::uuid[])";
    NAMES_DELETE = file!("name_delete");
    MESSAGES_DELETE = file!("message_delete");
    MESSAGES_OUTLIVE = file!("message_outlive");
    JOURNAL_CUT = "INSERT INTO journal_cut (instance, below) SELECT * FROM unnest($1::uuid[], $2::integer[])";

    LETTERS_DELETE = "DELETE FROM mailbox WHERE number = ANY($1::bigint[])";
    LETTERS_INSERT = file!("letters_insert");
    CHILD_INSERT = "INSERT INTO child (instance, run, call, namespace, workflow, name, detached, over)
        SELECT *, false FROM unnest($1::uuid[], $2::integer[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::boolean[])";
    CHILD_OVER = file!("child_over");
    CASCADE = file!("cascade");
    CHILDREN_CUT = file!("children_cut");
    PARENT_INSERT = "INSERT INTO parent (instance, caller, run, call, workflow, name, detached, depth)
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::bytea[], $5::text[], $6::text[], $7::boolean[], $8::integer[])";
    WATCHERS_CUT = file!("watchers_cut");
    WATCHER_INSERT = "INSERT INTO watcher (instance, caller, run, call)
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::bytea[])";
    CONCLUDE = file!("conclude");
    WATCHERS_DELETE = "DELETE FROM watcher WHERE instance = ANY($1::uuid[])";
    CHILDREN_DELETE = "DELETE FROM child WHERE instance = ANY($1::uuid[])";
    PARENT_DELETE = "DELETE FROM parent WHERE instance = ANY($1::uuid[])";
    LETTERS = file!("letters");

    HOOKS_FREE = file!("hooks_free");
    HOOKS_KEEP = file!("hooks_keep");
    HOOKS_DROP = file!("hooks_drop");
    HOOKS_DELETE = file!("hooks_delete");
    HOOK_DELETE = file!("hook_delete");
    HOOK_INSERT = file!("hook_insert");
    HOOK_COUNTS = file!("hook_counts");

    JOURNAL = file!("journal");
    DUE = file!("due");
    OFFER_SCAN = file!("offer_scan");
    OFFER_MARK = file!("offer_mark");
    SESSION_LEASES = file!("session_leases");
}

/// Prepares them all, in one round trip.
pub(super) async fn prepare(client: &deadpool_postgres::ClientWrapper) -> Result<(), tokio_postgres::Error> {
    let statements = hot_statements();
    try_join_all(statements.iter().map(|statement| client.prepare_cached(statement.sql))).await?;
    Ok(())
}
