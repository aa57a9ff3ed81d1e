//! Proves who owns a token, when, and what becomes of payloads (rules H1 to H70, W22). Not: two claims at once, which meet in the
//! store's key, or what the body makes of it.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be built fails the test")]

mod support;

use everstep_engine::{Answer, Input, Status, What, hook::SentPayload, start::Start};
use everstep_protocol::{
    Call, CallKind, FailureKind, HookId, InstanceUid, Millis, Namespace, Position, Run, SessionId, Timestamp,
    Token,
    hook::{HookRetention, Registration, StartHook, Webhook, WebhookResponse},
    journal::{Awaiting, Closed, End, Fact, HookOutcome, Other},
    message::{Again, OpenWait, Report, Taken, Then},
};
use support::*;

const DAY: u64 = 86_400_000;

fn token(text: &str) -> Token {
    text.parse().unwrap()
}

fn key(text: &str) -> (Namespace, Token) {
    (Namespace::default(), token(text))
}

fn hooked(n: u128, id: &str, text: &str) -> Start {
    let hook = Some(StartHook::new(token(text)));
    Start { hook, ..start(n, id, 1) }
}

fn kept(n: u128, id: &str, text: &str, millis: u64) -> Start {
    let retention = Some(HookRetention::For(Millis(millis)));
    let hook = Some(StartHook { retention, metadata: Some(json("[7]")), ..StartHook::new(token(text)) });
    Start { hook, ..start(n, id, 1) }
}

fn owner(id: &str) -> Other {
    Other { workflow: workflow(), id: id.parse().unwrap() }
}

fn held_by(id: &str) -> Answer {
    Answer::HookHeld(owner(id))
}

fn payload(text: &str, hook: HookId, id: &str, value: u8) -> What {
    What::Payload(SentPayload {
        token: token(text),
        hook,
        app_id: String::new(),
        id: id.to_owned(),
        payload: json(&value.to_string()),
        fingerprint: fingerprint(value),
    })
}

fn hook_call(count: u32) -> Call {
    call(CallKind::Hook, "approval", count)
}

fn await_call(count: u32) -> Call {
    call(CallKind::Payload, "approval", count)
}

fn creates(count: u32, asked: Registration) -> everstep_protocol::message::Open {
    open(&hook_call(count), OpenWait::Hook(asked))
}

fn awaits_payload(count: u32, text: &str, hook: HookId) -> everstep_protocol::message::Open {
    open(&await_call(count), OpenWait::Payload(Awaiting { hook, token: token(text) }))
}

fn lets_go(count: u32, text: &str, after: u64) -> Closed {
    Closed { call: hook_call(count), after: Position(after), hook: Some(token(text)) }
}

fn forced(text: &str) -> Registration {
    Registration { force: true, ..registration(text) }
}

fn at(run: u32, position: u64) -> HookId {
    HookId { run: Run(run), position: Position(position) }
}

/// Instance `n` is claimed by a session of its own.
fn claim(store: &mut Store, n: u128) -> SessionId {
    let session = SessionId(uuid::Uuid::from_u128(0x50 + n));
    let out = store.batch(&[on(uid(n), What::Claim { session, have: None })]);
    assert_eq!(out.answer(), Answer::Granted);
    session
}

/// The holder of instance `n` reports, up to date.
fn report_of(store: &mut Store, n: u128, change: impl FnOnce(&mut Report)) -> Out {
    let input = next_report_of(store, n, change);
    store.batch(&[input])
}

fn next_report_of(store: &Store, n: u128, change: impl FnOnce(&mut Report)) -> Input {
    let lease = store.tables.leases[&(uid(n), everstep_engine::rows::Subject::INSTANCE)];
    let head = &store.tables.heads[&uid(n)];
    let mut next = report(uid(n), lease.epoch.0, head.reports + 1, head.position.0);
    change(&mut next);
    on(uid(n), reported(lease.session, next))
}

fn tell(store: &mut Store, n: u128, what: What) -> Out {
    store.batch(&[on(uid(n), what)])
}

fn ends(report: &mut Report) {
    report.then = Then::End(End::Complete(json("1")));
}

fn outcomes(store: &Store, n: u128) -> Vec<HookOutcome> {
    let outcome = |fact: &Fact| match fact {
        Fact::Registered(registered) => Some(registered.outcome.clone()),
        _ => None,
    };
    store.tables.journal[&uid(n)].iter().filter_map(|entry| outcome(&entry.fact)).collect()
}

fn received(store: &Store, n: u128) -> Vec<String> {
    let text = |fact: &Fact| match fact {
        Fact::Received(received) => Some(received.payload.as_str().to_owned()),
        _ => None,
    };
    store.tables.journal[&uid(n)].iter().filter_map(|entry| text(&entry.fact)).collect()
}

fn owned(hook: HookId) -> HookOutcome {
    HookOutcome::Owned { hook, from: None }
}

fn conflict(id: &str) -> HookOutcome {
    HookOutcome::Conflict { owner: owner(id) }
}

fn owner_of(store: &Store, text: &str) -> Option<InstanceUid> {
    store.tables.hooks.get(&key(text)).map(|row| row.owner)
}

/// One instance with a start hook, held.
fn started_with_hook() -> Store {
    let mut store = Store::default();
    assert_eq!(store.start(hooked(1, "i", "t")).answer(), Answer::Created);
    claim(&mut store, 1);
    store
}

#[test]
fn h01_h04_a_start_with_a_free_token_creates_one_instance_that_owns_it() {
    let mut store = Store::default();
    let out = store.start(kept(1, "i", "t", DAY));
    assert_eq!((out.answer(), out.entries()), (Answer::Created, vec!["started"]));
    assert_eq!((out.writes.created.len(), out.writes.hooks.len()), (1, 1), "one transaction");
    let row = &store.tables.hooks[&key("t")];
    assert_eq!((row.owner, row.id, &row.name), (uid(1), HookId::START, &owner("i")));
    assert_eq!((row.retain_until, row.since), (Some(NOW.plus(Millis(DAY))), NOW), "H14");
    assert_eq!(row.metadata, Some(json("[7]")), "H11");
    let Fact::Started(started) = &store.tables.journal[&uid(1)][0].fact else { panic!() };
    assert_eq!(started.hook, Some(token("t")));
}

#[test]
fn h02_h03_h32_a_duplicate_is_refused_with_the_owners_name_and_leaves_nothing() {
    let mut store = Store::default();
    let starts = [hooked(1, "a", "t"), hooked(2, "b", "t"), hooked(3, "c", "t")];
    let inputs: Vec<_> = starts.into_iter().map(|start| Input::Start(Box::new(start))).collect();
    let out = store.batch(&inputs);
    assert_eq!(out.answers(), [Answer::Created, held_by("a"), held_by("a")], "in one batch");
    assert_eq!(store.start(hooked(4, "d", "t")).answer(), held_by("a"), "in another");
    let left = (store.tables.heads.len(), store.tables.ready.len(), store.tables.names.len());
    assert_eq!(left, (1, 1, 1));
}

#[test]
fn h36_tokens_are_apart_by_namespace() {
    let mut store = Store::default();
    let mut other = hooked(2, "b", "t");
    other.name.namespace = Namespace::new("test").unwrap();
    assert_eq!(store.start(hooked(1, "a", "t")).answer(), Answer::Created);
    assert_eq!(store.start(other).answer(), Answer::Created);
}

#[test]
fn h31_a_redelivery_gets_the_decision_that_was_kept() {
    let mut store = Store::default();
    let with = |start: Start, id: &str| Start { message: Some(message(id)), ..start };
    assert_eq!(store.start(with(hooked(1, "a", "t"), "m")).answer(), Answer::Created);
    assert_eq!(store.start(with(hooked(2, "b", "t"), "n")).answer(), held_by("a"));
    tell(&mut store, 1, What::Terminate { operation: "o".to_owned(), reason: None });
    assert_eq!(store.start(with(hooked(3, "c", "t"), "m")).answer(), Answer::Created, "of the first");
    assert_eq!(store.start(with(hooked(4, "d", "t"), "n")).answer(), held_by("a"), "though it is free now");
    assert_eq!(store.tables.heads.len(), 1);
    // By its own id it is known before its token is looked at.
    assert_eq!(store.start(hooked(5, "a", "t")).answer(), Answer::Exists(Status::Terminated));
}

#[test]
fn h05_h06_what_comes_before_the_body_is_kept_and_received_in_order() {
    let mut store = Store::default();
    store.start(hooked(1, "i", "t"));
    for value in 1..=3 {
        let sent = payload("t", HookId::START, &format!("r{value}"), value);
        assert_eq!(store.tell(sent).answer(), Answer::Done);
    }
    claim(&mut store, 1);
    for count in 1..=3 {
        let out = store.report(|report| {
            report.opened.push(awaits_payload(count, "t", HookId::START));
            report.then = Then::Suspend;
        });
        assert_eq!((out.entries(), out.taken()), (vec!["opened", "received"], vec![Taken::Kept]));
    }
    assert_eq!(received(&store, 1), ["1", "2", "3"]);
}

#[test]
fn h07_unread_payloads_harm_nothing() {
    let mut store = started_with_hook();
    store.tell(payload("t", HookId::START, "r", 1));
    assert_eq!(store.report(ends).answer(), Answer::Taken);
    assert_eq!((store.state(), store.head().unread), ("ended", 1));
}

#[test]
fn h12_h51_without_retention_a_token_is_free_as_soon_as_its_owner_ends() {
    let ends_of: [fn(&mut Store) -> Out; 3] = [
        |store| store.report(ends),
        |store| store.report(|report| report.then = Then::End(End::Errored(error("no")))),
        |store| store.tell(What::Terminate { operation: "o".to_owned(), reason: None }),
    ];
    for end in ends_of {
        let mut store = started_with_hook();
        store.report(|report| report.opened.push(creates(1, registration("u"))));
        assert_eq!((owner_of(&store, "t"), owner_of(&store, "u")), (Some(uid(1)), Some(uid(1))));
        end(&mut store);
        assert_eq!((owner_of(&store, "t"), owner_of(&store, "u")), (None, None));
        assert_eq!(store.start(hooked(2, "j", "t")).answer(), Answer::Created);
    }
}

#[test]
fn h13_h16_h17_h18_h19_a_retention_outlasts_the_end_and_no_longer() {
    let mut store = Store::default();
    store.start(kept(1, "i", "t", DAY));
    claim(&mut store, 1);
    store.pass(2 * DAY);
    assert_eq!(store.start(hooked(2, "j", "t")).answer(), held_by("i"), "H13: it owns it to its end");
    store.report(ends);
    assert_eq!(owner_of(&store, "t"), None, "its time had passed before");

    let mut store = Store::default();
    store.start(kept(1, "i", "t", DAY));
    claim(&mut store, 1);
    store.report(ends);
    let row = store.tables.hooks[&key("t")].clone();
    assert_eq!((row.ended, row.metadata), (true, Some(json("[7]"))), "H17");
    assert_eq!(store.start(hooked(2, "j", "t")).answer(), held_by("i"), "H16");
    let sent = store.tell(payload("t", HookId::START, "r", 1));
    assert_eq!(sent.answer(), Answer::Refused(Status::Complete), "H18");
    store.pass(DAY - 1);
    assert_eq!(store.start(hooked(3, "k", "t")).answer(), held_by("i"));
    store.pass(1);
    assert_eq!(store.start(hooked(4, "l", "t")).answer(), Answer::Created, "H19: nobody has swept");
    assert_eq!(owner_of(&store, "t"), Some(uid(4)));
}

#[test]
fn h20_a_cancelled_owner_keeps_its_token_by_its_retention() {
    let mut store = Store::default();
    store.start(kept(1, "i", "t", DAY));
    claim(&mut store, 1);
    let cancel = What::Cancel { operation: "c".to_owned(), reason: None, within: Millis(5), rollback: false };
    store.tell(cancel);
    store.report(|report| report.then = Then::End(End::Cancelled { reason: None }));
    assert_eq!(store.start(hooked(2, "j", "t")).answer(), held_by("i"));
    store.pass(DAY);
    assert_eq!(store.start(hooked(3, "k", "t")).answer(), Answer::Created);
}

#[test]
fn h55_an_instance_is_kept_as_long_as_its_token() {
    let mut store = Store::default();
    store.rules.retention.default.complete = Millis(1);
    store.start(kept(1, "i", "t", DAY));
    claim(&mut store, 1);
    store.report(ends);
    assert_eq!(store.tables.expiries[&uid(1)], NOW.plus(Millis(DAY)));
    store.pass(DAY - 1);
    assert_eq!(store.tell(What::Expire).answer(), Answer::Nothing);
    store.pass(1);
    assert_eq!(store.tell(What::Expire).answer(), Answer::Done);
    assert_eq!(owner_of(&store, "t"), None);
}

#[test]
fn h55_to_delete_an_instance_frees_its_tokens() {
    let mut store = Store::default();
    store.start(kept(1, "i", "t", DAY));
    claim(&mut store, 1);
    store.report(ends);
    store.tell(What::Delete { operation: "d".to_owned(), terminate: false });
    assert_eq!(store.start(hooked(2, "j", "t")).answer(), Answer::Created);
}

#[test]
fn h30_h54_a_retention_ends_in_the_future_and_within_the_limit() {
    let mut store = Store::default();
    let with = |retention| {
        let hook = Some(StartHook { retention: Some(retention), ..StartHook::new(token("t")) });
        Start { hook, ..start(1, "i", 1) }
    };
    let longest = store.rules.limits.hook_retention;
    for wrong in [
        HookRetention::Until(NOW),
        HookRetention::Until(Timestamp(NOW.0 - 1)),
        HookRetention::For(longest.saturating_add(Millis(1))),
    ] {
        assert_eq!(store.start(with(wrong)).answer(), Answer::HookRetention, "{wrong:?}");
    }
    assert_eq!(store.start(with(HookRetention::For(longest))).answer(), Answer::Created);
    let mut store = Store::held();
    store.report(|report| {
        let too_long = Some(HookRetention::For(longest.saturating_add(Millis(1))));
        report.opened.push(creates(1, Registration { retention: too_long, ..registration("u") }));
    });
    let HookOutcome::Refused(failure) = &outcomes(&store, 1)[0] else { panic!() };
    assert_eq!(failure.kind, FailureKind::Invalid);
    assert_eq!((owner_of(&store, "u"), store.head().hooks), (None, 0));
}

#[test]
fn h21_h22_h23_a_start_hook_that_is_let_go_is_free_at_once() {
    let mut store = Store::default();
    store.start(kept(1, "i", "t", DAY));
    claim(&mut store, 1);
    store.report(|report| report.closed.push(lets_go(1, "t", 1)));
    assert_eq!(owner_of(&store, "t"), None, "whatever its retention");
    assert_eq!(store.start(hooked(2, "j", "t")).answer(), Answer::Created);
    assert_eq!((store.state(), store.tables.heads[&uid(2)].status), ("held", Status::Open));
    // Twice is nothing, also where somebody else has it by now.
    store.report(|report| report.closed.push(lets_go(1, "t", 1)));
    assert_eq!(owner_of(&store, "t"), Some(uid(2)), "H52");
    let sent = store.tell(payload("t", HookId::START, "r", 1));
    assert_eq!(sent.answer(), Answer::Moved, "H50");
}

#[test]
fn h24_a_hook_that_is_let_go_as_the_body_returns_has_no_retention() {
    let mut store = Store::default();
    store.start(kept(1, "i", "t", DAY));
    claim(&mut store, 1);
    store.report(|report| {
        report.closed.push(lets_go(1, "t", 1));
        ends(report);
    });
    assert_eq!((store.state(), owner_of(&store, "t")), ("ended", None));
}

#[test]
fn h25_a_token_that_was_let_go_can_be_claimed_again() {
    let mut store = started_with_hook();
    // In one report, too.
    store.report(|report| {
        report.closed.push(lets_go(1, "t", 1));
        report.opened.push(creates(2, registration("t")));
    });
    assert_eq!(outcomes(&store, 1), [owned(at(1, 3))]);
    assert_eq!(store.tables.hooks[&key("t")].id, at(1, 3));
    let mut store = started_with_hook();
    store.report(|report| report.closed.push(lets_go(1, "t", 1)));
    store.start(hooked(2, "j", "t"));
    store.report(|report| report.opened.push(creates(2, registration("t"))));
    assert_eq!(outcomes(&store, 1), [conflict("j")]);
}

#[test]
fn h36_h37_h38_the_second_who_creates_a_token_gets_a_stored_conflict() {
    let mut store = Store::default();
    store.start(start(1, "a", 1));
    store.start(start(2, "b", 1));
    claim(&mut store, 1);
    claim(&mut store, 2);
    let of = |store: &Store, n| {
        next_report_of(store, n, |report| {
            report.opened.push(creates(1, registration("t")));
            report.then = Then::Suspend;
        })
    };
    let inputs = [of(&store, 1), of(&store, 2)];
    let out = store.batch(&inputs);
    assert_eq!(out.taken(), [Taken::Kept, Taken::Kept], "what came of it is pushed");
    assert_eq!((outcomes(&store, 1), outcomes(&store, 2)), (vec![owned(at(1, 2))], vec![conflict("a")]));
    assert_eq!(store.tables.heads[&uid(2)].hooks, 0);
}

#[test]
fn h40_a_token_that_is_the_instances_own_is_no_conflict() {
    let mut store = Store::held();
    store.report(|report| report.opened.push(creates(1, registration("t"))));
    store.report(|report| report.opened.push(creates(2, registration("t"))));
    assert_eq!(outcomes(&store, 1), [owned(at(1, 2)), owned(at(1, 2))]);
}

#[test]
fn h41_h42_each_payload_wakes_the_instance_and_none_is_lost() {
    let mut store = Store::held();
    store.report(|report| report.opened.push(creates(1, registration("t"))));
    let hook = at(1, 2);
    store.report(|report| {
        report.opened.push(awaits_payload(1, "t", hook));
        report.then = Then::Suspend;
    });
    assert_eq!(store.state(), "waiting");
    let out = store.tell(payload("t", hook, "r1", 1));
    assert_eq!((out.answer(), out.entries(), out.sent()), (Answer::Done, vec!["received"], vec!["offer"]));
    assert_eq!(store.tell(payload("t", hook, "r2", 2)).entries(), Vec::<&str>::new());
    claim(&mut store, 1);
    let out = store.report(|report| report.opened.push(awaits_payload(2, "t", hook)));
    assert_eq!(out.entries(), ["opened", "received"]);
    assert_eq!(received(&store, 1), ["1", "2"]);
}

#[test]
fn h43_h44_a_payload_that_a_dropped_await_got_goes_to_the_next() {
    let mut store = Store::held();
    store.report(|report| report.opened.push(creates(1, registration("t"))));
    let hook = at(1, 2);
    store.report(|report| report.opened.push(awaits_payload(1, "t", hook)));
    let seen = store.head().position.0;
    store.tell(payload("t", hook, "r", 1));
    // The body had seen nothing of it when it dropped the await for a sleep that won.
    store.report(|report| report.closed.push(dropped(&await_call(1), seen)));
    assert_eq!(store.head().unread, 1);
    store.report(|report| report.opened.push(awaits_payload(2, "t", hook)));
    assert_eq!(received(&store, 1), ["1", "1"], "once to the dropped one, and again");
    assert_eq!(store.head().unread, 0);
}

#[test]
fn h46_h50_who_is_not_there_is_not_resumed() {
    let mut store = Store::held();
    assert_eq!(store.tell(payload("t", HookId::START, "r", 1)).answer(), Answer::Moved);
    store.report(|report| report.opened.push(creates(1, registration("t"))));
    assert_eq!(store.tell(payload("t", at(1, 9), "r", 1)).answer(), Answer::Moved, "another hook");
    store.report(ends);
    assert_eq!(store.tell(payload("t", at(1, 2), "r", 1)).answer(), Answer::Refused(Status::Complete));
    assert_eq!(store.head().events, 0, "nothing was kept");
    assert_eq!(tell(&mut store, 9, payload("t", at(1, 2), "r", 1)).answer(), Answer::NotFound);
}

#[test]
fn h48_a_resume_id_is_kept_once() {
    let mut store = started_with_hook();
    let hook = HookId::START;
    assert_eq!(store.tell(payload("t", hook, "r", 1)).answer(), Answer::Done);
    assert_eq!(store.tell(payload("t", hook, "r", 1)).answer(), Answer::Done);
    assert_eq!(store.tell(payload("t", hook, "r", 2)).answer(), Answer::EventIdTaken);
    assert_eq!(store.head().events, 1);
    store.report(|report| report.closed.push(lets_go(1, "t", 1)));
    assert_eq!(store.tell(payload("t", hook, "r", 1)).answer(), Answer::Done, "also when it is over");
    store.report(ends);
    assert_eq!(store.tell(payload("t", hook, "r", 1)).answer(), Answer::Done);
    assert_eq!(store.tell(payload("t", hook, "s", 1)).answer(), Answer::Refused(Status::Complete));
}

#[test]
fn h49_a_resume_and_an_end_in_one_batch_are_in_order() {
    for resume_first in [true, false] {
        let mut store = started_with_hook();
        let end = next_report_of(&store, 1, ends);
        let resume = on(uid(1), payload("t", HookId::START, "r", 1));
        let inputs = if resume_first { [resume, end] } else { [end, resume] };
        let answers = store.batch(&inputs).answers();
        let kept = u64::from(resume_first);
        assert_eq!((store.head().events, store.head().unread), (kept, kept), "{answers:?}");
        assert_eq!(answers.contains(&Answer::Refused(Status::Complete)), !resume_first);
    }
}

#[test]
fn h52_an_await_of_a_hook_that_was_let_go_gets_what_is_left_and_then_ends() {
    let mut store = started_with_hook();
    store.tell(payload("t", HookId::START, "r", 1));
    store.report(|report| report.closed.push(lets_go(1, "t", 1)));
    let out = store.report(|report| report.opened.push(awaits_payload(1, "t", HookId::START)));
    assert_eq!(out.entries(), ["opened", "received"]);
    let out = store.report(|report| {
        report.opened.push(awaits_payload(2, "t", HookId::START));
        report.then = Then::Suspend;
    });
    assert_eq!((out.entries(), out.taken()), (vec!["opened", "fired"], vec![Taken::Kept]));
}

#[test]
fn h54_h67_what_contradicts_itself_is_refused() {
    let webhook = Registration { webhook: Some(Webhook::default()), ..registration("t") };
    let wrong = [
        Registration { force: true, ..webhook.clone() },
        Registration { retention: Some(HookRetention::For(Millis(1))), ..webhook.clone() },
    ];
    for asked in wrong {
        let mut store = Store::held();
        store.report(|report| report.opened.push(creates(1, asked)));
        assert!(matches!(&outcomes(&store, 1)[..], [HookOutcome::Refused(_)]));
    }
    let mut store = Store::held();
    store.report(|report| report.opened.push(creates(1, webhook)));
    assert!(store.tables.hooks[&key("t")].webhook.is_some());
}

#[test]
fn h57_a_schema_that_cannot_be_used_refuses_the_hook() {
    let with = |schema: &str| Registration { schema: Some(json(schema)), ..registration("t") };
    let refused = |rules: fn(&everstep_protocol::Payload) -> Result<(), String>, asked| {
        let mut store = Store::held();
        store.rules.compiles = rules;
        store.report(|report| report.opened.push(creates(1, asked)));
        match outcomes(&store, 1).remove(0) {
            HookOutcome::Refused(failure) => Err(failure.message),
            _ => Ok(store.tables.hooks[&key("t")].schema.clone()),
        }
    };
    assert_eq!(refused(|_| Ok(()), with(r#"{"type":"null"}"#)), Ok(Some(json(r#"{"type":"null"}"#))));
    let outside = refused(|_| Ok(()), with(r#"{"$ref":"https://example.com"}"#)).unwrap_err();
    assert!(outside.contains("example.com"), "{outside}");
    let unusable = refused(|_| Err("no such type".to_owned()), with("{}")).unwrap_err();
    assert!(unusable.contains("no such type") && unusable.contains("again"), "{unusable}");
}

/// Between the look-up, for which the payload was checked, and the decision the hook was let go and its token claimed again, with
/// another schema: that is another hook.
#[test]
fn h57_what_was_checked_for_another_hook_is_not_kept() {
    let mut store = Store::held();
    store.report(|report| report.opened.push(creates(1, registration("t"))));
    let looked_at = store.tables.hooks[&key("t")].id;
    store.report(|report| report.closed.push(lets_go(1, "t", 2)));
    let schema = Some(json(r#"{"type":"null"}"#));
    store.report(|report| report.opened.push(creates(2, Registration { schema, ..registration("t") })));
    let out = store.tell(payload("t", looked_at, "r-1", 1));
    assert_eq!((out.answer(), out.entries()), (Answer::Moved, vec![]));
    assert!(store.tables.events.is_empty());
    let now = store.tables.hooks[&key("t")].id;
    assert_eq!(
        store.tell(payload("t", now, "r-1", 1)).answer(),
        Answer::Done,
        "nothing was kept under its id"
    );
}

#[test]
fn h58_an_answer_of_the_code_is_kept_with_its_request_and_told_and_the_first_one_stays() {
    let answers = |count, status| {
        open(&call(CallKind::Reply, "approval", count), OpenWait::Reply(reply("t", "r-1", status)))
    };
    let mut store = Store::held();
    store.report(|report| report.opened.push(creates(1, registration("t"))));
    store.tell(payload("t", at(1, 2), "r-1", 1));
    let out = store.report(|report| {
        report.opened.push(answers(1, 201));
        report.then = Then::Suspend;
    });
    assert_eq!(
        (out.entries(), out.taken()),
        (vec!["opened", "fired"], vec![Taken::Kept]),
        "it goes on at once"
    );
    assert!(out.sent().contains(&"reply"), "{:?}", out.sent());
    assert_eq!(store.tables.heads[&uid(1)].waits, 0);
    let to = everstep_engine::hook::ReplyKey { instance: uid(1), token: token("t"), id: "r-1".to_owned() };
    assert_eq!(store.tables.replies[&to].status, 201);
    store.report(|report| report.opened.push(answers(2, 500)));
    assert_eq!(store.tables.replies[&to].status, 201);
    // Also of two in one report.
    store.tell(payload("t", at(1, 2), "r-2", 1));
    let second = |count, status| {
        open(&call(CallKind::Reply, "approval", count), OpenWait::Reply(reply("t", "r-2", status)))
    };
    store.report(|report| report.opened.extend([second(3, 202), second(4, 500)]));
    let to = everstep_engine::hook::ReplyKey { id: "r-2".to_owned(), ..to };
    assert_eq!(store.tables.replies[&to].status, 202);
}

/// A worker that does not look at what its code answers harms nobody else: nothing of it is kept, and no caller is sent it.
#[test]
fn h58_an_answer_that_cannot_be_sent_parks_its_instance() {
    let with = |change: fn(&mut WebhookResponse)| {
        let mut reply = reply("t", "r-1", 200);
        change(&mut reply.response);
        open(&call(CallKind::Reply, "approval", 1), OpenWait::Reply(reply))
    };
    let wrong: [fn(&mut WebhookResponse); 5] = [
        |response| response.status = 99,
        |response| response.headers.push(("a b".to_owned(), "v".to_owned())),
        |response| response.headers.push(("x-a".to_owned(), "v\r\nset-cookie: a".to_owned())),
        |response| response.headers.push(("content-length".to_owned(), "0".to_owned())),
        |response| (response.body, response.base64) = (Some("no base64!".to_owned()), true),
    ];
    for change in wrong {
        let mut store = Store::held();
        store.report(|report| report.opened.push(creates(1, registration("t"))));
        store.tell(payload("t", at(1, 2), "r-1", 1));
        let out = store.report(|report| report.opened.push(with(change)));
        assert!(out.entries().iter().all(|entry| *entry != "opened"), "{:?}", out.entries());
        assert!(!out.sent().contains(&"reply") && store.tables.replies.is_empty(), "{:?}", out.sent());
        assert_eq!(store.state(), "parked");
    }
}

/// Instance 1 (`a`) owns `t` and awaits it; instance 2 (`b`) claims it by force. The letters are not carried yet.
fn taking(await_first: bool) -> (Store, HookId) {
    let mut store = Store::default();
    for (n, id) in [(1, "a"), (2, "b"), (3, "c")] {
        store.start(start(n, id, 1));
        claim(&mut store, n);
    }
    store.report(|report| report.opened.push(creates(1, registration("t"))));
    let hook = at(1, 2);
    if await_first {
        store.report(|report| {
            report.opened.push(awaits_payload(1, "t", hook));
            report.then = Then::Suspend;
        });
    }
    let out = report_of(&mut store, 2, |report| {
        report.opened.push(creates(1, forced("t")));
        report.then = Then::Suspend;
    });
    assert_eq!((out.entries(), out.taken()), (vec!["opened"], vec![Taken::Whole]));
    (store, hook)
}

#[test]
fn h59_h60_h62_h66_h70_a_forced_claim_moves_the_token_and_wakes_its_owner() {
    let (mut store, hook) = taking(true);
    assert_eq!(owner_of(&store, "t"), Some(uid(1)), "only its owner moves it (W22)");
    store.carry(std::iter::empty());
    let row = store.tables.hooks[&key("t")].clone();
    assert_eq!((row.owner, row.id, row.from), (uid(2), at(1, 2), Some(owner("a"))));
    assert_eq!(store.words()[3..], ["opened", "taken_over", "fired"], "the await is over");
    let Fact::TakenOver(taken) = &store.tables.journal[&uid(1)][4].fact else { panic!() };
    assert_eq!((taken.hook, &taken.by, taken.by_hook), (hook, &owner("b"), at(1, 2)));
    assert_eq!(store.state(), "ready", "H66");
    assert_eq!(outcomes(&store, 1), [owned(hook)], "H62: it had registered");
    assert_eq!(outcomes(&store, 2), [HookOutcome::Owned { hook: at(1, 2), from: Some(owner("a")) }]);
    assert_eq!(store.tell(payload("t", hook, "r", 1)).answer(), Answer::Moved, "H63");
    assert_eq!(tell(&mut store, 2, payload("t", at(1, 2), "r", 1)).answer(), Answer::Done, "H59");
    claim(&mut store, 1);
    let out = store.report(|report| report.opened.push(awaits_payload(2, "t", hook)));
    assert_eq!(out.entries(), ["opened", "fired"], "H60: later awaits end too");
}

#[test]
fn h61_what_was_kept_before_is_still_the_old_owners() {
    let (mut store, hook) = taking(false);
    store.tell(payload("t", hook, "r", 1));
    store.carry(std::iter::empty());
    let out = store.report(|report| report.opened.push(awaits_payload(1, "t", hook)));
    assert_eq!(out.entries(), ["opened", "received"]);
    let out = store.report(|report| report.opened.push(awaits_payload(2, "t", hook)));
    assert_eq!(out.entries(), ["opened", "fired"]);
}

#[test]
fn h64_a_finished_owner_is_taken_from_too() {
    let mut store = Store::default();
    store.start(kept(1, "a", "t", DAY));
    store.start(start(2, "b", 1));
    claim(&mut store, 1);
    claim(&mut store, 2);
    store.report(ends);
    report_of(&mut store, 2, |report| report.opened.push(creates(1, forced("t"))));
    store.carry(std::iter::empty());
    assert_eq!(owner_of(&store, "t"), Some(uid(2)));
    assert_eq!(outcomes(&store, 2), [HookOutcome::Owned { hook: at(1, 2), from: Some(owner("a")) }]);
    assert_eq!(store.words().last(), Some(&"ended"), "nothing is written after an end");
}

#[test]
fn h65_of_a_chain_the_last_owns_it_and_each_knows_its_own_claimant() {
    let (mut store, _) = taking(false);
    // The third claims before the second has it: its letter goes to the first.
    report_of(&mut store, 3, |report| report.opened.push(creates(1, forced("t"))));
    store.carry(std::iter::empty());
    assert_eq!(owner_of(&store, "t"), Some(uid(3)));
    let by = |n| {
        let taken = store.tables.journal[&uid(n)].iter().find_map(|entry| match &entry.fact {
            Fact::TakenOver(taken) => Some(taken.by.clone()),
            _ => None,
        });
        taken.unwrap()
    };
    assert_eq!((by(1), by(2)), (owner("b"), owner("c")));
    assert_eq!(outcomes(&store, 3), [HookOutcome::Owned { hook: at(1, 2), from: Some(owner("b")) }]);
}

#[test]
fn w22_a_claim_whose_owner_has_let_go_meanwhile_takes_what_is_free() {
    let (mut store, _) = taking(false);
    store.report(|report| report.closed.push(lets_go(1, "t", 3)));
    store.carry(std::iter::empty());
    assert_eq!(outcomes(&store, 2), [owned(at(1, 2))]);
    assert_eq!(owner_of(&store, "t"), Some(uid(2)));
    // The owner was deleted.
    let (mut store, _) = taking(false);
    store.tell(What::Delete { operation: "d".to_owned(), terminate: true });
    store.carry(std::iter::empty());
    assert_eq!((outcomes(&store, 2), owner_of(&store, "t")), (vec![owned(at(1, 2))], Some(uid(2))));
}

#[test]
fn w22_what_a_claimant_gets_too_late_it_gives_back() {
    let late: [fn(&mut Store) -> Out; 3] = [
        |store| tell(store, 2, What::Terminate { operation: "o".to_owned(), reason: None }),
        |store| tell(store, 2, What::Restart { operation: "o".to_owned(), prepared: None }),
        |store| tell(store, 2, What::Delete { operation: "o".to_owned(), terminate: true }),
    ];
    for (index, late) in late.into_iter().enumerate() {
        // It is over before its owner hears of it, or after.
        let (mut store, _) = taking(false);
        late(&mut store);
        store.carry(std::iter::empty());
        assert_eq!(owner_of(&store, "t"), None, "{index}");
        let (mut store, _) = taking(false);
        let first = store.delivery(1, &store.tables.mailbox[&1].clone(), &mut std::iter::empty());
        store.batch(&[first]);
        assert_eq!(owner_of(&store, "t"), Some(uid(2)), "moved");
        late(&mut store);
        store.carry(std::iter::empty());
        assert_eq!(owner_of(&store, "t"), None, "{index}");
    }
}

/// The token is the claimant's, and the answer that says so is under way: letter 2.
fn moved() -> Store {
    let (mut store, _) = taking(false);
    let first = store.delivery(1, &store.tables.mailbox[&1].clone(), &mut std::iter::empty());
    store.batch(&[first]);
    assert_eq!(owner_of(&store, "t"), Some(uid(2)));
    store
}

#[test]
fn h51_w22_a_late_answer_to_a_claim_costs_the_next_run_no_hook() {
    let (mut store, _) = taking(false);
    tell(&mut store, 2, What::Restart { operation: "o".to_owned(), prepared: None });
    claim(&mut store, 2);
    report_of(&mut store, 2, |report| report.opened.push(creates(1, registration("u"))));
    store.carry(std::iter::empty());
    assert_eq!((owner_of(&store, "t"), owner_of(&store, "u")), (None, Some(uid(2))));
    report_of(&mut store, 2, ends);
    assert_eq!(owner_of(&store, "u"), None, "its end frees it");
}

#[test]
fn h40_h70_w22_a_late_answer_to_a_claim_takes_nothing_from_the_hook_that_was_given_since() {
    let (mut store, _) = taking(false);
    tell(&mut store, 2, What::Restart { operation: "o".to_owned(), prepared: None });
    let first = store.delivery(1, &store.tables.mailbox[&1].clone(), &mut std::iter::empty());
    store.batch(&[first]);
    claim(&mut store, 2);
    report_of(&mut store, 2, |report| report.opened.push(creates(1, registration("t"))));
    let given = HookOutcome::Owned { hook: at(1, 2), from: Some(owner("a")) };
    assert_eq!(outcomes(&store, 2), [given]);
    let from = |store: &Store| store.tables.hooks[&key("t")].from.clone();
    assert_eq!(from(&store), Some(owner("a")), "H70: it is still told from whom it was taken");
    store.carry(std::iter::empty());
    assert_eq!((owner_of(&store, "t"), from(&store)), (Some(uid(2)), Some(owner("a"))));
    report_of(&mut store, 2, ends);
    assert_eq!(owner_of(&store, "t"), None, "its end frees it");
}

#[test]
fn w22_an_answer_that_finds_its_claimant_deleted_takes_nothing_from_whoever_claims_meanwhile() {
    let mut store = moved();
    tell(&mut store, 2, What::Delete { operation: "d".to_owned(), terminate: true });
    assert_eq!(owner_of(&store, "t"), None);
    let (number, letter) =
        store.tables.mailbox.iter().next().map(|(number, letter)| (*number, letter.clone())).unwrap();
    let Input::On { what: What::Letter(letter), .. } =
        store.delivery(number, &letter, &mut std::iter::empty())
    else {
        panic!("it is for an instance")
    };
    let back = Input::Undelivered(Box::new(letter), everstep_engine::letter::gone());
    let start = Input::Start(Box::new(hooked(9, "e", "t")));
    assert_eq!(store.batch(&[start, back]).answers(), [Answer::Created, Answer::NotFound]);
    assert_eq!(owner_of(&store, "t"), Some(uid(9)));
}

/// Instance 2 was deleted before its claim was heard of: the row is nobody's, and the answer that says so is under way.
fn orphaned() -> Store {
    let (mut store, _) = taking(false);
    tell(&mut store, 2, What::Delete { operation: "d".to_owned(), terminate: true });
    let first = store.delivery(1, &store.tables.mailbox[&1].clone(), &mut std::iter::empty());
    store.batch(&[first]);
    assert_eq!(owner_of(&store, "t"), Some(uid(2)));
    store
}

#[test]
fn h32_h55_a_token_whose_claimant_was_deleted_is_free_and_its_late_answer_harms_nobody() {
    let mut store = orphaned();
    assert_eq!(store.start(hooked(9, "e", "t")).answer(), Answer::Created);
    assert_eq!(store.start(hooked(10, "f", "t")).answer(), held_by("e"));
    store.carry(std::iter::empty());
    assert_eq!(owner_of(&store, "t"), Some(uid(9)));
    for asked in [registration("t"), forced("t")] {
        let mut store = orphaned();
        report_of(&mut store, 3, |report| report.opened.push(creates(1, asked)));
        assert_eq!(outcomes(&store, 3), [owned(at(1, 2))]);
        store.carry(std::iter::empty());
        assert_eq!(owner_of(&store, "t"), Some(uid(3)));
    }
    // One letter to the owner that was, and one that nobody can take: each may be in the batch of the next claim.
    let mut store = orphaned();
    let (number, letter) = store.tables.mailbox.pop_first().unwrap();
    store.tables.mailbox.insert(number, letter.clone());
    let Input::On { what: What::Letter(letter), .. } =
        store.delivery(number, &letter, &mut std::iter::empty())
    else {
        panic!("it is for an instance")
    };
    let back = Input::Undelivered(Box::new(letter), everstep_engine::letter::gone());
    let start = Input::Start(Box::new(hooked(9, "e", "t")));
    let mut other = store.clone();
    assert_eq!(store.batch(&[start.clone(), back.clone()]).answers(), [Answer::Created, Answer::NotFound]);
    assert_eq!(other.batch(&[back, start]).answers(), [Answer::NotFound, Answer::Created]);
    assert_eq!((owner_of(&store, "t"), owner_of(&other, "t")), (Some(uid(9)), Some(uid(9))));
}

/// The rows of a deleted instance go last: whoever claims its token in the same batch has to replace its row.
#[test]
fn h55_a_start_in_the_batch_in_which_the_owner_is_deleted_gets_its_token() {
    for ends_first in [false, true] {
        let mut store = Store::default();
        store.start(kept(1, "i", "t", DAY));
        if ends_first {
            claim(&mut store, 1);
            store.report(ends);
        }
        let delete = on(uid(1), What::Delete { operation: "d".to_owned(), terminate: true });
        let start = Input::Start(Box::new(hooked(9, "e", "t")));
        assert_eq!(store.batch(&[delete, start]).answers(), [Answer::Done, Answer::Created]);
        assert_eq!(owner_of(&store, "t"), Some(uid(9)));
    }
    // It had the token only since this very batch, from one that is open still.
    let (mut store, _) = taking(false);
    let moves = store.delivery(1, &store.tables.mailbox[&1].clone(), &mut std::iter::empty());
    let delete = on(uid(2), What::Delete { operation: "d".to_owned(), terminate: true });
    let start = Input::Start(Box::new(hooked(9, "e", "t")));
    assert_eq!(store.batch(&[moves, delete, start]).answers()[2], Answer::Created);
    store.carry(std::iter::empty());
    assert_eq!(owner_of(&store, "t"), Some(uid(9)));
}

#[test]
fn p36_hooks_and_their_unread_payloads_go_on_with_the_next_generation() {
    let mut store = started_with_hook();
    store.report(|report| report.opened.push(creates(1, registration("u"))));
    store.tell(payload("u", at(1, 2), "r", 1));
    store.tell(payload("t", HookId::START, "s", 2));
    store.report(|report| {
        report.then = Then::Again(Again { hook: Some(token("t")), ..again(2) });
    });
    let Fact::Started(started) = &store.tables.journal[&uid(1)][0].fact else { panic!() };
    assert_eq!(started.hook, Some(token("t")));
    claim(&mut store, 1);
    store.report(|report| report.opened.push(creates(1, registration("u"))));
    assert_eq!(outcomes(&store, 1), [owned(at(1, 2))], "the same hook");
    store.report(|report| {
        report.opened.push(awaits_payload(1, "u", at(1, 2)));
        report.opened.push(awaits_payload(2, "t", HookId::START));
    });
    assert_eq!(received(&store, 1), ["1", "2"]);
}

#[test]
fn p36_a_start_hook_that_is_gone_is_not_the_next_generations() {
    let mut store = started_with_hook();
    store.report(|report| {
        report.closed.push(lets_go(1, "t", 1));
        report.then = Then::Again(Again { hook: Some(token("t")), ..again(2) });
    });
    let Fact::Started(started) = &store.tables.journal[&uid(1)][0].fact else { panic!() };
    assert_eq!(started.hook, None);
}

#[test]
fn p31_a_restart_lets_hooks_go_but_not_the_start_hook() {
    let restart = |store: &mut Store| {
        store.tell(What::Restart { operation: "r".to_owned(), prepared: None });
        let Fact::Started(started) = &store.tables.journal[&uid(1)][0].fact else { panic!() };
        started.hook.clone()
    };
    let mut store = started_with_hook();
    store.report(|report| report.opened.push(creates(1, registration("u"))));
    store.tell(payload("t", HookId::START, "s", 2));
    assert_eq!(restart(&mut store), Some(token("t")));
    assert_eq!((owner_of(&store, "t"), owner_of(&store, "u")), (Some(uid(1)), None));
    claim(&mut store, 1);
    store.report(|report| report.opened.push(awaits_payload(1, "t", HookId::START)));
    assert_eq!(received(&store, 1), ["2"], "unread payloads are kept");
    // One that has ended has it only by its retention.
    for (millis, passed, has) in [(DAY, 0, true), (DAY, DAY, false)] {
        let mut store = Store::default();
        store.start(kept(1, "i", "t", millis));
        claim(&mut store, 1);
        store.report(ends);
        store.pass(passed);
        assert_eq!(restart(&mut store).is_some(), has);
        assert_eq!(store.tables.hooks.get(&key("t")).map(|row| row.ended), has.then_some(false));
    }
    let mut store = started_with_hook();
    store.report(ends);
    store.start(hooked(2, "j", "t"));
    assert_eq!(restart(&mut store), None, "somebody else has it");
}
