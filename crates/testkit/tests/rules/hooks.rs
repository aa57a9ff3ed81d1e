//! Hooks in the kit: resumed from a test, contended for by two instances, taken by force, and none of it changed wherever a worker
//! crashes (rules P42, P43, H5, H12, H16, H22, H37, H44, H59 to H65). Not here: many coordinators at once.

use everstep::{Either, Error, Hook, Step, Undo, WebhookMethod, WebhookResponse, Workflow};
use everstep_testkit::{
    HookRetention, HookStart, Kit, KitError, StartHook, Status, TestKit, WebhookAnswer, WebhookCall,
    crash_everywhere,
};

/// Adds up what the hook is resumed with, until it is 0 or a day has passed.
async fn sum(cx: Workflow, token: String) -> Result<u64, Error> {
    let hook: Hook<u64> = cx.hook("numbers").token(token).create()?;
    if let Some(owner) = hook.conflict().await? {
        return Err(Error::permanent(owner.id()).named("Duplicate"));
    }
    let mut sum = 0;
    loop {
        match cx.either(hook.next(), cx.sleep("patience", "1 day")).await {
            Either::First(Ok(0)) => return Ok(sum),
            Either::First(Ok(n)) => sum += n,
            Either::First(Err(error)) => {
                return match error.hook_taken() {
                    Some(by) => Err(Error::permanent(by.claimant.id).named("Superseded")),
                    None => Err(error),
                };
            }
            Either::Second(slept) => return slept.map(|()| sum),
        }
    }
}

/// Takes a token by force and waits for one payload.
async fn claim(cx: Workflow, token: String) -> Result<(bool, u64), Error> {
    let hook: Hook<u64> = cx.hook("numbers").token(token).force().create()?;
    let had_it = hook.conflict().await?.is_none();
    Ok((had_it, hook.next().await?))
}

fn kit() -> TestKit {
    TestKit::new().workflow_fn("sum", sum).workflow_fn("claim", claim)
}

#[test]
fn h41_a_test_resumes_a_hook_and_time_jumps_over_what_nobody_resumes() {
    kit().run(async |kit| {
        let run = kit.start_instance("sum", "t").await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        for n in [3, 4, 0] {
            let owner = kit.resume("t", &n).await.unwrap().unwrap();
            assert_eq!(owner.id(), run.id());
        }
        assert_eq!(run.result::<u64>().await.unwrap(), 7);
        assert!(kit.resume("t", &1).await.unwrap().is_none(), "its owner has ended");
        let began = kit.now();
        let patient = kit.start_instance("sum", "t").await.unwrap();
        assert_eq!(patient.result::<u64>().await.unwrap(), 0);
        assert!(kit.now().since(began).as_u64() >= 86_400_000);
    });
}

#[test]
fn h37_two_instances_contend_for_a_token_and_one_has_it() {
    kit().run(async |kit| {
        let first = kit.start_instance_as("sum", "first", "t").await.unwrap();
        first.reaches(Status::Waiting).await.unwrap();
        let second = kit.start_instance_as("sum", "second", "t").await.unwrap();
        let error = second.error().await.unwrap();
        assert_eq!((error.name(), error.message()), ("Duplicate", "first"));
        kit.resume("t", &0).await.unwrap().unwrap();
        assert_eq!(first.result::<u64>().await.unwrap(), 0);
    });
}

#[test]
fn h59_h60_h61_h65_force_takes_the_token_down_a_chain_of_owners() {
    kit().run(async |kit| {
        let first = kit.start_instance_as("sum", "first", "t").await.unwrap();
        first.reaches(Status::Waiting).await.unwrap();
        kit.resume("t", &5).await.unwrap().unwrap();
        let second = kit.start_instance_as("claim", "second", "t").await.unwrap();
        let superseded = first.error().await.unwrap();
        assert_eq!((superseded.name(), superseded.message()), ("Superseded", "second"));
        let third = kit.start_instance_as("claim", "third", "t").await.unwrap();
        let superseded = second.error().await.unwrap();
        assert_eq!(superseded.hook_taken().unwrap().claimant.id, "third");
        let hook = kit.hook("t").await.unwrap().unwrap();
        assert_eq!(hook.hook.from.as_ref().map(|from| from.id.as_str()), Some("second"));
        assert_eq!(kit.resume("t", &9).await.unwrap().unwrap().id(), "third");
        assert_eq!(third.result::<(bool, u64)>().await.unwrap(), (true, 9));
        assert!(kit.hook("t").await.unwrap().is_none());
    });
}

#[test]
fn h60_every_await_of_a_hook_that_is_taken_ends() {
    let twice = async |cx: Workflow, token: String| {
        let hook: Hook<u64> = cx.hook("numbers").token(token).create()?;
        hook.conflict().await?;
        let ends = cx.join_all([hook.next(), hook.next()]).await;
        Ok::<_, Error>(
            ends.iter().filter(|end| matches!(end, Err(error) if error.hook_taken().is_some())).count(),
        )
    };
    kit().workflow_fn("twice", twice).run(async |kit| {
        let first = kit.start_instance("twice", "t").await.unwrap();
        first.reaches(Status::Waiting).await.unwrap();
        let second = kit.start_instance("claim", "t").await.unwrap();
        assert_eq!(first.result::<usize>().await.unwrap(), 2);
        kit.resume("t", &9).await.unwrap().unwrap();
        assert_eq!(second.result::<(bool, u64)>().await.unwrap(), (true, 9));
    });
}

#[test]
fn h05_h06_h16_a_start_with_a_token_is_resumed_before_it_has_run_and_keeps_it_afterwards() {
    let kept = async |cx: Workflow, n: u64| {
        let hook: Hook<u64> = cx.hook("order").token(format!("order:{n}")).create()?;
        hook.keep().next().await
    };
    TestKit::new().workflow_fn("kept", kept).run(async |kit| {
        let hook = StartHook {
            retention: Some(HookRetention::parse("2 days").unwrap()),
            ..StartHook::new("order:1".parse().unwrap())
        };
        let run = match kit.start_with_hook("kept", hook, &1).await.unwrap() {
            HookStart::Started(run) => run,
            HookStart::Held(run) => panic!("{run}"),
        };
        assert_eq!(kit.resume("order:1", &7).await.unwrap().unwrap().id(), run.id());
        assert_eq!(run.result::<u64>().await.unwrap(), 7);
        let again = kit.start_with_token("kept", "order:1", &1).await.unwrap();
        assert!(matches!(&again, HookStart::Held(held) if held.id() == run.id()), "{again:?}");
        assert!(kit.resume("order:1", &8).await.unwrap().is_none(), "a kept owner cannot be resumed");
        kit.advance("2 days").await.unwrap();
        assert!(matches!(kit.start_with_token("kept", "order:1", &1).await, Ok(HookStart::Started(_))));
        kit.resume("order:1", &9).await.unwrap().unwrap();
    });
}

/// A rollback throws the body away, which is not what the body does; a cancel is an error that leaves the scope of the guard.
#[test]
fn h20_h52_w29_a_rollback_lets_nothing_go_and_a_cancel_does() {
    let held = async |cx: Workflow, (): ()| {
        let hook: Hook<u64> = cx.hook("order").token("t").retention("2 days").create()?;
        let step = cx.step("s", 1u64, async |_: Step, n: u64| Ok::<_, Error>(n));
        step.compensate(async |_: Step, _: Undo<u64, u64>| Ok::<_, Error>(())).await?;
        hook.next().await
    };
    TestKit::new().workflow_fn("held", held).run(async |kit| {
        for rolls_back in [false, true] {
            let run = kit.start_instance("held", &()).await.unwrap();
            run.reaches(Status::Waiting).await.unwrap();
            if rolls_back {
                run.roll_back("no").await.unwrap();
            } else {
                run.cancel("no").await.unwrap();
            }
            run.end().await.unwrap();
            let hook = kit.hook("t").await.unwrap();
            assert_eq!(hook.map(|view| view.hook.ended), rolls_back.then_some(true));
        }
    });
}

#[test]
fn h40_hooks_come_to_the_same_wherever_the_worker_crashes() {
    let report = crash_everywhere(|| {
        let kit =
            TestKit::new().workflow_fn("sum", sum).workflow_fn("batch", |cx: Workflow, n: u64| async move {
                let mut outputs = Vec::new();
                for _ in 0..n {
                    let hook: Hook<u64> = cx.hook("part").token("part").create()?;
                    let got = hook.next().await?;
                    outputs
                        .push(cx.step("double", got, async |_: Step, n: u64| Ok::<_, Error>(n * 2)).await?);
                }
                Ok::<_, Error>(outputs)
            });
        (kit, async |kit: Kit| {
            let run = kit.start_instance_as("batch", "one", &3).await.unwrap();
            for n in 1..=3u64 {
                // The token is free between two parts, so a payload is sent until somebody has it.
                while kit.resume("part", &n).await.unwrap().is_none() {
                    kit.settle().await.unwrap();
                }
                let _: u64 = run.step(("double", n as u32)).await.unwrap();
            }
            run.result::<Vec<u64>>().await.unwrap()
        })
    });
    assert!(report.points.len() > 5, "{report:?}");
}

/// Starts the sum of a token, or hands its number to the one that has it.
async fn route(cx: Workflow, n: u64) -> Result<(String, String), Error> {
    let start = cx.child::<u64>("start", "sum", "t").token("t").retention("1 day").detached().start();
    match start.await {
        Ok(started) => Ok(("started".to_owned(), started.id().to_owned())),
        Err(error) if error.hook_conflict().is_some() => match cx.resume_hook("tell", "t", n).await? {
            Some(owner) => Ok(("told".to_owned(), owner.id().to_owned())),
            None => Ok(("knows".to_owned(), error.message().to_owned())),
        },
        Err(error) => Err(error),
    }
}

/// Starts and resumes are letters: whatever is lost on the way is done once.
#[test]
fn h28_h33_h48_what_workflows_start_and_resume_comes_to_the_same_wherever_a_worker_crashes() {
    let report = crash_everywhere(|| {
        (kit().workflow_fn("route", route), async |kit: Kit| {
            let mut came = Vec::new();
            for (n, id) in [(3u64, "one"), (4, "two"), (0, "three")] {
                let run = kit.start_instance_as("route", id, &n).await.unwrap();
                came.push(run.result::<(String, String)>().await.unwrap());
            }
            let sum = kit.instance("sum", &came[0].1).unwrap();
            assert!(came.iter().all(|(_, id)| *id == came[0].1), "{came:?}");
            let words: Vec<_> = came.into_iter().map(|(word, _)| word).collect();
            (words, sum.result::<u64>().await.unwrap())
        })
    });
    assert!(report.points.len() > 5, "{report:?}");
}

#[test]
fn h28_h33_workflows_start_or_tell_whoever_has_the_token() {
    kit().workflow_fn("route", route).run(async |kit| {
        let routed = async |n: u64| {
            let run = kit.start_instance("route", &n).await.unwrap();
            run.result::<(String, String)>().await.unwrap()
        };
        let (word, id) = routed(3).await;
        assert_eq!(word, "started");
        for n in [4, 5, 0] {
            assert_eq!(routed(n).await, ("told".to_owned(), id.clone()));
        }
        assert_eq!(kit.instance("sum", &id).unwrap().result::<u64>().await.unwrap(), 9);
        // The guard of its hook has let the token go, so that the next is the first again.
        let (word, next) = routed(1).await;
        assert!(word == "started" && next != id);
        kit.resume("t", &0u64).await.unwrap().unwrap();
    });
}

/// A cancel ends one await and no more: what comes for the hook until the deadline is received.
#[test]
fn h52_p30_payloads_go_on_after_a_cancel() {
    let tidy = async |cx: Workflow, token: String| {
        let hook: Hook<u64> = cx.hook("numbers").token(token).create()?;
        let mut payloads = hook.payloads();
        let (mut got, mut cancels) = (Vec::new(), 0);
        while let Some(payload) = payloads.next().await {
            match payload {
                Ok(0) => hook.dispose().await,
                Ok(n) => got.push(n),
                Err(error) if error.is_cancelled() => cancels += 1,
                Err(error) => return Err(error),
            }
        }
        Ok::<_, Error>((got, cancels))
    };
    TestKit::new().workflow_fn("tidy", tidy).run(async |kit| {
        let run = kit.start_instance("tidy", "t").await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.resume("t", &1).await.unwrap().unwrap();
        kit.settle().await.unwrap();
        run.cancel("enough").await.unwrap();
        kit.settle().await.unwrap();
        for n in [2, 3, 0] {
            kit.resume("t", &n).await.unwrap().unwrap();
        }
        assert_eq!(run.result::<(Vec<u64>, u32)>().await.unwrap(), (vec![1, 2, 3], 1));
    });
}

#[test]
fn p42_what_cannot_be_asked_is_refused() {
    kit().run(async |kit| {
        assert!(matches!(kit.resume("", &1).await, Err(KitError::Invalid(_))));
        assert!(matches!(kit.start_with_token("none", "t", &1).await, Err(KitError::NotStarted { .. })));
        assert!(kit.resume("nobody", &1).await.unwrap().is_none());
    });
}

/// Books each order that it is called with, after a nap, until it is told to close.
async fn book(cx: Workflow, (): ()) -> Result<u64, Error> {
    let webhook = cx.webhook("order").token("orders").replying().create()?;
    let mut booked = 0;
    loop {
        let request = webhook.next().await?;
        if request.method() == WebhookMethod::Post && request.query_value("close").is_some() {
            request.respond(WebhookResponse::new(204)).await?;
            return Ok(booked);
        }
        cx.sleep("nap", request.json::<u64>()?).await?;
        booked += 1;
        request.respond(WebhookResponse::new(201).json(&booked)).await?;
    }
}

fn order(id: &str, nap_ms: u64) -> WebhookCall {
    WebhookCall::post("orders").unwrap().id(id).json(&nap_ms)
}

fn answered(answer: &WebhookAnswer) -> (u16, Option<&str>) {
    let response = answer.response().unwrap();
    (response.status, response.body.as_deref())
}

#[test]
fn h58_a_test_calls_a_webhook_and_gets_what_its_code_answers() {
    TestKit::new().workflow_fn("book", book).run(async |kit| {
        let run = kit.start_instance("book", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        assert_eq!(answered(&kit.webhook(order("1", 5_000)).await.unwrap()), (201, Some("1")));
        assert_eq!(answered(&kit.webhook(order("1", 5_000)).await.unwrap()), (201, Some("1")), "sent again");
        // Longer than anybody waits: accepted, and booked all the same.
        let began = kit.now();
        assert_eq!(answered(&kit.webhook(order("2", 60_000)).await.unwrap()), (202, None));
        assert!(kit.now().since(began).as_u64() >= 30_000);
        let nobody = WebhookCall::post("nobody").unwrap();
        assert!(matches!(kit.webhook(nobody).await.unwrap(), WebhookAnswer::Not(_)));
        let wrong = WebhookCall::new(WebhookMethod::Get, "orders").unwrap();
        assert_eq!(kit.webhook(wrong).await.unwrap(), WebhookAnswer::Method("POST".to_owned()));
        let close = WebhookCall::post("orders").unwrap().query("close", "");
        kit.webhook(close).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 2);
    });
}

#[test]
fn h58_webhooks_answer_the_same_wherever_the_worker_crashes() {
    crash_everywhere(|| {
        (TestKit::new().workflow_fn("book", book), async |kit: Kit| {
            let run = kit.start_instance_as("book", "one", &()).await.unwrap();
            run.reaches(Status::Waiting).await.unwrap();
            let mut answers = Vec::new();
            for id in ["1", "2"] {
                let answer = kit.webhook(order(id, 10)).await.unwrap();
                answers.push(answered(&answer).1.map(str::to_owned));
            }
            kit.webhook(WebhookCall::post("orders").unwrap().id("3").query("close", "")).await.unwrap();
            (answers, run.result::<u64>().await.unwrap())
        })
    });
}
