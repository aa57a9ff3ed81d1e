//! Hooks as the host sees them, and what they give to the body. Not: who gets a token.

use everstep::host::{BodyState, Polled, Spec};
use everstep::{Error, FailureKind, Hook, Timestamp, Workflow};
use everstep_protocol::hook::{HookRetention, Registration};
use everstep_protocol::journal::{Awaiting, Delivered, HookOutcome, Other};
use everstep_protocol::{Call, CallKind, EventType, HookId, Millis, Position, Run};
use futures::StreamExt;

use crate::driver::{Driver, calls, done, refused};

const HOOK: HookId = HookId { run: Run(1), position: Position(2) };

fn owned() -> HookOutcome {
    HookOutcome::Owned { hook: HOOK, from: None }
}

fn conflict() -> HookOutcome {
    HookOutcome::Conflict { owner: Other { workflow: "orders".parse().unwrap(), id: "o-9".parse().unwrap() } }
}

fn registration(polled: &Polled) -> &Registration {
    match &polled.made[0].spec {
        Spec::Hook(hook) => hook,
        other => panic!("{other:?}"),
    }
}

fn registered(driver: &mut Driver, number: u64, outcome: HookOutcome) -> Polled {
    driver.seen += 1;
    assert!(driver.host.registered(number, outcome));
    driver.poll()
}

fn received(driver: &mut Driver, (number, call): (u64, &Call), payload: &str) -> Polled {
    driver.seen += 1;
    let event = Delivered {
        call: call.clone(),
        kind: EventType::of_hook(HOOK),
        sequence: 1,
        id: "r-1".to_owned(),
        key: None,
        received_at: Timestamp(9),
        payload: everstep::host::Payload::from_text(payload).unwrap(),
    };
    assert!(driver.host.deliver(number, event));
    driver.poll()
}

/// The call of the one thing that was made, and its number.
fn made(polled: &Polled) -> (u64, Call) {
    assert_eq!(polled.made.len(), 1, "{:?}", polled.made);
    (polled.made[0].number, polled.made[0].call.clone())
}

fn tokens(polled: &Polled) -> Vec<&str> {
    polled.let_go.iter().map(|(_, _, token)| token.as_str()).collect()
}

#[test]
fn h41_a_hook_is_created_without_waiting_and_its_payloads_are_received_in_order() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("order:17").create()?;
        assert_eq!(hook.token(), "order:17");
        Ok((hook.next().await?, hook.next().await?))
    });
    let polled = driver.poll();
    assert_eq!(calls(&polled.made), [(CallKind::Hook, "order", 1)]);
    assert_eq!(registration(&polled).token.as_str(), "order:17");
    let first = registered(&mut driver, 0, owned());
    let Spec::Payload(Awaiting { hook, token }) = &first.made[0].spec else { panic!("{first:?}") };
    assert_eq!((*hook, token.as_str()), (HOOK, "order:17"));
    let (number, call) = made(&first);
    assert_eq!((call.kind, call.name.as_str(), call.count), (CallKind::Payload, "order", 1));
    let (number, call) = made(&received(&mut driver, (number, &call), "7"));
    assert_eq!(call.count, 2);
    let polled = received(&mut driver, (number, &call), "8");
    assert_eq!(tokens(&polled), ["order:17"]);
    assert_eq!(done::<(u64, u64)>(polled), (7, 8));
}

#[test]
fn h39_steps_that_are_called_before_the_first_suspension_begin_alongside() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let nap = cx.sleep("nap", "1s");
        let (conflict, nap) = futures::join!(hook.conflict(), nap);
        nap?;
        Ok(conflict?.is_some())
    });
    let polled = driver.poll();
    assert_eq!(calls(&polled.made), [(CallKind::Hook, "order", 1), (CallKind::Sleep, "nap", 1)]);
}

#[test]
fn h37_h38_a_conflict_names_the_owner_each_time_and_fails_the_awaits() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let owner = hook.conflict().await?.unwrap();
        let again = hook.conflict().await?.unwrap();
        let error = hook.next().await.unwrap_err();
        let conflict = error.hook_conflict().unwrap();
        assert!(error.is_permanent() && error.hook_taken().is_none());
        assert_eq!(conflict.owner.instance(&cx).workflow(), "orders");
        let mut payloads = hook.payloads();
        let same = payloads.next().await.unwrap().unwrap_err();
        assert!(payloads.next().await.is_none());
        hook.dispose().await;
        let owner = (owner.workflow().to_owned(), owner.id().to_owned());
        Ok((owner, again.id().to_owned(), conflict.owner.id, same.name().to_owned()))
    });
    driver.poll();
    let polled = registered(&mut driver, 0, conflict());
    assert!(polled.let_go.is_empty() && polled.dropped.is_empty(), "it was never its own");
    let (owner, again, id, name) = done::<((String, String), String, String, String)>(polled);
    assert_eq!((owner.0.as_str(), owner.1.as_str()), ("orders", "o-9"));
    assert_eq!((again.as_str(), id.as_str(), name.as_str()), ("o-9", "o-9", "HookConflict"));
}

#[test]
fn h38_h62_no_conflict_is_no_owner_and_stays_so() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let first = hook.conflict().await?.is_none();
        hook.dispose().await;
        Ok((first, hook.conflict().await?.is_none()))
    });
    driver.poll();
    let polled = registered(&mut driver, 0, owned());
    assert!(matches!(polled.state, BodyState::Pending), "letting go is awaited");
    assert_eq!(tokens(&polled), ["t"]);
    driver.seen += 1;
    assert!(driver.host.released(0));
    assert_eq!(done::<(bool, bool)>(driver.poll()), (true, true));
}

#[test]
fn h60_an_await_of_a_hook_that_was_taken_names_the_claimant() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let mut payloads = hook.payloads();
        let taken = payloads.next().await.unwrap().unwrap_err().hook_taken().unwrap();
        Ok((taken.claimant.workflow, taken.claimant.id, taken.hook, payloads.next().await.is_none()))
    });
    driver.poll();
    let (number, _) = made(&registered(&mut driver, 0, owned()));
    let data = everstep::host::Payload::from_text(r#"{"workflow":"w","id":"i","hook":"1.4"}"#).unwrap();
    let failure = everstep_protocol::Failure {
        name: "HookTaken".to_owned(),
        data: Some(data),
        ..everstep_protocol::Failure::new(FailureKind::Error, "taken")
    };
    let text = |text: &str| text.to_owned();
    let got = done::<(String, String, String, bool)>(driver.fail(number, failure));
    assert_eq!(got, (text("w"), text("i"), text("1.4"), true));
}

#[test]
fn h43_several_awaits_are_calls_of_their_own_and_a_lost_race_closes_its_own() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        hook.conflict().await?;
        let mut lost = Box::pin(hook.next());
        let raced = futures::future::select(&mut lost, cx.sleep("a", "1s")).await;
        drop(raced);
        let other = hook.next();
        drop(lost);
        other.await
    });
    driver.poll();
    let polled = registered(&mut driver, 0, owned());
    assert_eq!(calls(&polled.made), [(CallKind::Payload, "order", 1), (CallKind::Sleep, "a", 1)]);
    let (lost, nap) = (polled.made[0].number, polled.made[1].number);
    let polled = driver.feed(nap, ());
    assert_eq!(polled.dropped, [lost]);
    let (number, call) = made(&polled);
    assert_eq!(call.count, 2);
    assert_eq!(done::<u64>(received(&mut driver, (number, &call), "7")), 7);
}

#[test]
fn h42_an_await_that_never_began_takes_nothing_and_leaves_nothing_to_close() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let mut next = Box::pin(hook.next());
        drop(futures::future::select(&mut next, cx.sleep("a", "1s")).await);
        cx.sleep("b", "1s").await?;
        drop(next);
        hook.next().await
    });
    driver.poll();
    let polled = driver.feed(2, ());
    assert!(matches!(polled.state, BodyState::Pending));
    // It is registered only now: the await that is held begins when somebody polls it, which nobody does.
    let polled = registered(&mut driver, 0, owned());
    assert!(polled.made.is_empty());
    let polled = driver.feed(3, ());
    let (number, call) = made(&polled);
    assert_eq!((call.count, polled.dropped.len()), (2, 0), "an await that never began is nothing to close");
    assert_eq!(done::<u64>(received(&mut driver, (number, &call), "7")), 7);
}

#[test]
fn h52_disposing_ends_the_awaits_and_the_stream_and_twice_is_nothing() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let mut payloads = hook.payloads();
        let first = payloads.next().await.unwrap()?;
        let (pending, (), ()) = futures::join!(hook.next(), async { drop(hook.dispose()) }, async {
            drop(hook.dispose());
        });
        let after = hook.next().await.unwrap_err();
        let names = (pending.unwrap_err().name().to_owned(), after.name().to_owned());
        Ok((first, names, payloads.next().await.is_none(), hook.payloads().count().await))
    });
    driver.poll();
    let (number, call) = made(&registered(&mut driver, 0, owned()));
    let polled = received(&mut driver, (number, &call), "7");
    assert_eq!(tokens(&polled), ["t"], "once, though the guard is dropped too");
    assert_eq!(polled.dropped.len(), 1, "the wait that was open is closed");
    let disposed = || "HookDisposed".to_owned();
    let got = done::<(u64, (String, String), bool, usize)>(polled);
    assert_eq!(got, (7, (disposed(), disposed()), true, 0));
}

#[test]
fn h52_w29_a_guard_is_let_go_at_scope_end_also_on_error_and_not_when_the_body_is_thrown_away() {
    fn body(fails: bool) -> Driver {
        let mut driver = Driver::new(move |cx: Workflow| async move {
            {
                let hook: Hook<u64> = cx.hook("order").token("t").create()?;
                hook.conflict().await?;
                let work = async { cx.sleep("a", "1s").await };
                work.await?;
                if fails {
                    return Err(Error::failed("no"));
                }
            }
            cx.sleep("b", "1s").await
        });
        driver.poll();
        registered(&mut driver, 0, owned());
        driver
    }
    for fails in [false, true] {
        assert_eq!(tokens(&body(fails).feed(1, ())), ["t"], "fails {fails}");
    }
    let mut driver = body(false);
    let failure = everstep_protocol::Failure::new(FailureKind::Cancelled, "cancelled");
    assert_eq!(tokens(&driver.fail(1, failure)), ["t"], "an error that leaves the scope");
    let driver = body(false);
    let host = driver.host.clone();
    host.discard(driver.body);
    assert!(host.workflow().hook::<u64>("x").create().is_err());
}

#[test]
fn h23_h24_what_is_kept_is_not_let_go_at_the_end() {
    let run = |keeps: bool| {
        let mut driver = Driver::new(move |cx: Workflow| async move {
            let hook: Hook<u64> = cx.hook("order").token("t").retention("7 days").create()?;
            let hook = if keeps { hook.keep() } else { hook };
            Ok(hook.conflict().await?.is_none())
        });
        let polled = driver.poll();
        assert_eq!(registration(&polled).retention, Some(HookRetention::For(Millis(7 * 86_400_000))));
        tokens(&registered(&mut driver, 0, owned())).len()
    };
    assert_eq!((run(false), run(true)), (1, 0));
}

#[test]
fn h52_a_hook_that_is_dropped_before_it_is_known_is_a_dropped_call() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        cx.sleep("a", "1s").await?;
        hook.dispose().await;
        let conflict = hook.conflict().await.unwrap_err();
        drop(hook);
        let again: Hook<u64> = cx.hook("order").token("t").create()?;
        drop(again.keep());
        Ok(conflict.name().to_owned())
    });
    driver.poll();
    let polled = driver.feed(1, ());
    assert_eq!((polled.dropped.as_slice(), polled.let_go.len()), (&[0][..], 0));
    assert_eq!(calls(&polled.made), [(CallKind::Hook, "order", 2)]);
    assert!(!driver.host.registered(0, owned()), "the body has dropped it");
    assert_eq!(done::<String>(polled), "HookDisposed");
}

#[test]
fn h08_h21_h25_the_token_of_the_start_is_bound_without_a_call_until_it_is_let_go() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let start: Hook<u64> = cx.hook("order").token("t").create()?;
        assert!(start.conflict().await?.is_none());
        let got = start.next().await?;
        start.dispose().await;
        let again: Hook<u64> = cx.hook("order").token("t").create()?;
        Ok((got, again.conflict().await?.map(|owner| owner.id().to_owned())))
    });
    driver.host.begin_with_hook(Some("t".parse().unwrap()));
    let polled = driver.poll();
    let (number, call) = made(&polled);
    let Spec::Payload(awaiting) = &polled.made[0].spec else { panic!("{polled:?}") };
    assert_eq!(awaiting.hook, HookId::START);
    assert!(driver.host.start_hook().is_some());
    let polled = received(&mut driver, (number, &call), "7");
    assert_eq!(tokens(&polled), ["t"]);
    assert!(polled.made.is_empty() && driver.host.start_hook().is_none());
    let bound = polled.let_go[0].0;
    driver.seen += 1;
    assert!(driver.host.released(bound));
    let polled = driver.poll();
    let (number, call) = made(&polled);
    assert_eq!((call.kind, call.count), (CallKind::Hook, 2));
    let got = done::<(u64, Option<String>)>(registered(&mut driver, number, conflict()));
    assert_eq!(got, (7, Some("o-9".to_owned())));
}

#[test]
fn h09_nothing_but_the_token_may_be_said_of_the_hook_of_the_start() {
    type Make = fn(everstep::HookCall<u64>) -> everstep::HookCall<u64>;
    let more: [(Make, &str); 4] = [
        (|call| call.metadata(&1), "metadata"),
        (|call| call.retention("1 day"), "retention"),
        (|call| call.webhook(), "webhook"),
        (|call| call.force(), "force"),
    ];
    for (make, field) in more {
        let driver =
            Driver::new(
                move |cx: Workflow| async move { make(cx.hook("order").token("t")).create().map(|_| ()) },
            );
        driver.host.begin_with_hook(Some("t".parse().unwrap()));
        refused(&driver.failure(), &format!("{field} is refused"));
    }
}

#[test]
fn h10_h30_h54_h67_what_cannot_be_is_refused_by_name_and_never_recorded() {
    type Make = fn(&Workflow) -> everstep::HookCall<u64>;
    let bad: [(Make, &str); 11] = [
        (|cx| cx.hook("h").token(""), "hook token"),
        (|cx| cx.hook("h").token("x".repeat(257)), "hook token"),
        (|cx| cx.hook("").token("t"), "call name"),
        (|cx| cx.hook("h").retention("soon"), "\"soon\""),
        (|cx| cx.hook("h").retention(0u64), "retention 0"),
        (|cx| cx.hook("h").retention(Timestamp(1)), "must end in the future"),
        (|cx| cx.hook("h").retention("1969-01-01T00:00:00Z"), "1969"),
        (|cx| cx.hook("h").metadata(&"m".repeat(17 << 10)), "metadata"),
        (|cx| cx.hook("h").webhook().retention("1 day"), "retention"),
        (|cx| cx.hook("h").token("t").webhook_answering(99, "").force(), "status 99"),
        (|cx| cx.hook("h").force(), "force needs a token"),
    ];
    for (make, text) in bad {
        let driver = Driver::new(move |cx: Workflow| async move { make(&cx).create().map(|_| ()) });
        refused(&driver.failure(), text);
    }
    let nan =
        Driver::new(
            |cx: Workflow| async move { cx.hook::<u64>("h").metadata(&f64::NAN).create().map(|_| ()) },
        );
    assert_eq!(nan.failure().kind, FailureKind::Unserialisable);
    let forced = Driver::new(|cx: Workflow| async move {
        cx.hook::<u64>("h").token("t").webhook().force().create().map(|_| ())
    });
    refused(&forced.failure(), "cannot take a token");
    let twice = Driver::new(|cx: Workflow| async move {
        let _first: Hook<u64> = cx.hook("h").token("t").create()?;
        cx.hook::<u64>("other").token("t").create().map(|_| ())
    });
    refused(&twice.failure(), "hook \"h\" #1 of this instance has it");
}

#[test]
fn h53_a_generated_token_is_the_same_in_every_replay_and_another_for_each_hook() {
    let tokens = |seed: [u8; 32], draws: bool| {
        let mut driver = Driver::seeded(seed, move |cx: Workflow| async move {
            if draws {
                let _: u64 = cx.random();
            }
            let one: Hook<u64> = cx.hook("h").create()?;
            let two: Hook<u64> = cx.hook("h").create()?;
            Ok((one.token().to_owned(), two.token().to_owned()))
        });
        done::<(String, String)>(driver.poll())
    };
    let (one, two) = tokens([1; 32], false);
    assert_ne!(one, two);
    assert_eq!(tokens([1; 32], true), (one.clone(), two), "other draws change nothing");
    assert_ne!(tokens([2; 32], false).0, one);
    assert_eq!(one.len(), 32);
}

#[test]
fn h57_a_payload_of_another_type_is_an_error_with_a_name_and_the_next_follows() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let mut payloads = hook.payloads();
        let error = payloads.next().await.unwrap().unwrap_err();
        assert!(error.message().starts_with("payload \"order\" #1: reading the payload"), "{error}");
        Ok((error.name().to_owned(), payloads.next().await.unwrap()?))
    });
    driver.poll();
    let (number, call) = made(&registered(&mut driver, 0, owned()));
    let (number, call) = made(&received(&mut driver, (number, &call), "\"seven\""));
    let got = done::<(String, u64)>(received(&mut driver, (number, &call), "7"));
    assert_eq!(got, ("HookPayload".to_owned(), 7));
}

#[test]
fn w30_a_hook_answers_only_inside_its_own_body() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let hook = hook.keep();
        hook.conflict().await?;
        let outside = std::thread::spawn(move || {
            futures::executor::block_on(async {
                hook.dispose().await;
                (hook.next().await.unwrap_err(), hook.conflict().await.unwrap_err())
            })
        });
        let (next, conflict) = outside.join().unwrap();
        Ok((next.message().to_owned(), conflict.message().to_owned()))
    });
    driver.poll();
    let polled = registered(&mut driver, 0, owned());
    assert!(polled.let_go.is_empty(), "nothing was let go from there");
    let (next, conflict) = done::<(String, String)>(polled);
    assert!(next.contains("answers only inside") && conflict.contains("answers only inside"));
}

/// The child of the one call that was made.
fn child(polled: &Polled) -> &everstep::host::ChildSpec {
    match &polled.made[0].spec {
        Spec::Child(child) => child,
        other => panic!("{other:?}"),
    }
}

#[test]
fn h28_a_child_is_started_with_its_token_whatever_is_said_first() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let call = cx
            .child::<u64>("c", "packing", 1)
            .metadata(&[7])
            .schema(&true)
            .retention("1 day")
            .token("order:17");
        let awaited = call.await?;
        let started = cx.child::<()>("c", "packing", 1).token("order:18").detached().start().await;
        let conflict = started.unwrap_err().hook_conflict().unwrap();
        Ok((awaited, conflict.owner.workflow, conflict.owner.id))
    });
    let polled = driver.poll();
    let hook = child(&polled).hook.clone().unwrap();
    assert_eq!((hook.token.as_str(), hook.metadata.unwrap().as_str()), ("order:17", "[7]"));
    assert_eq!(hook.retention, Some(HookRetention::For(Millis(86_400_000))));
    assert_eq!(hook.schema.unwrap().as_str(), "true", "H57");
    let polled = driver.feed(0, 5);
    let second = child(&polled);
    assert!(second.detached && second.only_started);
    let hook = second.hook.clone().unwrap();
    assert_eq!((hook.token.as_str(), hook.retention, hook.metadata), ("order:18", None, None));
    let owner = Other { workflow: "orders".parse().unwrap(), id: "o-9".parse().unwrap() };
    let failure = taken(&owner);
    let polled = driver.fail(1, failure);
    assert_eq!(done::<(u64, String, String)>(polled), (5, "orders".to_owned(), "o-9".to_owned()));
}

/// What a coordinator answers whose token another instance has.
fn taken(owner: &Other) -> everstep_protocol::Failure {
    everstep_protocol::Failure {
        name: "HookConflict".to_owned(),
        permanent: true,
        data: Some(everstep::host::Payload::encode(owner).unwrap()),
        ..everstep_protocol::Failure::new(FailureKind::Error, "it has the token")
    }
}

#[test]
fn h30_h54_a_child_whose_hook_cannot_be_is_refused_by_name_and_never_recorded() {
    type Make = fn(everstep::ChildCall<u64>) -> everstep::ChildCall<u64>;
    let bad: [(Make, &str); 9] = [
        (|child| child.schema(&true), "none is given"),
        (|child| child.token("t").schema(&serde_json::json!({ "$ref": "other.json" })), "other.json"),
        (|child| child.token(""), "hook token"),
        (|child| child.token("x".repeat(257)), "hook token"),
        (|child| child.token("t").retention("soon"), "\"soon\""),
        (|child| child.token("t").retention(0u64), "retention 0"),
        (|child| child.retention(Timestamp(1)).token("t"), "must end in the future"),
        (|child| child.token("t").metadata(&"m".repeat(17 << 10)), "metadata"),
        (|child| child.retention("1 day"), "none is given"),
    ];
    for (make, text) in bad {
        let driver = Driver::new(move |cx: Workflow| async move { make(cx.child("c", "packing", 1)).await });
        refused(&driver.failure(), text);
    }
}

#[test]
fn h45_h46_a_resume_says_who_has_accepted_it_or_that_nobody_could() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let owner = cx.resume_hook("tell", "order:17", 7).await?.unwrap();
        let nobody = cx.resume_hook("tell", "order:17", 8).await?;
        let full = cx.resume_hook("tell", "order:17", 9).await.unwrap_err();
        Ok((owner.workflow().to_owned(), owner.id().to_owned(), nobody.is_none(), full.name().to_owned()))
    });
    let polled = driver.poll();
    assert_eq!(calls(&polled.made), [(CallKind::Resume, "tell", 1)]);
    let Spec::Resume(resume) = &polled.made[0].spec else { panic!("{polled:?}") };
    assert_eq!((resume.token.as_str(), resume.payload.as_str()), ("order:17", "7"));
    let owner = Other { workflow: "orders".parse().unwrap(), id: "o-9".parse().unwrap() };
    let polled = driver.feed(0, &owner);
    assert_eq!(calls(&polled.made), [(CallKind::Resume, "tell", 2)]);
    let named = |name: &str| everstep_protocol::Failure {
        name: name.to_owned(),
        ..everstep_protocol::Failure::new(FailureKind::Error, "no")
    };
    driver.fail(1, named("HookNotFound"));
    let polled = driver.fail(2, named("MailboxFull"));
    let expected = ("orders".to_owned(), "o-9".to_owned(), true, "MailboxFull".to_owned());
    assert_eq!(done::<(String, String, bool, String)>(polled), expected);
    let bad = Driver::new(|cx: Workflow| async move { cx.resume_hook("tell", "", 1).await.map(|_| ()) });
    refused(&bad.failure(), "hook token");
    let nan =
        Driver::new(|cx: Workflow| async move { cx.resume_hook("tell", "t", f64::NAN).await.map(|_| ()) });
    assert_eq!(nan.failure().kind, FailureKind::Unserialisable);
}
