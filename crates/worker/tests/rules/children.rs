//! Calls of other instances, as a worker replays and reports them (rule P36): children, ends, events. Not: what the others do.

use everstep_engine::letter::{Said, failed, held, nobody, refusal};
use everstep_protocol::{
    Failure, FailureKind, Payload,
    journal::{Fact, Other, Outcome, ParkCode},
};
use everstep_sdk::{Error, Registry, Step, Undo, Workflow};
use everstep_worker::hosted::Finish;

use crate::rig::Rig;

fn gave(text: &str) -> Outcome {
    Outcome::Succeeded(Payload::from_text(text).unwrap())
}

/// Waits for a child, then for another instance, and sends it what both gave.
fn family() -> Registry {
    Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let child: u64 = cx.child("pack", "packing", "socks").await?;
        let other = cx.instance("shop", "o-1");
        let result: u64 = other.result().await?;
        other.send("packed", child + result).key("k").await?;
        let started = cx.child::<()>("report", "reports", ()).id("r-1").detached().start().await?;
        Ok::<_, Error>((child, result, format!("{}/{}", started.workflow(), started.id())))
    })
}

/// Runs until nothing goes on, then has the last call answered.
fn answered(rig: &mut Rig, outcome: Outcome) {
    rig.run();
    let said = rig.co.answer(rig.uid, outcome);
    rig.inbox.extend(said.into_iter().map(|(_, item)| item));
}

#[test]
fn p36_calls_of_others_suspend_and_replay() {
    let mut rig = Rig::new(family());
    for outcome in [gave("3"), gave("4"), gave("null"), gave(r#"{"workflow":"reports","id":"r-1"}"#)] {
        answered(&mut rig, outcome);
        assert_eq!(rig.finished.last(), Some(&Finish::Suspended), "it holds no slot while it waits");
    }
    assert_eq!(rig.output::<(u64, u64, String)>(), (3, 4, "reports/r-1".to_owned()));
    let said: Vec<_> = rig.co.mail.iter().map(|letter| letter.said.clone()).collect();
    let Said::Start { child, parent, depth: 1 } = &said[0] else { panic!("{said:?}") };
    assert_eq!((child.workflow.as_str(), child.input.as_str()), ("packing", r#""socks""#));
    assert!(!child.detached && !child.only_started, "awaited children are attached");
    assert_eq!(parent.workflow.as_str(), "w");
    assert_eq!(said[1], Said::Watch);
    let Said::Event(event) = &said[2] else { panic!("{said:?}") };
    assert_eq!((event.kind.as_str(), event.payload.as_str()), ("packed", "7"));
    assert_eq!(event.key, Some("k".parse().unwrap()));
    let Said::Start { child, .. } = &said[3] else { panic!("{said:?}") };
    assert!(child.detached && child.only_started && child.id.as_str() == "r-1");
}

/// An id follows from the call, so that each of several calls of a name has a child of its own.
#[test]
fn p36_each_call_has_a_child_of_its_own() {
    let mut rig = Rig::new(Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let (one, other) = futures::join!(cx.child::<u64>("c", "x", 1), cx.child::<u64>("c", "x", 1));
        Ok::<_, Error>(one? + other?)
    }));
    rig.run();
    let ids: Vec<_> = rig
        .co
        .mail
        .iter()
        .filter_map(|letter| match &letter.said {
            Said::Start { child, .. } => Some(child.id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn p36_the_failure_of_another_is_caught_as_it_is() {
    let mut rig = Rig::new(Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let declined = cx.child::<()>("c", "x", ()).await.unwrap_err();
        let gone = cx.instance("x", "o").result::<()>().await.unwrap_err();
        Ok::<_, Error>((declined.name().to_owned(), declined.data::<u64>(), gone.name().to_owned()))
    }));
    let declined = Failure {
        name: "CardDeclined".to_owned(),
        data: Some(Payload::from_text("51").unwrap()),
        ..Failure::new(FailureKind::Error, "no")
    };
    answered(&mut rig, failed(declined));
    answered(&mut rig, failed(refusal("InstanceNotFound", "nobody".to_owned())));
    let expected = ("CardDeclined".to_owned(), Some(51), "InstanceNotFound".to_owned());
    assert_eq!(rig.output::<(String, Option<u64>, String)>(), expected);
}

/// Calls that cannot begin fail at once, and nothing is written for them.
#[test]
fn p36_a_call_that_is_not_valid_fails_where_it_is_made() {
    let mut rig = Rig::new(Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let me = cx.instance_id().to_owned();
        let errors = [
            cx.child::<()>("c", "No Name", ()).await.unwrap_err(),
            cx.child::<()>("c", "x", ()).id("no id").await.unwrap_err(),
            cx.child::<()>("c", "x", f64::NAN).await.unwrap_err(),
            cx.child::<()>("c", "x", "x".repeat(2 << 20)).await.unwrap_err(),
            cx.instance("x", "no id").result::<()>().await.unwrap_err(),
            cx.instance("w", &me).result::<()>().await.unwrap_err(),
            cx.child::<()>("c", "w", ()).id(&me).await.unwrap_err(),
            cx.child::<()>("c", "w", ()).id(&me).start().await.unwrap_err(),
            cx.instance("x", "o").send("", ()).await.unwrap_err(),
            cx.instance("x", "o").send("a", ()).key("").await.unwrap_err(),
            cx.instance("x", "o").send("a", "x".repeat(2 << 20)).await.unwrap_err(),
        ];
        Ok::<_, Error>(errors.map(|error| format!("{:?}", error.kind())).to_vec())
    }));
    let kinds = rig.output::<Vec<String>>();
    let expected = [
        "Invalid",
        "Invalid",
        "Unserialisable",
        "TooLarge",
        "Invalid",
        "Invalid",
        "Invalid",
        "Invalid",
        "Invalid",
        "Invalid",
        "TooLarge",
    ];
    assert_eq!(kinds, expected);
    assert!(rig.co.mail.is_empty());
}

/// The loser of a race: its wait is closed, and what comes late is skipped in every replay.
#[test]
fn p36_a_dropped_call_is_closed() {
    let mut rig = Rig::new(Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let step = async |_: Step, (): ()| Ok::<_, Error>("stepped".to_owned());
        let first = tokio::select! {
            child = cx.child::<String>("c", "x", ()) => child?,
            slept = cx.sleep("nap", "1s") => { slept?; "slept".to_owned() }
        };
        let then: String = cx.step("s", (), step).await?;
        cx.sleep("again", "1s").await?;
        Ok::<_, Error>((first, then))
    }));
    assert_eq!(rig.output::<(String, String)>(), ("slept".to_owned(), "stepped".to_owned()));
    let words: Vec<_> = rig.co.journal[&rig.uid].iter().map(|entry| entry.fact.word()).collect();
    assert!(words.contains(&"closed"), "{words:?}");
}

/// Another workflow under the same name would be another child: the journal tells.
#[test]
fn p36_another_input_under_the_same_build_is_a_mismatch() {
    let with = |input: u64| {
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            cx.child::<u64>("c", "x", input).await
        })
    };
    let mut rig = Rig::new(with(1));
    answered(&mut rig, gave("3"));
    rig.registry = with(2);
    rig.run();
    let parked = rig.co.journal[&rig.uid].iter().find_map(|entry| match &entry.fact {
        Fact::Parked(parked) => Some(parked.clone()),
        _ => None,
    });
    assert_eq!(parked.map(|parked| parked.code), Some(ParkCode::JournalMismatch));
    // Under another build what is recorded counts.
    let mut rig = Rig::new(with(1));
    answered(&mut rig, gave("3"));
    rig.registry = with(2);
    rig.build = "b2".parse().unwrap();
    assert_eq!(rig.output::<u64>(), 3);
}

/// Whether a value or an error, and whether compensations follow: what the end drops is dropped.
#[test]
fn p36_an_end_gives_up_the_children_whose_calls_it_drops() {
    for (fails, compensates) in [(false, false), (true, false), (true, true)] {
        let registry = Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            let step = cx.step("s", (), async |_: Step, (): ()| Ok::<_, Error>(()));
            if compensates {
                step.compensate(async |_: Step, _: Undo<(), ()>| Ok::<_, Error>(())).await?;
            } else {
                step.await?;
            }
            cx.child::<()>("other", "x", ()).start().await?;
            tokio::select! {
                child = cx.child::<()>("c", "x", ()) => child,
                slept = cx.sleep("nap", "1s") => {
                    slept?;
                    if fails { Err(Error::failed("enough")) } else { Ok(()) }
                }
            }
        });
        let mut rig = Rig::new(registry);
        answered(&mut rig, gave(r#"{"workflow":"x","id":"o"}"#));
        rig.run();
        let words = rig.words();
        let closed = words.iter().filter(|word| word.starts_with("closed")).collect::<Vec<_>>();
        assert_eq!(closed, ["closed c1"], "{words:?}");
        assert_eq!(words.last().unwrap(), "ended");
        assert_eq!(words.contains(&"compensating".to_owned()), compensates, "{words:?}");
    }
}

/// The end waits until the start of the child is on record, and then gives it up.
#[test]
fn p36_an_end_gives_up_a_child_whose_start_was_under_way() {
    let mut rig = Rig::held(Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let step = async |_: Step, (): ()| Ok::<_, Error>(());
        let then = async {
            cx.step("first", (), step).await?;
            cx.child::<()>("c", "x", ()).await
        };
        tokio::select! {
            biased;
            event = cx.event::<()>("stop") => event.map(drop),
            child = then => child,
            // Runs all the time, so that nothing is folded.
            slow = async { cx.step("slow", (), step).await } => slow,
        }
    }));
    assert!(rig.attempt());
    rig.turn();
    rig.flush();
    rig.receive();
    rig.turn();
    assert_eq!(rig.out.len(), 1, "the child's start is on its way");
    rig.event("e-1", "stop", "null");
    rig.receive();
    rig.turn();
    rig.output::<()>();
    let words = rig.words();
    assert_eq!(words[words.len() - 3..], ["opened c1", "closed c1", "ended"], "{words:?}");
}

#[test]
fn h28_h45_calls_of_tokens_suspend_and_replay() {
    let mut rig = Rig::new(Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let start = cx.child::<()>("start", "orders", 17).token("order:17").metadata(&"m").detached().start();
        let error = start.await.unwrap_err();
        let owner = error.hook_conflict().map(|conflict| conflict.owner.id);
        let accepted = cx.resume_hook("tell", "order:17", 17).await?.map(|other| other.id().to_owned());
        let nobody = cx.resume_hook("tell", "order:17", 18).await?.is_none();
        Ok::<_, Error>((owner, accepted, nobody))
    }));
    let owner = Other { workflow: "orders".parse().unwrap(), id: "o-9".parse().unwrap() };
    let name = r#"{"workflow":"orders","id":"o-9"}"#;
    for outcome in [failed(held(&owner)), gave(name), failed(nobody())] {
        answered(&mut rig, outcome);
        assert_eq!(rig.finished.last(), Some(&Finish::Suspended), "it holds no slot while it waits");
    }
    let came = rig.output::<(Option<String>, Option<String>, bool)>();
    assert_eq!(came, (Some("o-9".to_owned()), Some("o-9".to_owned()), true));
    let said: Vec<_> = rig.co.mail.iter().map(|letter| letter.said.clone()).collect();
    let Said::Start { child, .. } = &said[0] else { panic!("{said:?}") };
    let hook = child.hook.clone().unwrap();
    assert_eq!((hook.token.as_str(), hook.metadata.unwrap().as_str()), ("order:17", "\"m\""));
    let ids = |said: &Said| match said {
        Said::Resume { sent, .. } => {
            (sent.token.to_string(), sent.payload.as_str().to_owned(), sent.id.clone())
        }
        other => panic!("{other:?}"),
    };
    let [first, second] = [ids(&said[1]), ids(&said[2])];
    assert_eq!((first.0.as_str(), first.1.as_str(), second.1.as_str()), ("order:17", "17", "18"));
    assert_ne!(first.2, second.2, "each call is a payload of its own");
}
