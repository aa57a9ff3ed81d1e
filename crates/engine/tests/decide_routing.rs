//! Proves what workflow code does with the tokens of others by letters (rules H28, H32, H45 to H50, H63): a child that claims one by its
//! start, a payload for whoever has one. Not: who carries letters, and what the code makes of the answers.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be built fails the test")]

mod support;

use everstep_engine::{
    Answer, Input, What,
    letter::{Letter, Said},
    start::Start,
};
use everstep_protocol::{
    Call, CallKind, Failure, HookId, InstanceUid, Millis, Namespace, Position, Run, SessionId,
    hook::{HookRetention, StartHook},
    journal::{Child, Closed, End, Fact, Other, Outcome, Resuming},
    message::{OpenWait, Report, Then},
};
use support::*;

fn hook(text: &str, millis: Option<u64>) -> StartHook {
    let retention = millis.map(|millis| HookRetention::For(Millis(millis)));
    StartHook { token: text.parse().unwrap(), retention, metadata: Some(json("[7]")), schema: None }
}

fn hooked(n: u128, id: &str, text: &str) -> Start {
    Start { hook: Some(StartHook { metadata: None, ..hook(text, None) }), ..start(n, id, 1) }
}

fn resume_call(count: u32) -> Call {
    call(CallKind::Resume, "tell", count)
}

fn resuming(text: &str, payload: u8) -> OpenWait {
    let (token, fingerprint) = (text.parse().unwrap(), fingerprint(payload));
    OpenWait::Resume(Resuming { token, payload: json(&payload.to_string()), fingerprint })
}

/// The holder of instance 1 opens this call and suspends.
fn calls(store: &mut Store, call: &Call, wait: OpenWait) {
    let opened = vec![open(call, wait)];
    store.report(|report| {
        report.opened = opened;
        report.then = Then::Suspend;
    });
}

/// What the calls of instance 1 came to.
fn returned(store: &Store) -> Vec<Result<String, Failure>> {
    let of = |entry: &everstep_protocol::journal::Entry| match &entry.fact {
        Fact::Returned(returned) => Some(match &returned.outcome {
            Outcome::Succeeded(output) => Ok(output.as_str().to_owned()),
            Outcome::Failed { failure, .. } => Err(failure.clone()),
            Outcome::Unknown { .. } => panic!("what a letter came to is known"),
        }),
        _ => None,
    };
    store.tables.journal[&uid(1)].iter().filter_map(of).collect()
}

fn named(id: &str) -> String {
    format!(r#"{{"workflow":"fulfil","id":"{id}"}}"#)
}

fn owner_of(store: &Store, text: &str) -> Option<InstanceUid> {
    store.tables.hooks.get(&(Namespace::default(), text.parse().unwrap())).map(|row| row.owner)
}

/// How many payloads and events an instance has accepted.
fn accepted(store: &Store, n: u128) -> u64 {
    store.tables.heads[&uid(n)].events
}

/// Instance `n` is claimed by a session of its own, and reports.
fn report_of(store: &mut Store, n: u128, change: impl FnOnce(&mut Report)) {
    let session = SessionId(uuid::Uuid::from_u128(0x50 + n));
    store.batch(&[on(uid(n), What::Claim { session, have: None })]);
    let head = &store.tables.heads[&uid(n)];
    let mut next = report(uid(n), head.epoch.0, head.reports + 1, head.position.0);
    change(&mut next);
    store.batch(&[on(uid(n), reported(session, next))]);
}

fn terminate() -> What {
    What::Terminate { operation: "o".to_owned(), reason: None }
}

#[test]
fn h28_h32_a_child_claims_its_token_by_its_start_and_a_second_is_told_who_has_it() {
    for only_started in [true, false] {
        let mut store = Store::held();
        let asked = Child { hook: Some(hook("t", Some(1_000))), only_started, ..child("c") };
        calls(&mut store, &child_call("c"), OpenWait::Child(asked));
        store.carry(10..);
        let row = store.tables.hooks[&(Namespace::default(), "t".parse().unwrap())].clone();
        assert_eq!((row.owner, row.id, row.metadata), (uid(10), HookId::START, Some(json("[7]"))));
        assert_eq!(row.retain_until, Some(row.since.plus(Millis(1_000))));
        let Fact::Started(started) = &store.tables.journal[&uid(10)][0].fact else { panic!() };
        assert_eq!(started.hook, Some("t".parse().unwrap()), "H8");
        assert!(store.tables.parents.contains_key(&uid(10)));

        let mut store = Store::held();
        store.start(hooked(5, "other", "t"));
        let asked = Child { hook: Some(hook("t", None)), only_started, ..child("c") };
        calls(&mut store, &child_call("c"), OpenWait::Child(asked));
        store.carry(10..);
        let came = returned(&store);
        let [Err(failure)] = &came[..] else { panic!("{came:?}") };
        assert_eq!((failure.name.as_str(), failure.permanent), ("HookConflict", true));
        assert_eq!(failure.data.as_ref().unwrap().decode::<Other>().unwrap(), other("other"));
        assert!(failure.message.contains("other"), "{failure:?}");
        assert!(!store.tables.heads.contains_key(&uid(10)), "H3");
        assert_eq!((store.state(), owner_of(&store, "t")), ("ready", Some(uid(5))));
    }
}

/// The letter is taken with the decision on it: one that is carried again finds it decided (rule H31).
#[test]
fn h28_h31_a_start_that_is_carried_twice_is_decided_once() {
    for held in [false, true] {
        let mut store = Store::held();
        if held {
            store.start(hooked(5, "other", "t"));
        }
        let asked = Child { hook: Some(hook("t", None)), only_started: true, ..child("c") };
        calls(&mut store, &child_call("c"), OpenWait::Child(asked));
        let (number, letter) = store.tables.mailbox.first_key_value().unwrap();
        let (number, letter) = (*number, letter.clone());
        let twice = [10, 11].map(|n| store.delivery(number, &letter, &mut std::iter::once(n)));
        let first = if held { Answer::HookHeld(other("other")) } else { Answer::Created };
        assert_eq!(store.batch(&twice).answers(), [first, Answer::Nothing]);
        assert_eq!(store.batch(&twice[1..]).answer(), Answer::Nothing);
        store.carry(12..);
        assert_eq!(returned(&store).len(), 1);
        assert_eq!(returned(&store)[0].is_err(), held);
    }
}

#[test]
fn h30_h54_a_child_with_a_retention_that_cannot_be_is_not_started() {
    let mut store = Store::held();
    let longest = store.rules.limits.hook_retention.as_u64();
    let asked = Child { hook: Some(hook("t", Some(longest + 1))), ..child("c") };
    calls(&mut store, &child_call("c"), OpenWait::Child(asked));
    store.carry(10..);
    let came = returned(&store);
    assert!(matches!(&came[..], [Err(failure)] if failure.message.contains("retention")), "{came:?}");
    assert_eq!((store.tables.heads.len(), owner_of(&store, "t")), (1, None));
}

#[test]
fn h45_h46_h50_a_payload_goes_to_whoever_has_the_token_or_to_nobody() {
    let mut store = Store::held();
    store.start(hooked(5, "other", "t"));
    calls(&mut store, &resume_call(1), resuming("t", 3));
    assert_eq!((accepted(&store, 5), store.state()), (0, "waiting"));
    store.carry(10..);
    assert_eq!((accepted(&store, 5), returned(&store)), (1, vec![Ok(named("other"))]));
    assert_eq!((store.state(), store.head().waits), ("ready", 0));
    // Nobody has it; one that has ended keeps it; one that ends while the letter is under way.
    for ended in [None, Some(1_000)] {
        let mut store = Store::held();
        if ended.is_some() {
            store.start(Start { hook: Some(hook("t", ended)), ..start(5, "other", 1) });
            store.batch(&[on(uid(5), terminate())]);
        }
        calls(&mut store, &resume_call(1), resuming("t", 3));
        store.carry(10..);
        let came = returned(&store);
        assert!(matches!(&came[..], [Err(failure)] if failure.name == "HookNotFound"), "{came:?}");
    }
    let mut store = Store::held();
    store.start(hooked(5, "other", "t"));
    calls(&mut store, &resume_call(1), resuming("t", 3));
    let late = store.mail(&mut (10..));
    store.batch(&[on(uid(5), terminate())]);
    store.batch(&late);
    store.carry(10..);
    let came = returned(&store);
    assert!(matches!(&came[..], [Err(failure)] if failure.name == "HookNotFound"), "{came:?}");
    assert_eq!(accepted(&store, 5), 0);
}

/// The hook of a child is held to what that of any other start is, though no edge has seen it.
#[test]
fn h11_h57_a_child_whose_hook_cannot_be_is_not_started() {
    let with = |hook: StartHook| Child { hook: Some(hook), ..child("c") };
    let plain = || StartHook { metadata: None, ..hook("t", None) };
    let large = json(&format!("\"{}\"", "m".repeat(17 << 10)));
    for (asked, says) in [
        (StartHook { metadata: Some(large), ..plain() }, "metadata"),
        (StartHook { schema: Some(json(r#"{"$ref":"https://example.com"}"#)), ..plain() }, "example.com"),
        (StartHook { schema: Some(json("1")), ..plain() }, "no object"),
        (StartHook { schema: Some(json(r#"{"type":"unknown"}"#)), ..plain() }, "no such type"),
    ] {
        let mut store = Store::held();
        store.rules.compiles = |schema| {
            if schema.as_str().contains("unknown") { Err("no such type".to_owned()) } else { Ok(()) }
        };
        calls(&mut store, &child_call("c"), OpenWait::Child(with(asked)));
        store.carry(10..);
        let failure = returned(&store).remove(0).unwrap_err();
        assert!(
            failure.message.contains(says) && failure.message.contains("nothing was started"),
            "{failure:?}"
        );
        assert_eq!((store.tables.heads.len(), owner_of(&store, "t")), (1, None), "{says}");
    }
}

/// The id follows from the call: a letter that comes again, and a run that begins again, store one payload.
#[test]
fn h48_a_call_that_is_made_again_stores_one_payload() {
    let mut store = Store::held();
    store.start(hooked(5, "other", "t"));
    calls(&mut store, &resume_call(1), resuming("t", 3));
    let mail = store.mail(&mut (10..));
    let twice = [mail[0].clone(), mail[0].clone()];
    assert_eq!(store.batch(&twice).answers(), [Answer::Done, Answer::Nothing]);
    store.carry(10..);
    let again = |store: &mut Store, payload| {
        store.batch(&[on(uid(1), What::Restart { operation: format!("r{payload}"), prepared: None })]);
        store.batch(&[on(uid(1), What::Claim { session: S1, have: None })]);
        calls(store, &resume_call(1), resuming("t", payload));
        store.carry(10..);
        returned(store)
    };
    assert_eq!((again(&mut store, 3), accepted(&store, 5)), (vec![Ok(named("other"))], 1));
    let came = again(&mut store, 4);
    assert!(matches!(&came[..], [Err(failure)] if failure.name == "EventIdTaken"), "{came:?}");
    // Another call of the same name is another payload.
    store.batch(&[on(uid(1), What::Claim { session: S1, have: None })]);
    calls(&mut store, &resume_call(2), resuming("t", 4));
    store.carry(10..);
    assert_eq!(accepted(&store, 5), 2);
}

#[test]
fn h45_a_full_mailbox_and_a_payload_that_is_too_large_are_told() {
    for (change, name) in [(true, "MailboxFull"), (false, "TooLarge")] {
        let mut store = Store::held();
        store.start(hooked(5, "other", "t"));
        let limits = &mut store.rules.limits;
        if change {
            limits.events_unread = 0;
        } else {
            limits.event_bytes = 0;
        }
        calls(&mut store, &resume_call(1), resuming("t", 3));
        store.carry(10..);
        let came = returned(&store);
        assert!(matches!(&came[..], [Err(failure)] if failure.name == name), "{came:?}");
        assert_eq!((accepted(&store, 5), store.tables.mailbox.len()), (0, 0));
    }
}

/// The owner was looked up, and then another instance took the token: the letter stays, and goes to the claimant, once.
#[test]
fn h63_a_payload_on_its_way_to_the_old_owner_is_redirected_exactly_once() {
    let mut store = Store::held();
    store.start(hooked(5, "old", "t"));
    store.start(start(6, "new", 1));
    calls(&mut store, &resume_call(1), resuming("t", 3));
    let on_its_way = store.mail(&mut (10..));
    let forced = everstep_protocol::hook::Registration { force: true, ..registration("t") };
    report_of(&mut store, 6, |report| {
        report.opened.push(open(&call(CallKind::Hook, "h", 1), OpenWait::Hook(forced)));
        report.then = Then::Suspend;
    });
    let (number, claim) = store.tables.mailbox.last_key_value().unwrap();
    let takeover = store.delivery(*number, &claim.clone(), &mut std::iter::empty());
    // Also where both are in one batch.
    assert_eq!(
        store.batch(&[vec![takeover], on_its_way.clone()].concat()).answers(),
        [Answer::Done, Answer::Moved]
    );
    assert_eq!(store.batch(&on_its_way).answer(), Answer::Moved, "nothing of it was taken");
    assert_eq!((accepted(&store, 5), accepted(&store, 6)), (0, 0));
    store.carry(10..);
    assert_eq!((accepted(&store, 5), accepted(&store, 6)), (0, 1));
    assert_eq!(returned(&store), [Ok(named("new"))]);
    assert_eq!(store.batch(&on_its_way).answer(), Answer::Nothing);
}

#[test]
fn h45_a_call_that_was_dropped_hears_nothing_and_its_payload_is_kept() {
    let mut store = Store::held();
    store.start(hooked(5, "other", "t"));
    store.report(|report| report.opened = vec![open(&resume_call(1), resuming("t", 3))]);
    let after = Position(store.head().position.0);
    store.report(|report| {
        report.closed = vec![Closed { call: resume_call(1), after, hook: None }];
        report.then = Then::End(End::Complete(json("1")));
    });
    store.carry(10..);
    assert_eq!((accepted(&store, 5), returned(&store).len()), (1, 0));
}

/// A letter whose decision cannot be made or written goes back like any that was asked for.
#[test]
fn w22_a_payload_that_cannot_be_decided_goes_back() {
    let mut store = Store::held();
    store.start(hooked(5, "other", "t"));
    calls(&mut store, &resume_call(1), resuming("t", 3));
    let Some(Input::On { what: What::Letter(letter), .. }) = store.mail(&mut (10..)).pop() else { panic!() };
    assert!(matches!(&letter, Letter { said: Said::Resume { sent, .. }, .. } if sent.hook == HookId::START));
    let back = Input::Undelivered(Box::new(letter), everstep_engine::letter::undeliverable());
    assert_eq!(store.batch(&[back]).answer(), Answer::NotFound);
    store.carry(10..);
    assert!(returned(&store)[0].is_err());
    assert_eq!(store.head().run, Run(1));
}
