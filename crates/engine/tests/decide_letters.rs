//! Proves what instances do to each other by letters (rules P36, W22; cascades of P30 to P32): what a call writes, what its
//! addressee makes of it, what comes back, and that each letter is taken once. Not: who carries letters, and how they are stored.

mod support;

use everstep_engine::{
    Answer, Input, Status, What,
    letter::{DEPTH_MAX, Letter, Said},
    rows::{Subject, WaitKind},
};
use everstep_protocol::{
    Call, CallKind, Failure, FailureKind, InstanceUid, Millis,
    journal::{Child, End, Fact, Outcome, Sending},
    message::{OpenWait, Taken, Then},
};
use support::*;

/// How a test changes the child of a family.
type Change = fn(&mut Child);

const PARENT: u128 = 1;
const CHILD: u128 = 10;

/// The holder of instance 1 opens these calls and suspends.
fn calls(store: &mut Store, opened: Vec<(Call, OpenWait)>) {
    let opened = opened.into_iter().map(|(call, wait)| open(&call, wait)).collect();
    let out = store.report(|report| {
        report.opened = opened;
        report.then = Then::Suspend;
    });
    assert_eq!(out.taken(), [Taken::Whole]);
}

/// A parent that waits for its child, which exists.
fn family(change: impl FnOnce(&mut Child)) -> Store {
    let mut store = Store::held();
    let mut child = child("c");
    change(&mut child);
    calls(&mut store, vec![(child_call("c"), OpenWait::Child(child))]);
    store.carry(CHILD..);
    store
}

/// What the calls of instance 1 came to, in the order of its journal.
fn returned(store: &Store) -> Vec<(String, Result<String, String>)> {
    let of = |entry: &everstep_protocol::journal::Entry| match &entry.fact {
        Fact::Returned(returned) => Some((
            returned.call.name.to_string(),
            match &returned.outcome {
                Outcome::Succeeded(output) => Ok(output.as_str().to_owned()),
                Outcome::Failed { failure, .. } | Outcome::Unknown { failure, .. } => {
                    Err(failure.name.clone())
                }
            },
        )),
        _ => None,
    };
    store.tables.journal[&uid(PARENT)].iter().filter_map(of).collect()
}

fn status(store: &Store, n: u128) -> Option<Status> {
    store.tables.heads.get(&uid(n)).map(|head| head.status)
}

/// Somebody holds the child and ends it.
fn end_child(store: &mut Store, end: End) {
    let uid = uid(CHILD);
    store.batch(&[on(uid, What::Claim { session: S2, have: None })]);
    let head = &store.tables.heads[&uid];
    let mut report = report(uid, head.epoch.0, head.reports + 1, head.position.0);
    report.then = Then::End(end);
    store.batch(&[on(uid, reported(S2, report))]);
}

fn terminate(operation: &str) -> What {
    What::Terminate { operation: operation.to_owned(), reason: None }
}

fn cancel(within: u64) -> What {
    What::Cancel { operation: "c".to_owned(), reason: None, within: Millis(within), rollback: false }
}

fn result_call(id: &str) -> Call {
    call(CallKind::Instance, &format!("fulfil/{id}"), 1)
}

fn send_call(id: &str) -> Call {
    call(CallKind::Send, &format!("fulfil/{id} paid"), 1)
}

fn sending(id: &str, payload: u8) -> OpenWait {
    OpenWait::Send(Sending {
        to: other(id),
        kind: kind("paid"),
        key: None,
        payload: json(&payload.to_string()),
        fingerprint: fingerprint(payload),
    })
}

#[test]
fn p36_a_parent_waits_for_its_child_and_holds_nothing() {
    let mut store = family(|_| {});
    assert_eq!((store.state(), status(&store, CHILD)), ("waiting", Some(Status::Open)));
    let waits: Vec<_> = store.tables.waits.values().map(|wait| (wait.kind, wait.due_at)).collect();
    assert_eq!(waits, [(WaitKind::Instance, None)]);
    end_child(&mut store, End::Complete(json("7")));
    assert_eq!(store.state(), "waiting", "the child has written, and touched nothing of its parent");
    store.carry(CHILD..);
    assert_eq!(returned(&store), [("c".to_owned(), Ok("7".to_owned()))]);
    assert_eq!((store.state(), store.head().waits), ("ready", 0));
    assert!(store.tables.mailbox.is_empty());
}

#[test]
fn p44_what_is_sensitive_in_a_child_is_so_for_its_parent() {
    let mut store = family(|_| {});
    end_child(&mut store, End::Errored(error("no hunter2").of_sensitive(true)));
    store.carry(CHILD..);
    let Fact::Returned(returned) = &store.tables.journal[&uid(PARENT)].last().unwrap().fact else { panic!() };
    let Outcome::Failed { failure, .. } = &returned.outcome else { panic!("{returned:?}") };
    assert!(failure.sensitive && failure.message.contains("hunter2"), "it is real for the code");
    assert!(!format!("{returned:?}").contains("hunter2"));
}

/// How a child ends, and what the call gets.
#[test]
fn p36_however_a_child_ends_its_parent_learns_it() {
    let declined = Failure { name: "CardDeclined".to_owned(), ..error("no") };
    let cancelled = Failure::new(FailureKind::Cancelled, "somebody else's cancel");
    let cases = [
        ("complete", End::Complete(json("7")), Ok("7"), None),
        ("errored", End::Errored(declined), Err("CardDeclined"), Some(FailureKind::Error)),
        ("errored with a cancel", End::Errored(cancelled), Err("Cancelled"), Some(FailureKind::Error)),
        ("terminated", End::Terminated { reason: None }, Err("InstanceTerminated"), Some(FailureKind::Error)),
        ("cancelled", End::Cancelled { reason: None }, Err("InstanceCancelled"), Some(FailureKind::Error)),
    ];
    for (case, end, expected, kind) in cases {
        let mut store = family(|_| {});
        match end {
            End::Terminated { .. } => {
                store.batch(&[on(uid(CHILD), terminate("o"))]);
            }
            end => end_child(&mut store, end),
        }
        store.carry(CHILD..);
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(returned(&store), [("c".to_owned(), expected)], "{case}");
        let got = store.tables.journal[&uid(PARENT)].iter().find_map(|entry| match &entry.fact {
            Fact::Returned(returned) => Some(returned.outcome.clone()),
            _ => None,
        });
        let got = match got {
            Some(Outcome::Failed { failure, .. }) => Some(failure.kind),
            _ => None,
        };
        assert_eq!(got, kind, "{case}: a cancel of the child must not end its parent as cancelled");
    }
}

/// Who bears the name that a child is to have, and what the call gets.
#[test]
fn p36_a_start_meets_who_is_there() {
    let cases = [
        ("nobody", None, false, "waiting", None),
        ("the same input", Some(1), false, "waiting", None),
        ("another input", Some(2), false, "ready", Some(Err("InstanceConflict"))),
        ("nobody, and only to start", None, true, "ready", Some(Ok(r#"{"workflow":"fulfil","id":"c"}"#))),
        (
            "the same, and only to start",
            Some(1),
            true,
            "ready",
            Some(Ok(r#"{"workflow":"fulfil","id":"c"}"#)),
        ),
        ("another, and only to start", Some(2), true, "ready", Some(Err("InstanceConflict"))),
    ];
    for (case, existing, only_started, state, expected) in cases {
        let mut store = Store::held();
        if let Some(input) = existing {
            store.start(start(5, "c", input));
        }
        let child = Child { only_started, ..child("c") };
        calls(&mut store, vec![(child_call("c"), OpenWait::Child(child))]);
        store.carry(CHILD..);
        let expected = expected.map(|got| ("c".to_owned(), got.map(str::to_owned).map_err(str::to_owned)));
        assert_eq!(returned(&store), expected.into_iter().collect::<Vec<_>>(), "{case}");
        assert_eq!(store.state(), state, "{case}");
        assert!(!store.tables.parents.contains_key(&uid(5)), "{case}: it does not become a child");
        if existing == Some(1) && !only_started {
            store.batch(&[on(uid(5), terminate("o"))]);
            store.carry(CHILD..);
            assert_eq!(returned(&store), [("c".to_owned(), Err("InstanceTerminated".to_owned()))], "{case}");
        }
    }
}

#[test]
fn p36_a_start_over_the_limit_fails_its_call() {
    let mut store = Store::held();
    store.rules.limits.input_bytes = 0;
    calls(&mut store, vec![(child_call("c"), OpenWait::Child(child("c")))]);
    store.carry(CHILD..);
    assert_eq!(returned(&store), [("c".to_owned(), Err("TooLarge".to_owned()))]);
    assert_eq!(status(&store, CHILD), None);
}

/// A letter that two coordinators carry, or that comes again after it was taken, is taken once.
#[test]
fn w22_a_letter_is_taken_once() {
    let mut store = Store::held();
    calls(
        &mut store,
        vec![(child_call("c"), OpenWait::Child(child("c"))), (send_call("i"), sending("i", 1))],
    );
    let mail = store.mail(&mut (CHILD..));
    assert_eq!(mail.len(), 2);
    // Both at once, and each once more in the same batch.
    let twice: Vec<Input> = mail.iter().chain(&mail).cloned().collect();
    let answers = store.batch(&twice).answers();
    assert_eq!(answers, [Answer::Created, Answer::Done, Answer::Nothing, Answer::Nothing]);
    for input in mail {
        assert_eq!(store.batch(&[input]).answer(), Answer::Nothing);
    }
    assert_eq!(store.head().events, 1);
    let back = store.mail(&mut (20..));
    assert_eq!(back.len(), 1, "the send has its answer, the child has not ended");
    store.batch(&back);
    assert_eq!(store.batch(&back).answer(), Answer::Nothing);
    assert_eq!(returned(&store), [("fulfil/i paid".to_owned(), Ok("null".to_owned()))]);
}

#[test]
fn p36_the_end_of_any_instance_is_waited_for() {
    let mut store = Store::held();
    store.start(start(5, "open", 1));
    store.start(start(6, "over", 1));
    store.batch(&[on(uid(6), terminate("o"))]);
    let wait = |id: &str| (result_call(id), OpenWait::Instance(other(id)));
    calls(&mut store, vec![wait("open"), wait("over"), wait("nobody")]);
    store.carry(CHILD..);
    let mut got = returned(&store);
    got.sort();
    let failed = |id: &str, name: &str| (format!("fulfil/{id}"), Err(name.to_owned()));
    assert_eq!(got, [failed("nobody", "InstanceNotFound"), failed("over", "InstanceTerminated")]);
    store.batch(&[on(uid(5), terminate("o"))]);
    store.carry(CHILD..);
    assert_eq!(returned(&store).last(), Some(&failed("open", "InstanceTerminated")));
}

/// The end and the wait for it meet in one batch, in either order.
#[test]
fn p36_an_end_in_the_same_batch_is_told_as_it_is() {
    for is_end_first in [true, false] {
        let mut store = Store::held();
        store.start(start(6, "over", 1));
        calls(&mut store, vec![(result_call("over"), OpenWait::Instance(other("over")))]);
        let (number, letter) = store.tables.mailbox.first_key_value().expect("a letter is under way");
        let watch = store.delivery(*number, letter, &mut (CHILD..));
        let mut inputs = vec![on(uid(6), terminate("o")), watch];
        if !is_end_first {
            inputs.reverse();
        }
        store.batch(&inputs);
        store.carry(CHILD..);
        let expected = ("fulfil/over".to_owned(), Err("InstanceTerminated".to_owned()));
        assert_eq!(returned(&store), [expected], "the end first: {is_end_first}");
    }
}

/// Whoever waits for an instance that is run again gets the end of its next run.
#[test]
fn p36_a_restart_of_the_other_goes_on_being_waited_for() {
    let mut store = Store::held();
    store.start(start(CHILD, "o", 1));
    calls(&mut store, vec![(result_call("o"), OpenWait::Instance(other("o")))]);
    store.carry(20..);
    store.batch(&[on(uid(CHILD), What::Restart { operation: "r".to_owned(), prepared: None })]);
    store.carry(20..);
    assert!(returned(&store).is_empty());
    end_child(&mut store, End::Complete(json("2")));
    store.carry(20..);
    assert_eq!(returned(&store), [("fulfil/o".to_owned(), Ok("2".to_owned()))]);
}

#[test]
fn p36_a_workflow_sends_an_event_once_also_when_it_is_run_again() {
    let mut store = Store::held();
    store.start(start(5, "o", 1));
    calls(&mut store, vec![(send_call("o"), sending("o", 3))]);
    store.carry(CHILD..);
    assert_eq!(returned(&store), [("fulfil/o paid".to_owned(), Ok("null".to_owned()))]);
    for (payload, expected) in [(3, Ok("null".to_owned())), (4, Err("EventIdTaken".to_owned()))] {
        let operation = format!("r{payload}");
        store.tell(What::Restart { operation, prepared: None });
        store.tell(What::Claim { session: S1, have: None });
        calls(&mut store, vec![(send_call("o"), sending("o", payload))]);
        store.carry(CHILD..);
        assert_eq!(returned(&store), [("fulfil/o paid".to_owned(), expected)]);
    }
    assert_eq!(store.tables.heads[&uid(5)].events, 1);
}

#[test]
fn p36_an_event_that_is_not_accepted_fails_its_call() {
    let mut store = Store::held();
    store.start(start(6, "over", 1));
    store.batch(&[on(uid(6), terminate("o"))]);
    store.rules.limits.events_unread = 0;
    store.start(start(7, "full", 1));
    let send = |id: &str| (send_call(id), sending(id, 1));
    calls(&mut store, vec![send("nobody"), send("over"), send("full")]);
    store.carry(CHILD..);
    let names: Vec<_> = returned(&store).into_iter().map(|(_, got)| got.unwrap_err()).collect();
    assert_eq!(names, ["InstanceNotFound", "InstanceEnded", "MailboxFull"]);
}

/// What is done to a parent, and what becomes of its child.
#[test]
fn p30_p31_p32_what_is_done_to_a_parent_reaches_its_attached_children() {
    let restart = || What::Restart { operation: "r".to_owned(), prepared: None };
    let delete = || What::Delete { operation: "d".to_owned(), terminate: true };
    let attached = |_: &mut Child| {};
    let detached = |child: &mut Child| child.detached = true;
    let started = |child: &mut Child| child.only_started = true;
    let cases: [(&str, What, Change, &str); 12] = [
        ("terminate", terminate("o"), attached, "terminated"),
        ("restart", restart(), attached, "terminated"),
        ("delete", delete(), attached, "terminated"),
        ("cancel", cancel(9), attached, "cancelling"),
        ("terminate, only started", terminate("o"), started, "terminated"),
        ("restart, only started", restart(), started, "terminated"),
        ("delete, only started", delete(), started, "terminated"),
        ("cancel, only started", cancel(9), started, "cancelling"),
        ("terminate, detached", terminate("o"), detached, "open"),
        ("restart, detached", restart(), detached, "open"),
        ("delete, detached", delete(), detached, "open"),
        ("cancel, detached", cancel(9), detached, "open"),
    ];
    for (case, what, change, expected) in cases {
        let mut store = family(change);
        store.batch(&[on(uid(PARENT), what)]);
        assert_eq!(status(&store, CHILD), Some(Status::Open), "{case}: one decision touches one instance");
        store.carry(20..);
        let is_cancelled =
            store.tables.controls.get(&uid(CHILD)).is_some_and(|control| control.cancel.is_some());
        let became = match status(&store, CHILD) {
            Some(Status::Terminated) => "terminated",
            Some(Status::Open) if is_cancelled => "cancelling",
            _ => "open",
        };
        assert_eq!(became, expected, "{case}");
        assert!(store.tables.mailbox.is_empty(), "{case}");
    }
}

#[test]
fn p30_a_terminate_reaches_the_children_of_children() {
    let mut store = family(|_| {});
    let uid10 = uid(CHILD);
    store.batch(&[on(uid10, What::Claim { session: S2, have: None })]);
    let head = &store.tables.heads[&uid10];
    let mut nested = report(uid10, head.epoch.0, head.reports + 1, head.position.0);
    nested.opened = vec![open(&child_call("n"), OpenWait::Child(child("grandchild")))];
    nested.then = Then::Suspend;
    store.batch(&[on(uid10, reported(S2, nested))]);
    store.carry(11..);
    store.tell(terminate("o"));
    store.carry(20..);
    assert_eq!(
        (status(&store, CHILD), status(&store, 11)),
        (Some(Status::Terminated), Some(Status::Terminated))
    );
}

/// A terminate that overtakes the child's start finds it all the same.
#[test]
fn p30_a_child_that_is_not_there_yet_is_terminated_once_it_is() {
    let mut store = Store::held();
    calls(&mut store, vec![(child_call("c"), OpenWait::Child(child("c")))]);
    store.tell(terminate("o"));
    store.carry(CHILD..);
    assert_eq!(status(&store, CHILD), Some(Status::Terminated));
}

#[test]
fn p30_only_its_own_parent_ends_a_child() {
    let mut store = family(|_| {});
    // An instance of the same name, started by somebody else after the child was deleted.
    store.batch(&[on(uid(CHILD), What::Delete { operation: "d".to_owned(), terminate: true })]);
    store.start(start(5, "c", 1));
    let said = Said::Terminate { reason: None };
    let caller = everstep_engine::letter::Caller {
        uid: uid(PARENT),
        run: store.head().run,
        call: child_call("c").hash(),
    };
    store.tables.mailbox.insert(
        99,
        everstep_engine::letter::NewLetter {
            to: everstep_engine::letter::Address::Name(named("c")),
            caller,
            said: said.clone(),
        },
    );
    let letter = Letter { number: 99, caller, said };
    assert_eq!(store.batch(&[on(uid(5), What::Letter(letter))]).answer(), Answer::Nothing);
    assert_eq!(status(&store, 5), Some(Status::Open));
}

#[test]
fn p31_a_new_run_hears_nothing_of_what_the_earlier_one_asked() {
    let mut store = family(|_| {});
    end_child(&mut store, End::Complete(json("7")));
    store.tell(What::Restart { operation: "r".to_owned(), prepared: None });
    store.tell(What::Claim { session: S1, have: None });
    // The same call, of the new run, has a child of another id.
    calls(&mut store, vec![(child_call("c"), OpenWait::Child(child("c-2")))]);
    store.carry(20..);
    assert!(returned(&store).is_empty());
    assert_eq!((store.state(), status(&store, 20)), ("waiting", Some(Status::Open)));
}

/// The loser of a race: nobody is left who wants the child's result.
#[test]
fn p36_a_dropped_call_cancels_its_attached_child() {
    for detached in [false, true] {
        let mut store = family(|child| child.detached = detached);
        store.tell(What::Event(sent("e", "x", 0)));
        // Something else wakes the parent, whose body then drops the call.
        store.tables.ready.insert((uid(PARENT), Subject::INSTANCE), None);
        store.tell(What::Claim { session: S1, have: None });
        let out = store.report(|report| {
            report.closed = vec![dropped(&child_call("c"), 2)];
            report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
        });
        assert_eq!(out.entries(), ["closed", "opened"]);
        store.carry(20..);
        let is_cancelled = store.tables.controls.contains_key(&uid(CHILD));
        assert_eq!(is_cancelled, !detached);
        end_child(&mut store, End::Complete(json("7")));
        store.carry(20..);
        assert!(returned(&store).is_empty(), "a late answer means nothing");
    }
}

/// A cancel that the body has not seen: calls that it makes meanwhile start nobody.
#[test]
fn p30_a_call_made_before_the_cancel_is_seen_starts_nobody() {
    let mut store = Store::held();
    let (_, mut late) = store.next_report(|report| {
        report.opened = vec![open(&child_call("c"), OpenWait::Child(child("c")))];
    });
    store.tell(cancel(9));
    late.seen = everstep_protocol::Position(1);
    store.tell(reported(S1, late));
    assert!(store.tables.mailbox.is_empty() && store.tables.children.is_empty());
}

/// What an instance without ties writes is what it wrote before there were letters.
#[test]
fn w22_an_instance_without_ties_writes_no_mail() {
    let mut store = Store::held();
    let out = store.report(|report| report.then = Then::End(End::Complete(json("1"))));
    assert!(!out.writes.writes_mail() && out.writes.letter_deletes.is_empty());
    assert_eq!(store.head().links, 0);
}

#[test]
fn p32_a_deleted_instance_leaves_no_ties() {
    let mut store = family(|_| {});
    for n in [CHILD, PARENT] {
        store.batch(&[on(uid(n), What::Delete { operation: "d".to_owned(), terminate: true })]);
        store.carry(20..);
    }
    assert!(store.tables.parents.is_empty() && store.tables.children.is_empty());
    assert!(store.tables.watchers.is_empty() && store.tables.mailbox.is_empty());
}

#[test]
fn w22_a_letter_to_somebody_who_was_deleted_goes_back() {
    let mut store = Store::held();
    store.start(start(5, "o", 1));
    calls(&mut store, vec![(result_call("o"), OpenWait::Instance(other("o")))]);
    let mail = store.mail(&mut (CHILD..));
    let to: Option<InstanceUid> = mail[0].instance();
    assert_eq!(to, Some(uid(5)));
    store.batch(&[on(uid(5), What::Delete { operation: "d".to_owned(), terminate: true })]);
    store.batch(&mail);
    store.carry(CHILD..);
    assert_eq!(returned(&store), [("fulfil/o".to_owned(), Err("InstanceNotFound".to_owned()))]);
}

/// A worker that is not ours may ask for it: nobody waits for himself.
#[test]
fn p36_an_instance_is_not_its_own_child_and_does_not_await_itself() {
    for (call, wait) in [
        (child_call("me"), OpenWait::Child(Child { id: "i".parse().unwrap(), ..child("i") })),
        (result_call("i"), OpenWait::Instance(other("i"))),
    ] {
        let mut store = Store::held();
        assert_eq!(store.head().id.as_str(), "i");
        calls(&mut store, vec![(call, wait)]);
        store.carry(CHILD..);
        let Fact::Returned(returned) = &store.tables.journal[&uid(PARENT)].last().unwrap().fact else {
            panic!()
        };
        let Outcome::Failed { failure, .. } = &returned.outcome else { panic!("{returned:?}") };
        assert_eq!(failure.kind, FailureKind::Invalid, "{failure}");
        assert!(failure.message.contains("itself"), "{failure}");
        assert!(store.tables.watchers.is_empty());
    }
}

/// The child of a child, and so on.
#[test]
fn p36_a_chain_of_children_is_bounded_and_a_detached_one_begins_anew() {
    let mut store = family(|_| {});
    assert_eq!(store.tables.parents[&uid(CHILD)].depth, 1);
    for (depth, detached, expected) in [
        (DEPTH_MAX - 1, false, Ok(DEPTH_MAX)),
        (DEPTH_MAX, false, Err("LimitReached")),
        (DEPTH_MAX, true, Ok(0)),
    ] {
        let mut store = family(|_| {});
        store.tables.parents.get_mut(&uid(CHILD)).unwrap().depth = depth;
        store.batch(&[on(uid(CHILD), What::Claim { session: S2, have: None })]);
        let mut report = report(uid(CHILD), 1, 1, 1);
        let below = Child { detached, ..child("below") };
        report.opened = vec![open(&child_call("below"), OpenWait::Child(below))];
        report.then = Then::Suspend;
        store.batch(&[on(uid(CHILD), reported(S2, report))]);
        store.carry(20..);
        let born = store.tables.parents.get(&uid(20)).map(|parent| parent.depth);
        let refused = match &store.tables.journal[&uid(CHILD)].last().unwrap().fact {
            Fact::Returned(returned) => match &returned.outcome {
                Outcome::Failed { failure, .. } | Outcome::Unknown { failure, .. } => {
                    Some(failure.name.clone())
                }
                Outcome::Succeeded(_) => None,
            },
            _ => None,
        };
        assert_eq!(born.ok_or(refused.as_deref().unwrap_or_default()), expected);
    }
    store.carry(20..);
}

/// What a loop leaves behind does not grow.
#[test]
fn p36_children_and_waits_of_generations_before_the_last_are_forgotten() {
    let mut store = Store::held();
    store.start(start(5, "o", 1));
    for n in 0..4_u8 {
        let made = [
            (child_call("c"), OpenWait::Child(child(&format!("c-{n}")))),
            (result_call("o"), OpenWait::Instance(other("o"))),
        ];
        let opened: Vec<_> = made.iter().map(|(call, wait)| open(call, wait.clone())).collect();
        store.report(|report| report.opened = opened);
        store.carry(CHILD + 10 * u128::from(n)..);
        assert_eq!(store.tables.watchers.iter().filter(|(watched, _)| *watched == uid(5)).count(), 1);
        store.report(|report| report.then = Then::Again(again(n)));
        assert_eq!(store.tell(What::Claim { session: S1, have: None }).answer(), Answer::Granted);
    }
    let runs: Vec<u32> = store
        .tables
        .children
        .keys()
        .filter(|(parent, _)| *parent == uid(PARENT))
        .map(|(_, (run, _))| run.0)
        .collect();
    assert_eq!(runs, [4], "the last that has ended");
    // Nor does what is done to this generation reach the children of those before.
    store.tell(terminate("t"));
    let ended = store.tables.mailbox.values().filter(|letter| matches!(letter.said, Said::Terminate { .. }));
    assert_eq!(ended.count(), 0);
}
