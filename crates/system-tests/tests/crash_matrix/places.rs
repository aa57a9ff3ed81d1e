//! That the list of places, the rows of the matrix and the code say the same, read from the code.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use everstep_protocol::crash::PLACES;

/// Methods of the store that write nothing. Whatever is not here is a commit.
const READS: [&str; 44] = [
    "access_token",
    "access_tokens",
    "attention",
    "attention_counts",
    "backlog",
    "breaches",
    "bulk",
    "bulks",
    "checkup",
    "depths",
    "due",
    "ends",
    "ends_now",
    "expired",
    "find",
    "heard_since",
    "hook",
    "hooks",
    "incarnation",
    "instance",
    "instances",
    "journal",
    "kept_progress",
    "ledger",
    "letters",
    "observed",
    "open_counts",
    "orphans",
    "outbox",
    "overdue",
    "rejected",
    "rejected_bytes",
    "reply",
    "restored_at",
    "running_bulks",
    "schedule",
    "schedule_changes",
    "schedules",
    "sessions",
    "silent",
    "status",
    "suspects",
    "unserved",
    "woken_schedules",
];
/// Of the embedded mode alone: a server that is opened by nobody else.
const NOT_OF_A_FLEET: [&str; 1] = ["end_all_sessions"];
/// What else leaves the process.
const SENT: [&str; 5] =
    ["broker.send(", "broker.send_confirmed(", "broker.unroutable(", "settle.ack()", "delivery.ack()"];
/// A place is this near to what it is around, in bytes, whichever comes first.
const NEAR: usize = 260;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The sources of a crate without its tests: they stand at the end of a file, or in one of their own.
fn sources(name: &str) -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    files(&repository().join("crates").join(name).join("src"), &mut paths);
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a source");
        let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        (path, text[..end].to_owned())
    };
    let is_test = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name == "tests.rs" || name == "rehearsal.rs")
            || path.components().any(|part| part.as_os_str() == "tests")
    };
    paths.into_iter().filter(|path| !is_test(path)).map(read).collect()
}

/// The methods of the store's port that commit something: of every trait that stands beside `lib.rs` or in it.
fn commits() -> Vec<String> {
    let mut all = Vec::new();
    let sources = std::fs::read_dir(repository().join("crates/store/src")).expect("the store's sources");
    for path in sources.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&path).expect("a source");
        for (at, _) in text.match_indices("\npub trait ") {
            let body = &text[at..];
            let body = &body[..body.find("\n}").expect("a trait ends")];
            all.extend(body.match_indices("    async fn ").map(|(at, found)| {
                let rest = &body[at + found.len()..];
                rest[..rest.find('(').expect("it has parameters")].to_owned()
            }));
        }
    }
    assert!(all.len() > READS.len(), "the port's methods were found: {all:?}");
    for read in READS.iter().chain(&NOT_OF_A_FLEET) {
        assert!(all.iter().any(|name| name == read), "{read} is no method of the store any more");
    }
    all.retain(|name| !READS.iter().chain(&NOT_OF_A_FLEET).any(|read| read == name));
    all
}

/// Where a source calls this method of a store, however the line is broken.
fn calls_of<'a>(text: &'a str, method: &'a str) -> impl Iterator<Item = usize> {
    text.match_indices(method).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].trim_end();
        text[at + method.len()..].starts_with('(')
            && before.strip_suffix('.').is_some_and(|owner| {
                let owner = owner.trim_end();
                owner.ends_with("store") || owner.ends_with("store()")
            })
    })
}

/// The places that a source names, each with where it does.
fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let openings = text.match_indices("around(").chain(text.match_indices(" at("));
    openings.filter_map(move |(at, opening)| {
        let name = text[at + opening.len()..].trim_start().strip_prefix('"')?.split('"').next()?;
        let is_place = ["commit.", "publish.", "ack."].iter().any(|kind| name.starts_with(kind));
        is_place.then_some((at, name))
    })
}

pub(crate) fn all_are_there(rows: &[&str]) {
    let listed: BTreeSet<&str> = PLACES.into_iter().collect();
    let with_rows: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!(listed, with_rows, "the list of places and the rows of the matrix differ");
    let sources = [sources("coordinator"), sources("worker")].concat();
    let mut in_code = BTreeSet::new();
    for (_, text) in &sources {
        in_code.extend(named(text).map(|(_, name)| name));
    }
    assert_eq!(listed, in_code, "the list of places and the code differ");
    let commits = commits();
    let mut bare = Vec::new();
    for (path, text) in &sources {
        let calls = commits.iter().flat_map(|name| calls_of(text, name).map(move |at| (at, name.as_str())));
        let sent = SENT.iter().flat_map(|act| text.match_indices(act));
        for (at, act) in calls.chain(sent) {
            let (from, to) = (at.saturating_sub(NEAR), (at + NEAR).min(text.len()));
            if !named(text).any(|(place, _)| (from..to).contains(&place)) {
                bare.push(format!("{}: {act}", path.display()));
            }
        }
    }
    assert_eq!(bare, Vec::<String>::new(), "commits, publishes and acks without a place");
}
