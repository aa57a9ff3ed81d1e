//! Steps that may not simply be called again (rules L5 to L8), wherever their worker crashes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use everstep::{Error, FailureKind, Millis, Retry, Step, Workflow};
use everstep_testkit::{
    Kit, KitError, Mock, Run, Status, TestKit, crash_everywhere,
    journal::{Fact, Outcome},
};

/// A bank that knows no keys and cannot be asked. It counts what it did.
#[derive(Clone, Debug, Default)]
struct Bank(Arc<AtomicU32>);

impl Bank {
    fn transfers(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A transfer between two other steps, with awaits before and after its effect.
fn transfer(bank: &Bank) -> TestKit {
    let bank = bank.clone();
    TestKit::new().workflow_fn("transfer", move |cx: Workflow, (): ()| {
        let bank = bank.clone();
        async move {
            let pass = async |_: Step, (): ()| Ok::<_, Error>(());
            let retry = Retry::constant("1s").limit(5);
            cx.step("before", (), pass).retry(retry.clone()).await?;
            let paid: String = cx
                .step("transfer", (), move |_: Step, (): ()| {
                    let bank = bank.clone();
                    async move {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        bank.0.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        Ok::<_, Error>("paid".to_owned())
                    }
                })
                .at_most_once()
                .await?;
            cx.step("after", (), pass).retry(retry).await?;
            Ok::<_, Error>(paid)
        }
    })
}

/// Somebody who looks into the bank's books whenever the instance asks.
async fn with_a_person(run: &Run, bank: &Bank) -> (String, u32) {
    let mut asked = 0;
    loop {
        match run.result::<String>().await {
            Ok(paid) => return (paid, asked),
            Err(KitError::Asked { .. }) => {
                asked += 1;
                let question = run.asked().await.unwrap();
                if bank.transfers() == 0 {
                    run.resolve_again(question.id).await.unwrap();
                } else {
                    run.resolve_done(question.id, "paid").await.unwrap();
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn l07_a_step_that_is_called_at_most_once_is_wherever_its_worker_crashes() {
    let questions = Arc::new(AtomicU32::new(0));
    let count = questions.clone();
    let report = crash_everywhere(move || {
        let bank = Bank::default();
        let kit = transfer(&bank);
        let questions = count.clone();
        (kit, async move |kit: Kit| {
            let run = kit.start_instance_as("transfer", "one", &()).await.unwrap();
            let (paid, asked) = with_a_person(&run, &bank).await;
            questions.fetch_add(asked, Ordering::SeqCst);
            (paid, bank.transfers())
        })
    });
    for point in [
        "announced",
        "step \"transfer\" #1 of transfer/one, attempt 1: before it runs",
        "step \"transfer\" #1 of transfer/one, attempt 1: at its await 1",
        "step \"transfer\" #1 of transfer/one, attempt 1: at its await 2",
        "step \"transfer\" #1 of transfer/one, attempt 1: after it ran, before its outcome is reported",
    ] {
        assert!(report.points.iter().any(|passed| passed.contains(point)), "{point}: {:#?}", report.points);
    }
    let asked = questions.load(Ordering::SeqCst);
    assert!((4..=8).contains(&asked), "{asked} of {:#?}", report.points);
}

/// What can be looked up needs nobody.
#[test]
fn l07_a_step_that_looks_first_comes_to_one_effect_wherever_its_worker_crashes() {
    crash_everywhere(|| {
        let crm = Bank::default();
        let (calls, looks) = (crm.clone(), crm.clone());
        let kit = TestKit::new().workflow_fn("sync", move |cx: Workflow, (): ()| {
            let (calls, looks) = (calls.clone(), looks.clone());
            async move {
                cx.step("create", "ann@example.org", move |_: Step, _: String| {
                    let crm = calls.clone();
                    async move {
                        crm.0.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        Ok::<_, Error>(7)
                    }
                })
                .look_first(move |_: Step, _: String| {
                    let there = looks.transfers() > 0;
                    async move { Ok::<_, Error>(there.then_some(7)) }
                })
                .visibility_lag("30s")
                .retry(Retry::constant("1s").limit(5))
                .await
            }
        });
        (kit, async move |kit: Kit| {
            let run = kit.start_instance_as("sync", "one", &()).await.unwrap();
            (run.result::<u32>().await.unwrap(), crm.transfers())
        })
    });
}

/// A remote step has no intent of its own: its lease is one.
#[test]
fn l07_a_remote_step_is_called_at_most_once_too() {
    crash_everywhere(|| {
        let bank = Bank::default();
        let pool = bank.clone();
        let kit = TestKit::new().workflow_fn("transfer", |cx: Workflow, (): ()| async move {
            let paid = cx.remote::<String>("transfer", ()).on("bank").at_most_once();
            paid.retry(Retry::constant("1s").limit(5)).await
        });
        let kit = kit.pool("bank").function("transfer", move |_: Step, (): ()| {
            let bank = pool.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                bank.0.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, Error>("paid".to_owned())
            }
        });
        (kit, async move |kit: Kit| {
            let run = kit.start_instance_as("transfer", "one", &()).await.unwrap();
            let (paid, _) = with_a_person(&run, &bank).await;
            (paid, bank.transfers())
        })
    });
}

#[test]
fn l06_a_remote_step_looks_first_with_a_function_of_its_pool() {
    let kit = TestKit::new().workflow_fn("sync", |cx: Workflow, (): ()| async move {
        let create = cx.remote::<u32>("create", 5).on("crm").look_first("find").visibility_lag("30s");
        create.retry(Retry::constant("1s")).await
    });
    let crm = Bank::default();
    let (finds, creates) = (crm.clone(), crm.clone());
    let kit = kit
        .pool("crm")
        .function("create", move |_: Step, n: u32| {
            creates.0.fetch_add(1, Ordering::SeqCst);
            async move { Err::<u32, _>(Error::failed(format!("timed out after {n}"))) }
        })
        .function("find", move |_: Step, n: u32| {
            let there = finds.transfers() > 0;
            async move { Ok::<_, Error>(there.then_some(n)) }
        });
    kit.run(async |kit| {
        let run = kit.start_instance("sync", &()).await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 5);
        let attempts = run.journal().await.unwrap().into_iter().filter_map(|entry| match entry.fact {
            Fact::Attempted(attempted) => Some((attempted.marks.found, attempted.retry_at().is_some())),
            _ => None,
        });
        assert_eq!(attempts.collect::<Vec<_>>(), [(false, true), (true, false)]);
    });
    assert_eq!(crm.transfers(), 1);
}

#[test]
fn l08_other_branches_go_on_while_a_person_is_asked() {
    let kit = TestKit::new().workflow_fn("two", |cx: Workflow, (): ()| async move {
        let pay = cx.step("pay", (), async |_: Step, (): ()| Ok::<_, Error>(1)).at_most_once();
        let other = async {
            cx.sleep("nap", "1 day").await?;
            cx.step("other", (), async |_: Step, (): ()| Ok::<_, Error>(2)).await
        };
        let (paid, other): (u32, u32) = futures::try_join!(pay, other)?;
        Ok::<_, Error>(paid + other)
    });
    kit.run(async |kit| {
        kit.mock(Mock::step("pay").fails(1, Error::failed("timed out"))).unwrap();
        let run = kit.start_instance("two", &()).await.unwrap();
        let asked = run.asked().await.unwrap();
        assert_eq!(asked.call.name.as_str(), "pay");
        assert_eq!(run.status().await.unwrap(), Status::Attention);
        kit.advance("2 days").await.unwrap();
        assert_eq!(run.step::<u32>("other").await.unwrap(), 2, "the other branch went on");
        run.resolve_done(asked.id, &40).await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 42);
        let error = run.resolve_again(asked.id).await.unwrap_err();
        assert!(error.to_string().contains("it was answered by the test: done"), "{error}");
    });
}

#[test]
fn l08_a_person_may_say_that_it_failed() {
    let kit = TestKit::new().workflow_fn("pay", |cx: Workflow, (): ()| async move {
        let pay = cx.step("pay", (), async |_: Step, (): ()| Ok::<_, Error>(1)).at_most_once();
        match pay.await {
            Ok(_) => Ok("paid".to_owned()),
            Err(error) if error.kind() == FailureKind::Error => Ok(format!("not paid: {}", error.message())),
            Err(other) => Err(other),
        }
    });
    kit.run(async |kit| {
        kit.mock(Mock::step("pay").fails(1, Error::failed("timed out"))).unwrap();
        let run = kit.start_instance("pay", &()).await.unwrap();
        let asked = run.asked().await.unwrap();
        run.resolve_failed(asked.id, "the bank has nothing in its books").await.unwrap();
        let result: String = run.result().await.unwrap();
        assert_eq!(result, "not paid: the bank has nothing in its books");
        let unknown = run.journal().await.unwrap().into_iter().any(|entry| {
            matches!(entry.fact, Fact::Attempted(attempted) if matches!(attempted.outcome, Outcome::Unknown { asks: true, .. }))
        });
        assert!(unknown);
    });
}

#[test]
fn l07_a_restart_from_a_step_does_not_make_an_unknown_call_again() {
    let bank = Bank::default();
    let kit = transfer(&bank);
    kit.run(async |kit| {
        kit.mock(Mock::step("transfer").fails(1, Error::failed("timed out"))).unwrap();
        let run = kit.start_instance("transfer", &()).await.unwrap();
        let asked = run.asked().await.unwrap();
        for refused in [run.restart_from("before").await, run.restart_and_reuse().await] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("nobody knows whether step \"transfer\" #1 took effect"), "{error}");
        }
        assert_eq!(run.questions().await.unwrap()[0].id, asked.id, "nothing has changed");
        // Who restarts from the very call asks for it; what fails again asks again.
        run.restart_from("transfer").await.unwrap();
        let again = run.asked().await.unwrap();
        assert_ne!(again.id, asked.id);
        run.resolve_again(again.id).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "paid");
    });
    assert_eq!(bank.transfers(), 1);
}

/// `pay` has an invoice charged under its ledger key, and `charge` takes a day for it and counts.
fn payers(charges: &Arc<AtomicU32>) -> TestKit {
    let charges = charges.clone();
    TestKit::new()
        .coordinator(|settings| {
            settings.retention_complete = Millis::parse("1 day").unwrap();
            settings.retention_failed = Millis::parse("1 day").unwrap();
        })
        .workflow_fn("pay", |cx: Workflow, cents: u64| async move {
            let charge = cx.child::<String>("charge", "charge", cents).ledger_key("invoice:7");
            charge.keep_for("400 days").await
        })
        .workflow_fn("charge", move |cx: Workflow, cents: u64| {
            let charges = charges.clone();
            async move {
                cx.sleep("settle", "1 day").await?;
                let charge = move |_: Step, cents: u64| {
                    let number = charges.fetch_add(1, Ordering::Relaxed) + 1;
                    async move {
                        if cents == 0 {
                            Err(Error::permanent("nothing to pay").named("Nothing"))
                        } else {
                            Ok(number)
                        }
                    }
                };
                let number: u32 = cx.step("charge", cents, charge).await?;
                Ok::<_, Error>(format!("charge {number}"))
            }
        })
}

#[test]
fn l04_a_ledger_key_is_one_effect_for_every_instance_that_names_it() {
    let charges = Arc::new(AtomicU32::new(0));
    let counted = charges.clone();
    payers(&charges).run(async move |kit| {
        let first = kit.start_instance("pay", &100).await.unwrap();
        let second = kit.start_instance("pay", &100).await.unwrap();
        let other = kit.start_instance("pay", &200).await.unwrap();
        first.reaches(Status::Waiting).await.unwrap();
        first.terminate("wrong").await.unwrap();
        assert_eq!(other.error().await.unwrap().name(), "InstanceConflict", "it names another effect");
        assert_eq!(second.result::<String>().await.unwrap(), "charge 1", "it ends with none of them");
        let third = kit.start_instance("pay", &100).await.unwrap();
        assert_eq!(third.result::<String>().await.unwrap(), "charge 1");
        assert_eq!(counted.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn l13_a_ledger_entry_outlives_those_that_named_it_and_ends_with_its_own_retention() {
    let charges = Arc::new(AtomicU32::new(0));
    let counted = charges.clone();
    payers(&charges).run(async move |kit| {
        let paid = async |expected: &str| {
            let run = kit.start_instance("pay", &100).await.unwrap();
            assert_eq!(run.result::<String>().await.unwrap(), expected);
            run
        };
        let first = paid("charge 1").await;
        kit.advance("399 days").await.unwrap();
        assert!(first.view().await.is_err(), "its own retention is over");
        paid("charge 1").await;
        kit.advance("2 days").await.unwrap();
        paid("charge 2").await;
        assert_eq!(counted.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn l04_a_failure_under_a_ledger_key_is_its_answer_until_a_person_says_otherwise() {
    let charges = Arc::new(AtomicU32::new(0));
    let counted = charges.clone();
    payers(&charges).run(async move |kit| {
        for _ in 0..2 {
            let run = kit.start_instance("pay", &0).await.unwrap();
            assert_eq!(run.error().await.unwrap().name(), "Nothing");
        }
        assert_eq!(counted.load(Ordering::Relaxed), 1);
        kit.mock(Mock::step("charge").returns(&9)).unwrap();
        kit.instance("charge", "invoice:7").unwrap().restart().await.unwrap();
        let run = kit.start_instance("pay", &0).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "charge 9");
    });
}

#[test]
fn l04_a_ledger_key_or_retention_that_cannot_be_is_refused_at_the_call() {
    let kit = TestKit::new().workflow_fn("pay", |cx: Workflow, (key, length): (String, String)| async move {
        cx.child::<()>("charge", "charge", ()).ledger_key(key).keep_for(length).await
    });
    kit.run(async |kit| {
        for (key, length, says) in [
            ("invoice/7", "1 day", "invoice/7"),
            ("", "1 day", "id"),
            ("invoice:7", "11 years", "4015d"),
            ("invoice:7", "soon", "soon"),
        ] {
            let run = kit.start_instance("pay", &(key, length)).await.unwrap();
            let error = run.error().await.unwrap();
            assert!(error.message().contains(says), "{key} {length}: {error}");
        }
    });
}

#[test]
fn l14_what_a_service_calls_it_stands_with_the_attempt() {
    let kit = TestKit::new()
        .pool("pool")
        .function("ship", async |step: Step, (): ()| {
            step.reference("parcel 9");
            Ok::<_, Error>(())
        })
        .workflow_fn("order", |cx: Workflow, (): ()| async move {
            let charge = cx.step("charge", (), async |step: Step, (): ()| {
                step.reference(format!("\tch_{}\n", step.attempt()));
                step.reference("what comes second is not heard");
                if step.attempt() == 1 { Err(Error::failed("away")) } else { Ok(()) }
            });
            charge.retry(Retry::constant("1s").limit(3)).await?;
            cx.step("mail", (), async |step: Step, (): ()| {
                step.reference("");
                Ok::<_, Error>(())
            })
            .await?;
            cx.step("book", (), async |step: Step, (): ()| {
                step.reference("x".repeat(300));
                Ok::<_, Error>(())
            })
            .await?;
            cx.remote::<()>("ship", ()).on("pool").await
        });
    kit.run(async |kit| {
        let run = kit.start_instance("order", &()).await.unwrap();
        run.result::<()>().await.unwrap();
        let journal = run.journal().await.unwrap();
        let said = journal.iter().filter_map(|entry| match &entry.fact {
            Fact::Attempted(attempted) => {
                Some(attempted.reference.as_ref().map(|reference| reference.as_str().to_owned()))
            }
            _ => None,
        });
        let text = |text: &str| Some(text.to_owned());
        let long = Some("x".repeat(256));
        assert_eq!(said.collect::<Vec<_>>(), [text("ch_1"), text("ch_2"), None, long, text("parcel 9")]);
    });
}
