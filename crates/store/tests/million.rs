//! What lists find among many instances, in both stores, and how long they take: a line of JSON for each list. It fails if one finds
//! fewer than were put there. Of a million it is a measurement:
//!
//! ```text
//! EVERSTEP_TEST_INSTANCES=1000000 cargo test --release -p everstep-store --test million -- --nocapture --test-threads 1
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "only a part is used here")]
mod fixture;
#[path = "conformance/scene.rs"]
#[allow(dead_code, reason = "only a part is used here")]
mod scene;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use everstep_engine::{Input, start::Start};
use everstep_protocol::{Attribute, InstanceUid};
use everstep_store::{Cursor, Filter, StatusWord, Store};
use fixture::{Fixture, Postgres, Sqlite};
use scene::{Scene, name_key, namespace, on, start, terminate, workflow};

const WORKFLOWS: u64 = 20;
/// Instances of one customer.
const OF_ONE: u64 = 100;
const PAGE: u32 = 50;
const TIMES: usize = 20;
const BATCH: u64 = 1_000;

fn count() -> u64 {
    std::env::var("EVERSTEP_TEST_INSTANCES").map_or(2_000, |count| count.parse().expect("a number"))
}

fn attribute(words: &str) -> Attribute {
    Attribute::from_words(words).unwrap()
}

fn workflow_of(number: u64) -> String {
    format!("workflow-{:02}", number % WORKFLOWS)
}

fn id_of(number: u64) -> String {
    if number.is_multiple_of(1_000) { format!("rare-{number}") } else { format!("order-{number}") }
}

/// One in ten thousand is a VIP's, one in twenty stays open.
fn planned(number: u64) -> Start {
    let mut attributes = vec![
        attribute(&format!("customer=c-{}", number / OF_ONE)),
        attribute(&format!("region=r-{}", number % 5)),
    ];
    if number.is_multiple_of(10_000) {
        attributes.push(attribute("vip=true"));
    }
    Start { attributes, ..start(&workflow_of(number), &id_of(number), "1") }
}

fn stays_open(number: u64) -> bool {
    number.is_multiple_of(20)
}

async fn fill(scene: &Scene, count: u64) {
    for first in (0..count).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(count);
        let starts: Vec<Start> = numbers.clone().map(planned).collect();
        let uids: Vec<InstanceUid> = starts.iter().map(|start| start.uid).collect();
        scene.run(starts.into_iter().map(|start| Input::Start(Box::new(start))).collect()).await;
        let over = numbers.zip(uids).filter(|(number, _)| !stays_open(*number));
        scene.run(over.map(|(_, uid)| on(uid, terminate("over"))).collect()).await;
    }
}

/// What is listed, and how many are to be found at least on the first page and on one far down.
struct List {
    what: &'static str,
    filter: Filter,
    first: usize,
}

fn lists(count: u64) -> Vec<List> {
    let all = || Filter { namespace: namespace(), ..Filter::default() };
    let by =
        |words: &[&str]| Filter { attributes: words.iter().map(|words| attribute(words)).collect(), ..all() };
    let prefix = |prefix: &str| Filter { id_prefix: Some(prefix.to_owned()), ..all() };
    let one = Some(workflow("workflow-07"));
    let page = PAGE as usize;
    let rare = usize::try_from(count / 1_000).unwrap().min(page);
    let vips = usize::try_from(count / 10_000).unwrap().min(page);
    let list = |what, filter, first| List { what, filter, first };
    vec![
        list("newest", all(), page),
        list("newest of a workflow", Filter { workflow: one.clone(), ..all() }, page),
        list("open", Filter { open: true, ..all() }, page),
        list("queued", Filter { status: Some(StatusWord::Queued), ..all() }, page),
        list("terminated", Filter { status: Some(StatusWord::Terminated), ..all() }, page),
        list(
            "terminated of a workflow",
            Filter { status: Some(StatusWord::Terminated), workflow: one.clone(), ..all() },
            page,
        ),
        list("attribute of a fifth", by(&["region=r-3"]), page),
        list("attribute of a hundred", by(&["customer=c-17"]), page),
        list("attribute of one in ten thousand", by(&["vip=true"]), vips),
        list("two attributes, the rare one last", by(&["region=r-0", "vip=true"]), vips),
        list(
            "attribute, terminated, of a workflow",
            Filter { status: Some(StatusWord::Terminated), workflow: one, ..by(&["region=r-2"]) },
            page,
        ),
        list("attribute, queued", Filter { status: Some(StatusWord::Queued), ..by(&["region=r-0"]) }, page),
        list("beginning of a thousandth of the ids", prefix("rare-"), rare),
        list("beginning of a hundred ids", prefix("order-1234"), page.min(1)),
        list("beginning of nearly all ids", prefix("order-"), page),
        list("beginning of no id", prefix("nothing-"), 0),
    ]
}

/// The first page, or the one behind a place in the middle.
async fn ask(store: &Arc<dyn Store>, filter: &Filter, cursor: Option<Cursor>) -> (Duration, usize) {
    let began = Instant::now();
    let page = store.instances(filter, cursor.as_ref(), PAGE).await.unwrap();
    (began.elapsed(), page.rows.len())
}

async fn measure(backend: &str, store: Arc<dyn Store>) {
    let count = count();
    let scene = Scene::new(Arc::clone(&store));
    let began = Instant::now();
    fill(&scene, count).await;
    println!(
        r#"{{"backend":"{backend}","instances":{count},"filled_s":{:.0}}}"#,
        began.elapsed().as_secs_f64()
    );
    let middle = name_key(&workflow_of(count / 2 + 1), &id_of(count / 2 + 1));
    let middle = Cursor(store.find(&middle).await.unwrap().expect("it is there"));
    for List { what, filter, first } in lists(count) {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..TIMES {
            let (took, found) = ask(&store, &filter, None).await;
            assert!(found >= first, "{what}: {found} of {first}");
            times[0].push(took);
            times[1].push(ask(&store, &filter, Some(middle)).await.0);
        }
        let [top, deep] = times.map(|mut times| {
            times.sort_unstable();
            [times[TIMES / 2], times[TIMES - 1]].map(|time| time.as_secs_f64() * 1e3)
        });
        println!(
            r#"{{"backend":"{backend}","list":"{what}","p50_ms":{:.1},"max_ms":{:.1},"in_the_middle_p50_ms":{:.1},"in_the_middle_max_ms":{:.1}}}"#,
            top[0], top[1], deep[0], deep[1]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_find_what_is_there_in_postgres() {
    let fixture = Postgres::create().await;
    measure("postgres", fixture.store()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_find_what_is_there_in_sqlite() {
    let fixture = Sqlite::create().await;
    measure("sqlite", fixture.store()).await;
}
