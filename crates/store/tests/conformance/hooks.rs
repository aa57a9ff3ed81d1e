//! Hooks: each token has one owner, what is kept outlasts its owner's end, and payloads come back in order.

use std::sync::Arc;

use everstep_engine::{
    Answer, Input, What,
    hook::{HookRow, ReplyKey, SentPayload},
    letter::Said,
    rows::Needs,
    start::Start,
};
use everstep_protocol::{
    Call, CallKind, CallName, Fingerprint, HookId, InstanceUid, Millis, Position, Run, SessionId, Token,
    hook::{HookRetention, Registration, StartHook, Webhook, WebhookResponse},
    journal::{Awaiting, Closed, Fact, HookOutcome, Other, Outcome, Reply, Resuming, Wait},
    message::{OpenWait, Then},
};
use everstep_store::{ErrorKind, Queue, Replied, Store};

use super::scene::{Reporting, Scene, ends, namespace, payload, sleeping, start, terminate, workflow};

pub(crate) fn token(text: &str) -> Token {
    text.parse().unwrap()
}

/// A start that claims a token.
pub(crate) fn hooked(id: &str, text: &str, retention: Option<u64>) -> Start {
    let retention = retention.map(|millis| HookRetention::For(Millis(millis)));
    let hook =
        StartHook { retention, metadata: Some(payload(r#"{"by":1.50}"#)), ..StartHook::new(token(text)) };
    Start { hook: Some(hook), ..start("orders", id, "{}") }
}

fn owner(id: &str) -> Other {
    Other { workflow: workflow("orders"), id: id.parse().unwrap() }
}

async fn begin(scene: &Scene, start: Start) -> (InstanceUid, Answer) {
    let uid = start.uid;
    (uid, scene.run(vec![Input::Start(Box::new(start))]).await.answers.remove(0))
}

async fn held(scene: &Scene, uid: InstanceUid) -> SessionId {
    let session = SessionId::generate();
    assert_eq!(scene.on(uid, What::Claim { session, have: None }).await, Answer::Granted);
    session
}

async fn report(scene: &Scene, uid: InstanceUid, session: SessionId, opens: Vec<(CallKind, OpenWait)>) {
    let head = scene.head(uid).await;
    let named = |kind, count| Call { kind, name: CallName::new("h").unwrap(), count };
    let mut reporting = Reporting::of(&head, session);
    for (kind, wait) in opens {
        reporting = reporting.open(sleeping(&named(kind, head.reports as u32 + 1), wait));
    }
    assert_eq!(scene.on(uid, reporting.then(Then::Continue)).await, Answer::Taken);
}

fn creates(text: &str, force: bool) -> (CallKind, OpenWait) {
    let asked = Registration { force, ..Registration::new(token(text)) };
    (CallKind::Hook, OpenWait::Hook(asked))
}

fn sent(text: &str, hook: HookId, id: &str, value: &str) -> What {
    let payload = payload(value);
    let fingerprint = Fingerprint::of(&payload).unwrap();
    let (token, app_id, id) = (token(text), String::new(), id.to_owned());
    What::Payload(SentPayload { token, hook, app_id, id, payload, fingerprint })
}

async fn row(scene: &Scene, text: &str) -> Option<HookRow> {
    let tokens = vec![(namespace(), token(text))];
    scene.load(Needs { tokens, ..Needs::default() }).await.rows.hooks.into_values().next()
}

async fn orphan(scene: &Scene, text: &str) -> Option<InstanceUid> {
    let tokens = vec![(namespace(), token(text))];
    scene.load(Needs { tokens, ..Needs::default() }).await.rows.orphans.into_values().next()
}

async fn outcomes(scene: &Scene, uid: InstanceUid) -> Vec<HookOutcome> {
    let entries = scene.journal(uid).await.into_iter();
    entries
        .filter_map(|entry| match entry.fact {
            Fact::Registered(registered) => Some(registered.outcome),
            _ => None,
        })
        .collect()
}

pub(crate) async fn h01_h02_a_token_has_one_owner_which_every_loser_is_told(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (uid, answer) = begin(&scene, hooked("o-1", "order:é/1", Some(60_000))).await;
    assert_eq!(answer, Answer::Created);
    let (_, answer) = begin(&scene, hooked("o-2", "order:é/1", None)).await;
    assert_eq!(answer, Answer::HookHeld(owner("o-1")));
    assert_eq!(scene.store.find(&super::scene::name_key("orders", "o-2")).await.unwrap(), None, "H3");
    let (_, answer) = begin(&scene, hooked("o-3", "order:É/1", None)).await;
    assert_eq!(answer, Answer::Created, "tokens differ by their bytes");
    let kept = row(&scene, "order:é/1").await.unwrap();
    assert_eq!((kept.owner, &kept.name, kept.id, kept.ended), (uid, &owner("o-1"), HookId::START, false));
    assert_eq!(kept.metadata, Some(payload(r#"{"by":1.50}"#)));
    assert_eq!(kept.retain_until, Some(kept.since.plus(Millis(60_000))));
    let head = scene.head(uid).await;
    assert_eq!((head.hooks, head.hooks_until), (1, kept.retain_until));
    let view = scene.store.hook(&namespace(), &token("order:é/1")).await.unwrap().unwrap();
    assert_eq!(view.hook, kept);
    let listed = scene.store.hooks(&namespace(), None, 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|view| view.token.as_str()).collect();
    assert_eq!(listed, ["order:É/1", "order:é/1"]);
    let after = token("order:É/1");
    assert_eq!(scene.store.hooks(&namespace(), Some(&after), 10).await.unwrap().len(), 1);
}

/// Two who have both seen a free token: the later one fails, and nothing of it is written.
pub(crate) async fn h36_a_token_taken_meanwhile_is_a_conflict(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let late = hooked("o-2", "t", None);
    let (key, row) = (
        (namespace(), token("t")),
        HookRow {
            owner: late.uid,
            name: owner("o-2"),
            id: HookId::START,
            since: everstep_protocol::Timestamp(1),
            retain_until: None,
            ended: false,
            webhook: None,
            schema: None,
            metadata: None,
            from: None,
            unheard: false,
        },
    );
    begin(&scene, hooked("o-1", "t", None)).await;
    let writes = everstep_engine::Writes { hooks: vec![(key, row)], ..Default::default() };
    let error = scene.write(Needs::default(), writes).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(begin(&scene, late).await.1, Answer::HookHeld(owner("o-1")));
}

pub(crate) async fn h12_h15_h16_h19_what_has_no_retention_is_free_at_the_end(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (free, _) = begin(&scene, hooked("o-1", "free", None)).await;
    let (long, _) = begin(&scene, hooked("o-2", "long", Some(60_000))).await;
    let (short, _) = begin(&scene, hooked("o-3", "short", Some(1))).await;
    for uid in [free, long, short] {
        scene.on(uid, terminate("op")).await;
    }
    assert_eq!(begin(&scene, hooked("o-4", "free", None)).await.1, Answer::Created);
    assert_eq!(begin(&scene, hooked("o-5", "long", None)).await.1, Answer::HookHeld(owner("o-2")));
    assert!(row(&scene, "long").await.unwrap().ended);
    // Its time has passed by now, or does so while this is repeated.
    let mut count = 6;
    while begin(&scene, hooked(&format!("o-{count}"), "short", None)).await.1 != Answer::Created {
        count += 1;
    }
    assert!(!row(&scene, "short").await.unwrap().ended);
    // What is kept for ever so long is not swept; who ended with a short one has nothing left.
    scene.store.clean(1_000).await.unwrap();
    assert!(row(&scene, "long").await.is_some());
    let what = What::Delete { operation: "d".to_owned(), terminate: false };
    assert_eq!(scene.on(long, what).await, Answer::Done);
    assert_eq!(row(&scene, "long").await, None, "H55");
}

pub(crate) async fn h17_h19_what_is_kept_is_looked_up_until_its_time(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (uid, _) = begin(&scene, hooked("o-1", "t", Some(200))).await;
    scene.on(uid, terminate("op")).await;
    let seen = scene.store.hook(&namespace(), &token("t")).await.unwrap();
    // A slow machine may be late, and then sees nothing.
    assert!(seen.is_none_or(|view| view.hook.ended && view.hook.metadata.is_some()));
    while scene.store.hook(&namespace(), &token("t")).await.unwrap().is_some() {}
    while scene.store.clean(1_000).await.unwrap() == 0 {}
    assert_eq!(row(&scene, "t").await, None);
}

pub(crate) async fn h06_h41_h48_payloads_are_kept_and_come_in_order(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (uid, _) = begin(&scene, hooked("o-1", "t", None)).await;
    for (id, value) in [("a", "1.0"), ("b", "\"é\\u0000\""), ("a", "1.0")] {
        assert_eq!(scene.on(uid, sent("t", HookId::START, id, value)).await, Answer::Done);
    }
    assert_eq!(scene.on(uid, sent("t", HookId::START, "a", "2")).await, Answer::EventIdTaken);
    assert_eq!(
        scene.on(uid, sent("t", HookId { run: Run(1), position: Position(9) }, "z", "2")).await,
        Answer::Moved
    );
    let session = held(&scene, uid).await;
    let awaits =
        || (CallKind::Payload, OpenWait::Payload(Awaiting { hook: HookId::START, token: token("t") }));
    for _ in 0..3 {
        report(&scene, uid, session, vec![awaits()]).await;
    }
    assert_eq!(scene.head(uid).await.waits, 1);
    assert_eq!(scene.on(uid, sent("t", HookId::START, "c", "3")).await, Answer::Done);
    let received: Vec<_> = scene
        .journal(uid)
        .await
        .into_iter()
        .filter_map(|entry| match entry.fact {
            Fact::Received(received) => Some((received.id, received.payload.as_str().to_owned())),
            _ => None,
        })
        .collect();
    let expected = [("a", "1.0"), ("b", "\"é\\u0000\""), ("c", "3")];
    assert_eq!(received, expected.map(|(id, value)| (id.to_owned(), value.to_owned())));
    let view = scene.store.instance(&super::scene::name_key("orders", "o-1")).await.unwrap().unwrap();
    assert!(view.unread.is_empty() && view.never_sent.is_empty(), "they are no events of anybody's");
}

pub(crate) async fn h21_h37_h52_a_body_creates_and_lets_go(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (one, two) = (scene.start("o-1").await, scene.start("o-2").await);
    let (first, second) = (held(&scene, one).await, held(&scene, two).await);
    report(&scene, one, first, vec![creates("t", false), creates("u", false)]).await;
    report(&scene, two, second, vec![creates("t", false)]).await;
    assert_eq!(outcomes(&scene, two).await, [HookOutcome::Conflict { owner: owner("o-1") }]);
    assert_eq!((scene.head(one).await.hooks, scene.head(two).await.hooks), (2, 0));
    let webhook = Webhook { status: Some(200), ..Webhook::default() };
    let schema = Some(payload(r#"{"const":1.50}"#));
    let asked = Registration {
        webhook: Some(webhook.clone()),
        schema: schema.clone(),
        ..Registration::new(token("w"))
    };
    report(&scene, two, second, vec![(CallKind::Hook, OpenWait::Hook(asked))]).await;
    let kept = row(&scene, "w").await.unwrap();
    assert_eq!((kept.webhook, &kept.schema), (Some(webhook), &schema));
    let view = scene.store.hook(&namespace(), &token("w")).await.unwrap().unwrap();
    assert_eq!(view.hook.schema, schema, "H57");
    let head = scene.head(one).await;
    let call = Call { kind: CallKind::Hook, name: CallName::new("h").unwrap(), count: 1 };
    let mut what = Reporting::of(&head, first).then(Then::Continue);
    if let What::Report { report, .. } = &mut what {
        report.closed.push(Closed { call, after: head.position, hook: Some(token("t")) });
    }
    assert_eq!(scene.on(one, what).await, Answer::Taken);
    assert_eq!((row(&scene, "t").await, scene.head(one).await.hooks), (None, 1));
    assert_eq!(begin(&scene, hooked("o-3", "t", None)).await.1, Answer::Created);
    let head = scene.head(one).await;
    scene.on(one, ends(&head, first)).await;
    assert_eq!(row(&scene, "u").await, None);
}

pub(crate) async fn h59_h70_a_token_is_moved_by_its_owner(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (one, _) = begin(&scene, hooked("o-1", "t", Some(60_000))).await;
    let two = scene.start("o-2").await;
    let session = held(&scene, two).await;
    report(&scene, two, session, vec![creates("t", true)]).await;
    assert_eq!(row(&scene, "t").await.unwrap().owner, one);
    let mut after = 0;
    loop {
        let mail = scene.store.letters(after, 10).await.unwrap();
        let Some(posted) = mail.letters.into_iter().next() else { break };
        after = posted.letter.number;
        scene.on(posted.to.unwrap(), What::Letter(posted.letter)).await;
    }
    let moved = row(&scene, "t").await.unwrap();
    let hook = HookId { run: Run(1), position: Position(2) };
    assert_eq!((moved.owner, moved.id, moved.from), (two, hook, Some(owner("o-1"))));
    assert_eq!(outcomes(&scene, two).await, [HookOutcome::Owned { hook, from: Some(owner("o-1")) }]);
    let taken = scene.journal(one).await.pop().unwrap().fact;
    assert!(matches!(taken, Fact::TakenOver(taken) if taken.by == owner("o-2")));
    scene.on(one, terminate("op")).await;
    assert!(row(&scene, "t").await.is_some(), "the end of the one before is nothing to it");
}

/// Carries letters, one after the other, for as long as they are for somebody who exists, and answers how many were carried.
async fn carry(scene: &Scene, most: usize) -> usize {
    for carried in 0..most {
        let mail = scene.store.letters(0, 1).await.unwrap();
        let Some(posted) = mail.letters.into_iter().next() else { return carried };
        scene.on(posted.to.unwrap(), What::Letter(posted.letter)).await;
    }
    most
}

/// What a claimant is given that was deleted meanwhile is nobody's: whoever claims it next has it, and the letter that comes back
/// later takes nothing from that one.
pub(crate) async fn h32_h55_a_token_whose_claimant_was_deleted_is_free(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let delete = || What::Delete { operation: "d".to_owned(), terminate: true };
    let by_body = scene.start("o-8").await;
    let body = held(&scene, by_body).await;
    for (number, text) in ["t", "u"].into_iter().enumerate() {
        begin(&scene, hooked(&format!("a-{number}"), text, None)).await;
        let gone = scene.start(&format!("b-{number}")).await;
        let session = held(&scene, gone).await;
        report(&scene, gone, session, vec![creates(text, true)]).await;
        assert_eq!(scene.on(gone, delete()).await, Answer::Done);
        assert_eq!(carry(&scene, 1).await, 1, "the owner moves it");
        assert_eq!((row(&scene, text).await, orphan(&scene, text).await), (None, Some(gone)));
        assert_eq!(scene.store.hook(&namespace(), &token(text)).await.unwrap(), None, "H50");
        assert_eq!(scene.store.hooks(&namespace(), None, 10).await.unwrap().len(), number);
        if number == 0 {
            assert_eq!(begin(&scene, hooked("o-9", text, None)).await.1, Answer::Created);
            assert_eq!(begin(&scene, hooked("o-10", text, None)).await.1, Answer::HookHeld(owner("o-9")));
        } else {
            report(&scene, by_body, body, vec![creates(text, false)]).await;
        }
        let expected = row(&scene, text).await.unwrap();
        assert_eq!(expected.name, owner(if number == 0 { "o-9" } else { "o-8" }));
        let posted = scene.store.letters(0, 10).await.unwrap().letters.remove(0);
        let back = Input::Undelivered(Box::new(posted.letter), everstep_engine::letter::gone());
        assert_eq!(scene.run(vec![back]).await.answers, [Answer::NotFound]);
        assert_eq!(row(&scene, text).await, Some(expected));
    }
    // An owner that is deleted in the very batch of the next claim.
    let (last, _) = begin(&scene, hooked("c-1", "v", Some(60_000))).await;
    scene.on(last, terminate("op")).await;
    let next = Input::Start(Box::new(hooked("c-2", "v", None)));
    let ran = scene.run(vec![Input::On { instance: last, what: delete() }, next]).await;
    assert_eq!(ran.answers, [Answer::Done, Answer::Created]);
    assert_eq!(row(&scene, "v").await.unwrap().name, owner("c-2"));
}

/// An instance that awaits the payloads of its hook so many times, and another that claims the token by force: the letter is written.
async fn claimed(scene: &Scene, awaits: u32) -> (InstanceUid, InstanceUid) {
    let (one, _) = begin(scene, hooked("o-1", "t", None)).await;
    let session = held(scene, one).await;
    let head = scene.head(one).await;
    let mut reporting = Reporting::of(&head, session);
    for count in 1..=awaits {
        let call = Call { kind: CallKind::Payload, name: CallName::new("h").unwrap(), count };
        let wait = OpenWait::Payload(Awaiting { hook: HookId::START, token: token("t") });
        reporting = reporting.open(sleeping(&call, wait));
    }
    assert_eq!(scene.on(one, reporting.then(Then::Suspend)).await, Answer::Taken);
    assert_eq!(scene.head(one).await.waits, awaits);
    let two = scene.start("o-2").await;
    let session = held(scene, two).await;
    report(scene, two, session, vec![creates("t", true)]).await;
    (one, two)
}

/// Whoever wrote the letter, or took it, dies before anything else has happened: what it was about is in the store.
pub(crate) async fn h66_a_crash_between_claim_and_wake_heals(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let (one, two) = claimed(&scene, 1).await;
    // A scene sends nothing: each of these is another coordinator that knows nothing of the one before.
    let scene = Scene::new(Arc::clone(&store));
    assert_eq!(row(&scene, "t").await.unwrap().owner, one);
    assert_eq!(carry(&scene, 1).await, 1);
    let scene = Scene::new(Arc::clone(&store));
    let moved = row(&scene, "t").await.unwrap();
    assert_eq!((moved.owner, moved.from, moved.unheard), (two, Some(owner("o-1")), true));
    let queue = Queue::Run(namespace(), workflow("orders"));
    let offered = async || {
        let offers = store.offer(std::slice::from_ref(&queue), 100, Millis(0)).await.unwrap();
        offers.rows.iter().any(|(_, uid, _)| *uid == one)
    };
    // It is offered until somebody has it, who then reads what has happened.
    assert!(offered().await && offered().await);
    held(&scene, one).await;
    assert!(!offered().await);
    let facts: Vec<_> = scene.journal(one).await.into_iter().map(|entry| entry.fact).collect();
    let [.., Fact::TakenOver(taken), Fact::Fired { .. }] = &facts[..] else { panic!("{facts:?}") };
    assert_eq!(taken.by, owner("o-2"));
    assert_eq!(carry(&scene, 1).await, 1, "the claimant is told once more by whoever comes");
    assert_eq!(outcomes(&scene, two).await.len(), 1);
}

/// However many awaits there are: none is left that nothing can end.
pub(crate) async fn h60_a_takeover_ends_every_await(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (one, _) = claimed(&scene, 40).await;
    assert_eq!(carry(&scene, 1).await, 1);
    assert_eq!(scene.head(one).await.waits, 0);
    let fired = scene.journal(one).await.into_iter().filter(|entry| matches!(entry.fact, Fact::Fired { .. }));
    assert_eq!(fired.count(), 40);
}

/// A payload for whoever has a token is a letter without an addressee: its carrier looks that up. Which call it is of comes back.
pub(crate) async fn h45_w22_a_letter_to_whoever_has_a_token_is_kept_and_taken(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (owns, _) = begin(&scene, hooked("o-1", "t:é/1", None)).await;
    let sender = scene.start("o-2").await;
    let session = held(&scene, sender).await;
    let payload = payload(r#"{"é":1.50,"z":"\u0000"}"#);
    let fingerprint = Fingerprint::of(&payload).unwrap();
    let asked = Resuming { token: token("t:é/1"), payload, fingerprint };
    report(&scene, sender, session, vec![(CallKind::Resume, OpenWait::Resume(asked.clone()))]).await;
    let Fact::Opened(opened) = scene.journal(sender).await.pop().unwrap().fact else { panic!() };
    assert_eq!(opened.wait, Wait::Resume(asked.clone()));
    let posted = scene.store.letters(0, 10).await.unwrap().letters.remove(0);
    assert_eq!(
        (posted.to, &posted.name, posted.letter.caller.call),
        (Some(sender), &None, opened.call.hash())
    );
    let Said::Resume { namespace: of, sent } = posted.letter.said.clone() else { panic!("{posted:?}") };
    assert_eq!((of, &sent.token, &sent.payload), (namespace(), &asked.token, &asked.payload));
    assert_eq!(scene.on(owns, What::Letter(posted.letter)).await, Answer::Done);
    assert_eq!(carry(&scene, 1).await, 1);
    let Fact::Returned(returned) = scene.journal(sender).await.pop().unwrap().fact else { panic!() };
    let Outcome::Succeeded(output) = returned.outcome else { panic!("{returned:?}") };
    assert_eq!(output.decode::<Other>().unwrap(), owner("o-1"));
    assert_eq!((scene.head(owns).await.events, scene.head(sender).await.waits), (1, 0));
}

pub(crate) async fn p31_a_restart_takes_back_what_is_kept(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (uid, _) = begin(&scene, hooked("o-1", "t", Some(60_000))).await;
    let session = held(&scene, uid).await;
    report(&scene, uid, session, vec![creates("u", false)]).await;
    let restart = |id: &str| What::Restart { operation: id.to_owned(), prepared: None };
    assert_eq!(scene.on(uid, restart("a")).await, Answer::Done);
    assert_eq!((row(&scene, "u").await, scene.head(uid).await.hooks), (None, 1));
    scene.on(uid, terminate("b")).await;
    assert!(row(&scene, "t").await.unwrap().ended);
    assert_eq!(scene.on(uid, restart("c")).await, Answer::Done);
    assert!(!row(&scene, "t").await.unwrap().ended);
    let Fact::Started(started) = scene.journal_of(uid, Run(3)).await.remove(0).fact else { panic!() };
    assert_eq!(started.hook, Some(token("t")));
}

pub(crate) async fn h58_an_answer_is_kept_with_its_request_and_the_first_one_stays(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (uid, _) = begin(&scene, hooked("o-1", "t", None)).await;
    let to = |id: &str| ReplyKey { instance: uid, token: token("t"), id: id.to_owned() };
    let replied = async |id: &str| scene.store.reply(&to(id)).await.unwrap();
    assert_eq!(replied("a\0é").await, Replied::NotYet, "also of what never came");
    assert_eq!(scene.on(uid, sent("t", HookId::START, "a\0é", "1")).await, Answer::Done);
    assert_eq!(scene.on(uid, sent("t", HookId::START, "b", "1")).await, Answer::Done);
    assert_eq!(replied("a\0é").await, Replied::NotYet);
    let response = |status| WebhookResponse {
        status,
        headers: vec![("a".to_owned(), "b".to_owned())],
        body: Some("\0\u{1f980}".to_owned()),
        base64: false,
    };
    let answers = |id: &str, status| {
        let reply = Reply { token: token("t"), id: id.to_owned(), response: response(status) };
        (CallKind::Reply, OpenWait::Reply(reply))
    };
    let session = held(&scene, uid).await;
    report(&scene, uid, session, vec![answers("a\0é", 201), answers("nobody", 200)]).await;
    report(&scene, uid, session, vec![answers("a\0é", 500)]).await;
    assert_eq!(replied("a\0é").await, Replied::With(response(201)));
    assert_eq!(replied("b").await, Replied::NotYet);
    let awaits = Awaiting { hook: HookId::START, token: token("t") };
    report(&scene, uid, session, vec![(CallKind::Payload, OpenWait::Payload(awaits))]).await;
    assert_eq!(replied("a\0é").await, Replied::With(response(201)), "it is received since");
    scene.on(uid, terminate("op")).await;
    assert_eq!((replied("a\0é").await, replied("b").await), (Replied::With(response(201)), Replied::Over));
    let what = What::Delete { operation: "d".to_owned(), terminate: false };
    assert_eq!(scene.on(uid, what).await, Answer::Done);
    assert_eq!(replied("a\0é").await, Replied::Over);
}
