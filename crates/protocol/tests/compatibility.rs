//! Proves that versions understand each other (rule W25): a field that this version does not know is ignored wherever a
//! later one may add it, a field that an earlier one did not write has its default, and the bytes of the first release are
//! read and written as they were. Not: that what is read is acted on in the same way.

#[path = "compatibility/examples.rs"]
mod examples;
#[path = "compatibility/tree.rs"]
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use examples::{Example, all};
use tree::{Path, Tree};

/// Maps of one member that say which variant of an enum follows. They are no place for further fields.
const VARIANTS: &[&str] = &[
    "ack",
    "again",
    "ask",
    "attempted",
    "beat",
    "cancelled",
    "child",
    "claim",
    "closed",
    "compensated",
    "compensating",
    "complete",
    "conflict",
    "continued",
    "delivered",
    "done",
    "dropped",
    "end",
    "end_of",
    "ended",
    "entries",
    "errored",
    "event",
    "fail",
    "failed",
    "fence",
    "fired",
    "give_back",
    "goodbye",
    "grant",
    "heard",
    "heartbeat",
    "hook",
    "intend",
    "intended",
    "length",
    "lookup",
    "lost",
    "moment",
    "not_granted",
    "offer",
    "open",
    "opened",
    "out_of_order",
    "owned",
    "park",
    "parked",
    "patched",
    "payload",
    "received",
    "refused",
    "registered",
    "rekeyed",
    "remote",
    "reply",
    "report",
    "resolved",
    "returned",
    "reusable",
    "resume",
    "rollback",
    "send",
    "sleep",
    "sleep_until",
    "started",
    "step_ack",
    "step_claim",
    "step_fence",
    "step_give_back",
    "step_grant",
    "step_report",
    "succeeded",
    "taken_over",
    "terminated",
    "times",
    "unknown",
    "withdraw",
    "withdrawn",
];

/// The fields that may be absent. A field that is added belongs here; none may ever leave.
const OPTIONAL: &[&str] = &[
    "again.attributes",
    "again.cancelled",
    "again.hook",
    "attempted.marks",
    "attempted.policy",
    "attempted.progress",
    "attempted.reference",
    "attributes.value",
    "cancelled.reason",
    "cancelled.rollback",
    "changed.asked_at",
    "child.detached",
    "child.keep_for",
    "child.only_started",
    "child.start_hook",
    "claim.have",
    "closed.hook",
    "compensated.more",
    "compensating.failure",
    "delivered.key",
    "dropped.policy",
    "entries.pause",
    "errored.data",
    "errored.permanent",
    "errored.retry_after",
    "errored.sensitive",
    "event.key",
    "failed.retry_at",
    "failed.retry_in",
    "failure.data",
    "failure.permanent",
    "failure.retry_after",
    "failure.sensitive",
    "failure.sent",
    "from_worker.credits",
    "grant.direct",
    "heard.not_yours",
    "heard.steps_not_yours",
    "heartbeat.credits",
    "heartbeat.progress",
    "heartbeat.steps",
    "heartbeat.turned",
    "held.reports",
    "held.run",
    "hook.force",
    "hook.metadata",
    "hook.retention",
    "hook.schema",
    "hook.webhook",
    "intend.marks",
    "intend.policy",
    "intended.marks",
    "intended.policy",
    "limits.event_bytes",
    "limits.events_unread",
    "limits.hook_retention",
    "limits.input_bytes",
    "limits.journal_bytes",
    "limits.output_bytes",
    "limits.steps",
    "lost.progress",
    "marks.compensated",
    "marks.found",
    "marks.reused",
    "marks.sensitive",
    "open.functions",
    "open.pinned",
    "open.pools",
    "opened.build",
    "owned.from",
    "parked.changed",
    "policy.backoff",
    "policy.class",
    "policy.delay",
    "policy.jitter",
    "policy.limit",
    "policy.max_delay",
    "policy.max_elapsed",
    "policy.timeout",
    "rekeyed.by",
    "rekeyed.kept",
    "rekeyed.why",
    "remote.look",
    "remote.marks",
    "remote.policy",
    "report.attributes",
    "report.cached",
    "report.closed",
    "report.compensated",
    "report.folded",
    "report.ledger",
    "report.opened",
    "report.results",
    "report.state",
    "resolved.by",
    "resolved.sensitive",
    "resolved.why",
    "response.base64",
    "response.body",
    "response.headers",
    "results.marks",
    "results.policy",
    "results.progress",
    "results.reference",
    "reusable.marks",
    "reusable.policy",
    "rollback.failure",
    "rollback.reason",
    "send.key",
    "start_hook.metadata",
    "start_hook.retention",
    "started.attributes",
    "started.hook",
    "step_give_back.unstarted",
    "step_grant.progress",
    "step_report.found",
    "step_report.progress",
    "step_report.reference",
    "terminated.reason",
    "unknown.asks",
    "webhook.base64",
    "webhook.body",
    "webhook.carries",
    "webhook.content_type",
    "webhook.headers",
    "webhook.manual",
    "webhook.methods",
    "webhook.status",
];

fn tree_of(example: &Example) -> Tree {
    let tree = Tree::read(&example.bytes);
    assert_eq!(tree.write(), example.bytes, "{}: a tree says everything", example.name);
    tree
}

/// The maps of an example that are structs.
fn structs(tree: &Tree) -> Vec<Path> {
    let is_struct = |path: &Path| match tree.at(path) {
        Some(Tree::Map(members)) => !matches!(&members[..], [(only, _)] if VARIANTS.contains(&only.as_str())),
        _ => false,
    };
    tree.maps().into_iter().filter(is_struct).collect()
}

/// What a later version may have added: something with fields of its own.
fn added() -> Tree {
    let inner =
        vec![("deep".to_owned(), Tree::List(vec![Tree::Bytes(vec![1, 2]), Tree::Nil, Tree::Signed(-3)]))];
    Tree::Map(inner)
}

/// The name of a field: that of the struct's place, and its own.
fn field_name(example: &Example, map: &[String], field: &str) -> String {
    let place = map.iter().rev().find(|key| !key.bytes().all(|byte| byte.is_ascii_digit()));
    format!("{}.{field}", place.map_or(example.envelope(), String::as_str))
}

#[test]
fn w25_an_unknown_field_is_ignored_in_every_map() {
    for example in all() {
        let tree = tree_of(&example);
        for map in structs(&tree) {
            for index in [0, usize::MAX] {
                let mut later = tree.clone();
                let members = later.members(&map).expect("a map");
                members.insert(index.min(members.len()), ("added_later".to_owned(), added()));
                let read = example.read(&later.write());
                let read = read.unwrap_or_else(|error| panic!("{} at {map:?}: {error}", example.name));
                assert!(read.is_same && read.again == example.bytes, "{} at {map:?}", example.name);
            }
        }
    }
}

#[test]
fn w25_an_absent_field_has_its_default() {
    let mut optional = BTreeSet::new();
    for example in all() {
        let tree = tree_of(&example);
        for map in structs(&tree) {
            let Some(Tree::Map(members)) = tree.at(&map) else { unreachable!("a struct is a map") };
            for (field, value) in members {
                let earlier = tree.without(&map, field);
                let Ok(read) = example.read(&earlier.write()) else { continue };
                optional.insert(field_name(&example, &map, field));
                // Nothing but this field has changed, and it has not if it was the default.
                let again = Tree::read(&read.again);
                assert_eq!(again.without(&map, field), earlier, "{} without {field}", example.name);
                let default = again.at(&[map.as_slice(), std::slice::from_ref(field)].concat());
                assert_eq!(read.is_same, default == Some(value), "{} without {field}", example.name);
            }
        }
    }
    let listed: BTreeSet<_> = OPTIONAL.iter().map(ToString::to_string).collect();
    assert_eq!(optional, listed);
}

#[test]
fn w25_the_bytes_of_the_first_release_are_read_and_written_as_they_were() {
    let golden: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../golden/envelopes.json")).unwrap();
    let examples = all();
    let lacking = examples.iter().filter(|example| !golden.contains_key(&example.name));
    let lines: Vec<_> = lacking
        .map(|example| format!("  \"{}\": \"{}\"", example.name, hex::encode(&example.bytes)))
        .collect();
    assert!(lines.is_empty(), "golden/envelopes.json lacks\n{}", lines.join(",\n"));
    for example in &examples {
        let recorded = &golden[&example.name];
        let recorded = hex::decode(recorded).unwrap();
        let read = example.read(&recorded).unwrap();
        assert!(read.is_same, "{} means something else now", example.name);
        assert_eq!(hex::encode(&read.again), hex::encode(&recorded), "{}", example.name);
    }
    let names: BTreeSet<_> = examples.iter().map(|example| &example.name).collect();
    assert_eq!(names.len(), examples.len(), "every example has its own name");
    assert_eq!(names, golden.keys().collect(), "every recorded envelope is still read");
}

/// An owner is never taken from that could not understand it: every version that knows hooks knows the entry of a takeover, which was
/// recorded with the first of them. So nobody asks for the version of a runtime before a forced claim.
#[test]
fn h68_whoever_knows_hooks_knows_takeovers() {
    let golden: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../golden/envelopes.json")).unwrap();
    for name in ["entry/opened hook", "entry/registered owned", "entry/taken_over"] {
        let example = all().into_iter().find(|example| example.name == name).expect(name);
        let recorded = hex::decode(&golden[name]).unwrap();
        let read = example.read(&recorded).unwrap();
        assert!(read.is_same, "{name}");
    }
}
