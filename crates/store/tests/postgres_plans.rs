//! Proves rule W37 on this server's planner: no hot statement reads a whole table, neither when the tables were vacuumed while
//! empty nor when they are full. Not: how fast they are, or what another major version plans.

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "only the database is used here")]
mod fixture;

use everstep_store::{
    StatusWord,
    postgres::{
        PostgresSettings, attention_list, attribute_list, ended_lists, ends_list, hot_statements,
        ledger_searches, migrate, open_list, prefix_list, suspects_page,
    },
};
use tokio_postgres::{Client, NoTls};

/// What of each index a search must name: enough to find few rows, however many an installation has. Where the first column is
/// a namespace or a workflow, that alone is nearly the whole index.
const SELECTIVE: [(&str, &[&str]); 38] = [
    ("instance_pkey", &["id"]),
    ("instance_name_pkey", &["namespace", "workflow", "id"]),
    ("message_decision_pkey", &["namespace", "workflow", "app_id", "message_id"]),
    ("message_decision_by_instance", &["id"]),
    ("journal_pkey", &["instance"]),
    ("journal_by_reference", &["reference"]),
    ("journal_by_key_choice", &["instance"]),
    ("lease_pkey", &["instance"]),
    ("lease_by_session", &["session"]),
    ("ready_pkey", &["instance"]),
    ("ready_by_queue", &["namespace", "queue"]),
    ("wait_pkey", &["instance"]),
    ("wait_by_due", &["due_at"]),
    ("wait_by_question", &["since"]),
    ("attention_by_age", &["since"]),
    ("remote_step_pkey", &["instance"]),
    ("attention_pkey", &["instance"]),
    ("operation_pkey", &["instance"]),
    ("awaited_pkey", &["instance"]),
    ("event_pkey", &["instance"]),
    ("event_by_id", &["instance"]),
    ("event_unread", &["instance", "type"]),
    ("event_unread_by_key", &["instance", "type", "key"]),
    ("event_by_call", &["instance", "call"]),
    ("control_pkey", &["instance"]),
    ("ended_pkey", &["instance"]),
    ("attribute_pkey", &["instance"]),
    ("published_pkey", &["instance"]),
    ("journal_cut_pkey", &["instance"]),
    ("outbox_pkey", &["instance"]),
    ("mailbox_pkey", &["number"]),
    ("mailbox_starts", &["namespace", "workflow", "name"]),
    ("child_pkey", &["instance"]),
    ("parent_pkey", &["instance"]),
    ("watcher_pkey", &["instance"]),
    ("session_pkey", &["id"]),
    ("hook_pkey", &["namespace", "token"]),
    ("hook_by_instance", &["instance"]),
];

/// A database with the schema, which goes when the first of the two does, and a connection to it.
async fn migrated() -> (fixture::Database, Client) {
    let database = fixture::Database::create().await;
    migrate(&database.url).await.expect("the schema is made");
    let config = PostgresSettings::new(&database.url).config().expect("the URL is good");
    let (client, connection) = config.connect(NoTls).await.expect("it connects");
    tokio::spawn(connection);
    (database, client)
}

#[tokio::test]
async fn w37_no_hot_statement_reads_a_whole_table() {
    let (_database, client) = migrated().await;

    let mut problems = Vec::new();
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    check_all(&client, "empty", &mut problems).await;
    client.batch_execute(FILL).await.expect("it fills");
    check_all(&client, "filled since", &mut problems).await;
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    check_all(&client, "full", &mut problems).await;
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// Among 20,000 complete instances, some errored: their lists are found by their index, not by walking back.
#[tokio::test]
async fn p28_a_list_of_one_final_status_has_its_index() {
    let (_database, client) = migrated().await;
    client.batch_execute(FILL).await.expect("it fills");
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    for (status, either) in [
        (StatusWord::Errored, [vec!["ended_by_status"], vec!["ended_failed"]]),
        (StatusWord::Terminated, [vec!["ended_by_status"], vec!["ended_failed"]]),
        // Nearly all are complete, so that walking back by any index finds them at once.
        (
            StatusWord::Complete,
            [vec!["ended_by_status", "ended_pkey"], vec!["ended_by_status", "ended_pkey"]],
        ),
    ] {
        for (list, indexes) in ended_lists(status).into_iter().zip(either) {
            let workflow = if list.contains("i.workflow") { "orders" } else { "" };
            client
                .batch_execute(&format!("DEALLOCATE ALL; PREPARE list AS {list}"))
                .await
                .expect("it is prepared");
            let max = "ffffffff-ffff-ffff-ffff-ffffffffffff";
            let explain = format!("EXPLAIN EXECUTE list('shop', '{max}', 51, '{workflow}')");
            let plan = client.query(&explain, &[]).await.expect("it is planned");
            let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(indexes.iter().any(|index| plan.contains(index)), "{status:?} {workflow}: {plan}");
            assert!(!plan.contains("Seq Scan"), "{status:?} {workflow}: {plan}");
        }
    }
}

/// A head that an index would cover in what changes could not be updated in place: each update would write every index anew.
#[tokio::test]
async fn w24_no_index_of_the_heads_covers_what_changes() {
    let update =
        hot_statements().into_iter().find(|statement| statement.name == "HEADS_UPDATE").expect("it is there");
    let (_, set) = update.sql.split_once("SET ").expect("it sets columns");
    let (set, _) = set.split_once("FROM unnest").expect("from lists");
    let changing: Vec<&str> =
        set.split(',').filter_map(|part| Some(part.split_once(" = ")?.0.trim())).collect();
    assert!(changing.contains(&"status") && changing.contains(&"position"), "{changing:?}");
    let (_database, client) = migrated().await;
    let indexes = "SELECT indexdef FROM pg_indexes WHERE tablename = 'instance'";
    let indexes = client.query(indexes, &[]).await.expect("they are listed");
    assert!(indexes.len() > 1);
    for index in indexes {
        let index: String = index.get(0);
        let words: Vec<&str> = index.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let covered: Vec<&&str> = changing.iter().filter(|column| words.contains(column)).collect();
        assert!(covered.is_empty(), "{covered:?} in {index}");
    }
}

/// What is open is found by the keys of the side tables, each of which is read backwards from the cursor.
#[tokio::test]
async fn p40_the_list_of_what_is_open_reads_no_whole_table() {
    let (_database, client) = migrated().await;
    client.batch_execute(FILL).await.expect("it fills");
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    client.batch_execute(&format!("PREPARE list AS {}", open_list())).await.expect("it is prepared");
    let explain = "EXPLAIN EXECUTE list('shop', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 101, '')";
    let plan = client.query(explain, &[]).await.expect("it is planned");
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let mut problems = read_whole(&plan);
    problems.extend(unnamed(open_list(), &plan));
    assert!(problems.is_empty(), "{problems:?}\n{}", plan.join("\n"));
    assert!(
        !plan.iter().any(|line| line.contains("Sort") && line.contains("rows=20000")),
        "{}",
        plan.join("\n")
    );
}

/// Each workflow is one range of the index of ids.
#[tokio::test]
async fn the_list_by_the_beginning_of_ids_reads_no_whole_table() {
    let (_database, client) = migrated().await;
    client.batch_execute(FILL).await.expect("it fills");
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    client.batch_execute(&format!("PREPARE list AS {}", prefix_list())).await.expect("it is prepared");
    for workflow in ["", "orders"] {
        let explain = format!(
            "EXPLAIN (ANALYZE, COSTS OFF) EXECUTE list('shop', '{workflow}', 'o-1999', 'o-1999~', 50001)"
        );
        let plan = client.query(&explain, &[]).await.expect("it is planned");
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let all = plan.join("\n");
        assert!(!all.contains("Seq Scan"), "{all}");
        assert!(all.contains("id >= ") && all.contains("id < "), "{all}");
        // o-1999 and o-19990 to o-19999.
        assert!(plan[0].contains("rows=11 "), "{all}");
        assert!(plan.iter().all(|line| !line.contains("Rows Removed") || line.ends_with(": 0")), "{all}");
        assert!(unnamed(prefix_list(), &plan).is_empty(), "{all}");
    }
}

/// Whoever listens to ends asks twice a second: what is new is found however many have ended before.
#[tokio::test]
async fn new_ends_are_found_by_their_transactions() {
    let (_database, client) = migrated().await;
    client.batch_execute(FILL).await.expect("it fills");
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    client.batch_execute(&format!("PREPARE list AS {}", ends_list())).await.expect("it is prepared");
    let none = "'00000000-0000-0000-0000-000000000000'";
    let explain =
        format!("EXPLAIN EXECUTE list('shop', 1000000000, {none}, 2000000000, '', 0::smallint, 51)");
    let plan = client.query(&explain, &[]).await.expect("it is planned");
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    assert!(unnamed(ends_list(), &plan).is_empty(), "{}", plan.join("\n"));
    assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{}", plan.join("\n"));
}

/// What people are asked is found by when it was asked, however many instances wait for something else.
#[tokio::test]
async fn l08_the_list_of_questions_reads_no_whole_table() {
    let (_database, client) = migrated().await;
    client.batch_execute(FILL).await.expect("it fills");
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    client.batch_execute(&format!("PREPARE list AS {}", attention_list())).await.expect("it is prepared");
    let none = "'00000000-0000-0000-0000-000000000000', decode(repeat('00', 16), 'hex')";
    let explain = format!("EXPLAIN EXECUTE list('shop', '', '', 0, 0, {none}, 51)");
    let plan = client.query(&explain, &[]).await.expect("it is planned");
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let mut problems = read_whole(&plan);
    problems.extend(unnamed(attention_list(), &plan));
    assert!(problems.is_empty(), "{problems:?}\n{}", plan.join("\n"));
}

/// The auditor looks at a page of instances, whatever else there is. The mailbox alone is read whole, for the few that no key finds.
#[tokio::test]
async fn w42_the_auditor_reads_its_page() {
    let (_database, client) = migrated().await;
    for filled in [false, true] {
        if filled {
            client.batch_execute(FILL).await.expect("it fills");
        }
        client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
        client.batch_execute(&format!("PREPARE page AS {}", suspects_page())).await.expect("it is prepared");
        let explain = "EXPLAIN EXECUTE page('00000000-0000-0000-0000-000000000000', 500, 60000000)";
        let plan = client.query(explain, &[]).await.expect("it is planned");
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let mut problems = read_whole(&plan);
        problems.extend(unnamed(suspects_page(), &plan));
        problems.retain(|problem| !problem.contains("mailbox"));
        assert!(problems.is_empty(), "filled {filled}: {problems:?}\n{}", plan.join("\n"));
        client.batch_execute("DEALLOCATE page").await.expect("it goes");
    }
}

/// An auditor's searches read what they find.
#[tokio::test]
async fn l14_searches_of_the_ledger_read_no_whole_table() {
    let (_database, client) = migrated().await;
    client.batch_execute(FILL).await.expect("it fills");
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    let given = ["'00000000-0000-0000-0000-000000000000', 1, 0, 100", "'shop', 'ch_1', 100"];
    for (search, given) in ledger_searches().into_iter().zip(given) {
        client.batch_execute(&format!("PREPARE search AS {search}")).await.expect("it is prepared");
        let plan = client.query(&format!("EXPLAIN EXECUTE search({given})"), &[]).await;
        let plan: Vec<String> = plan.expect("it is planned").iter().map(|row| row.get(0)).collect();
        let mut problems = read_whole(&plan);
        problems.extend(unnamed(search, &plan));
        assert!(problems.is_empty(), "{problems:?}\n{}", plan.join("\n"));
        client.batch_execute("DEALLOCATE search").await.expect("it goes");
    }
}

#[tokio::test]
async fn p37_a_list_by_attributes_is_found_by_their_index() {
    let (_database, client) = migrated().await;
    client.batch_execute(FILL).await.expect("it fills");
    client.batch_execute("VACUUM ANALYZE").await.expect("it vacuums");
    client.batch_execute(&format!("PREPARE list AS {}", attribute_list())).await.expect("it is prepared");
    let max = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    for workflow in ["", "orders"] {
        let of = format!("'shop', '{max}', 51, '{workflow}', 'a', '1', ARRAY['a', 'b'], ARRAY['1', '1']");
        let plan = client.query(&format!("EXPLAIN EXECUTE list({of})"), &[]).await.expect("it is planned");
        let plan = plan.iter().map(|row| row.get(0)).collect::<Vec<String>>().join("\n");
        assert!(plan.contains("attribute_by_value"), "{plan}");
        assert!(!plan.contains("Seq Scan"), "{plan}");
    }
}

async fn check_all(client: &Client, when: &str, problems: &mut Vec<String>) {
    for statement in hot_statements() {
        client.batch_execute("DEALLOCATE ALL").await.expect("nothing is prepared");
        client.batch_execute(&format!("PREPARE hot AS {}", statement.sql)).await.expect("it is prepared");
        let count = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'hot'";
        let count: i32 = client.query_one(count, &[]).await.expect("it is there").get(0);
        let nulls = vec!["NULL"; count as usize].join(", ");
        let explain = if count == 0 {
            "EXPLAIN EXECUTE hot".to_owned()
        } else {
            format!("EXPLAIN EXECUTE hot({nulls})")
        };
        let plan = client.query(&explain, &[]).await.expect("it is planned");
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        for problem in read_whole(&plan).into_iter().chain(unnamed(statement.sql, &plan)) {
            problems.push(format!("{} ({when}): {problem}\n{}", statement.name, plan.join("\n")));
        }
    }
}

fn is_node(line: &str) -> bool {
    line.contains("(cost=")
}

/// The index that a node of a plan reads.
fn index_of(line: &str) -> Option<&str> {
    let after = ["Bitmap Index Scan on ", "Index Scan using ", "Index Only Scan using ", "Backward using "];
    after.iter().find_map(|after| line.split_once(after)?.1.split_whitespace().next())
}

/// The nodes of a plan that read a whole table or index.
fn read_whole(plan: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in plan.iter().enumerate().filter(|(_, line)| is_node(line)) {
        let rest = plan[at + 1..].iter().take_while(|line| !is_node(line));
        let conditions: Vec<&str> = rest.map(|line| line.trim()).collect();
        let searched = |column: &str| {
            conditions
                .iter()
                .any(|line| line.starts_with("Index Cond:") && line.contains(&format!("({column} ")))
        };
        let good = if line.contains("Seq Scan on") {
            false
        } else if line.contains("Tid Scan on") {
            conditions.iter().any(|line| line.starts_with("TID Cond:"))
        } else if let Some(index) = index_of(line) {
            let columns =
                SELECTIVE.iter().find(|(name, _)| *name == index).map_or(&[][..], |(_, columns)| *columns);
            !columns.is_empty() && columns.iter().all(|column| searched(column))
        } else {
            true
        };
        if !good {
            problems.push(line.trim().to_owned());
        }
    }
    problems
}

/// The indexes of a plan that its statement does not name in its comment: a new index must not change the plan of an old
/// statement unseen. One without a comment uses primary keys.
fn unnamed(sql: &str, plan: &[String]) -> Vec<String> {
    let comment: Vec<&str> = sql.lines().map_while(|line| line.strip_prefix("-- ")).collect();
    let named = comment
        .iter()
        .find_map(|line| line.strip_prefix("Index: ").or_else(|| line.strip_prefix("Indexes: ")));
    let named: Vec<&str> =
        named.unwrap_or_default().split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let used = plan.iter().filter(|line| is_node(line)).filter_map(|line| index_of(line));
    let unnamed = used
        .filter(|index| if comment.is_empty() { !index.ends_with("_pkey") } else { !named.contains(index) });
    unnamed.map(|index| format!("{index} is not named in its comment")).collect()
}

#[test]
fn the_reader_of_plans_sees_what_is_wrong() {
    let plan = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let turned = "Nested Loop  (cost=0.12..8.16 rows=1)\n  ->  Index Scan using ready_pkey on ready r  (cost=0.12..8.14 rows=1)\n\
                  \x20 ->  Function Scan on unnest k  (cost=0.00..0.10 rows=10)\n        Index Cond: (instance = 1)";
    assert_eq!(read_whole(&plan(turned)).len(), 1);
    let second = "Index Scan using ready_pkey on ready  (cost=0.12..8.14 rows=1)\n  Index Cond: (subject = '\\x00'::bytea)";
    assert_eq!(read_whole(&plan(second)).len(), 1);
    assert_eq!(read_whole(&plan("Seq Scan on ready  (cost=0.12..8.14 rows=1)")).len(), 1);
    let good = "Index Scan using ready_pkey on ready  (cost=0.12..8.14 rows=1)\n  Index Cond: ((instance = ANY ($1)) AND (subject = $2))";
    assert!(read_whole(&plan(good)).is_empty());
    let unselective = "Index Scan using message_decision_by_instance on message_decision m  (cost=0.12..8.14 rows=1)\n  Index Cond: ((namespace = k.namespace) AND (workflow = k.workflow))";
    assert_eq!(read_whole(&plan(unselective)).len(), 1);
    let unknown = "Bitmap Index Scan on new_index  (cost=0.12..8.14 rows=1)\n  Index Cond: (instance = 1)";
    assert_eq!(read_whole(&plan(unknown)).len(), 1);
    assert_eq!(unnamed("-- Finds.\n-- Index: message_decision_pkey.\nSELECT", &plan(unselective)).len(), 1);
    assert!(unnamed("-- Index: ready_pkey, then Tid Scan.\nSELECT", &plan(good)).is_empty());
    assert!(unnamed("SELECT", &plan(good)).is_empty());
    assert_eq!(unnamed("SELECT", &plan(unselective)).len(), 1);
}

/// 20,000 rows in each table.
const FILL: &str = r"
INSERT INTO instance SELECT gen_random_uuid(), n, 'shop', 'orders', 'o-' || n, 1, 1, 0, 0, 100, 1, 1, 0, 0, 0, 0, 0, 0, NULL
    FROM generate_series(1, 20000) n;
INSERT INTO instance_name SELECT namespace, workflow, name, id, decode(repeat('00', 32), 'hex') FROM instance;
INSERT INTO message_decision SELECT created_at, namespace, workflow, 'app', 'm-' || name, name, 'created' FROM instance;
INSERT INTO journal (instance, run, position, at, kind, entry, payload) SELECT id, 1, 1, 1, 1, '\x00', '{}' FROM instance;
INSERT INTO lease (instance, subject, session, epoch)
    SELECT id, decode(repeat('00', 16), 'hex'), gen_random_uuid(), 1 FROM instance;
INSERT INTO ready (instance, subject, kind, namespace, queue, ready_at)
    SELECT id, decode(repeat('00', 16), 'hex'), 1, namespace, workflow, created_at FROM instance;
INSERT INTO wait (instance, call, kind, since, due_at, call_kind, call_name, call_count)
    SELECT id, decode(repeat('01', 16), 'hex'), 1, 1, created_at, 2, 'nap', 1 FROM instance;
INSERT INTO awaited (instance, opened, call, type, key)
    SELECT id, 2, decode(repeat('02', 16), 'hex'), 'paid', '' FROM instance;
INSERT INTO event (instance, sequence, received_at, unread, type, key, app_id, event_id, fingerprint, payload)
    SELECT id, n, 1, true, 'paid', CASE n WHEN 1 THEN '' ELSE 'k' END, '', 'e-' || n, decode(repeat('00', 32), 'hex'), '{}'
    FROM instance, generate_series(1, 2) n;
INSERT INTO event (instance, sequence, received_at, unread, type, key, app_id, event_id, fingerprint, call, run, position)
    SELECT id, 3, 1, false, 'paid', '', '', 'e-3', decode(repeat('00', 32), 'hex'), decode(repeat('02', 16), 'hex'), 1, 1
    FROM instance;
INSERT INTO remote_step (instance, call, body, attempt, epoch)
    SELECT id, decode(repeat('01', 16), 'hex'), '\x00', 1, 0 FROM instance;
INSERT INTO attention SELECT id, 1, 'broken', 'm' FROM instance;
INSERT INTO operation SELECT id, 1, 'op', 'done' FROM instance;
INSERT INTO control SELECT id, created_at FROM instance;
INSERT INTO ended SELECT id, created_at, CASE WHEN created_at < 50 THEN 2 ELSE 1 END, namespace, workflow FROM instance;
INSERT INTO attribute SELECT id, namespace, n, '1' FROM instance, unnest(ARRAY['a', 'b']) n;
INSERT INTO published SELECT id, 1, 1, '{}' FROM instance;
INSERT INTO journal_cut SELECT id, 1 FROM instance;
INSERT INTO mailbox (written_at, caller, run, kind, call, namespace, workflow, name, body)
    SELECT 1, id, 1, 1, decode(repeat('03', 16), 'hex'), namespace, workflow, name, '\x00' FROM instance;
INSERT INTO child SELECT id, 1, false, false, decode(repeat('03', 16), 'hex'), namespace, workflow, name FROM instance;
INSERT INTO parent SELECT id, id, 1, 1, false, decode(repeat('03', 16), 'hex'), workflow, name FROM instance;
INSERT INTO watcher SELECT id, id, 1, decode(repeat('03', 16), 'hex') FROM instance;
INSERT INTO hook (instance, since, position, run, ended, unheard, namespace, token)
    SELECT id, 1, 0, 0, false, false, namespace, name FROM instance;
INSERT INTO outbox SELECT id, created_at, 1, 'k', 'm', '{}' FROM instance;
";
