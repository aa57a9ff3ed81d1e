//! Sleeps, suspends, lingering, and bodies that wait for the wrong thing.

use std::task::Poll;

use everstep_engine::What;
use everstep_protocol::{
    journal::ParkCode,
    message::{Report, Then, WorkerItem},
};
use everstep_sdk::{Error, Registry, Step, Workflow};
use everstep_worker::hosted::Finish;

use crate::rig::Rig;

fn naps(lengths: &'static [&'static str]) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        for length in lengths {
            cx.sleep("nap", *length).await?;
        }
        Ok::<_, Error>(())
    })
}

#[test]
fn w03_a_suspend_carries_the_waits_that_it_opens() {
    let mut rig = Rig::new(naps(&["10s"]));
    rig.claim();
    rig.receive();
    rig.turn();
    match &rig.out[0] {
        WorkerItem::Report(Report { opened, then: Then::Suspend, .. }) => assert_eq!(opened.len(), 1),
        other => panic!("{other:?}"),
    }
    let begin = rig.co.now;
    rig.run();
    assert_eq!(rig.elapsed(begin), 10_000);
    assert_eq!(rig.finished, [Finish::Suspended, Finish::Ended]);
    assert_eq!(rig.reports, 2);
}

#[test]
fn w03_a_refused_suspend_goes_on() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let (one, two) = futures::join!(cx.sleep("one", "10s"), cx.sleep("two", "20s"));
        one?;
        two
    });
    let mut rig = Rig::held(registry);
    rig.wait();
    rig.claim();
    rig.receive();
    rig.turn();
    assert!(matches!(&rig.out[0], WorkerItem::Report(Report { then: Then::Suspend, .. })));
    // The second sleep ends before the suspend arrives: it is kept, and the push is in the inbox.
    rig.wait();
    rig.exchange();
    assert_eq!(rig.finished, [Finish::Suspended, Finish::Ended]);
    assert_eq!(rig.words(), ["started", "opened one1", "opened two1", "fired one1", "fired two1", "ended"]);
}

#[test]
fn p18_a_sleep_of_no_length_returns_at_once_and_is_recorded() {
    let mut rig = Rig::new(naps(&["0s", "0s"]));
    rig.run();
    assert_eq!(rig.finished, [Finish::Ended]);
    assert_eq!(rig.words(), ["started", "opened nap1", "fired nap1", "opened nap2", "fired nap2", "ended"]);
}

#[test]
fn p19_the_length_may_change_while_it_sleeps() {
    let mut rig = Rig::held(naps(&["10s"]));
    rig.registry = naps(&["3 days"]);
    let begin = rig.co.now;
    rig.run();
    assert_eq!(rig.elapsed(begin), 10_000);
}

#[test]
fn w27_with_a_wait_due_soon_the_instance_is_kept() {
    let mut rig = Rig::new(naps(&["50ms", "50ms"]));
    rig.run();
    assert_eq!(rig.finished, [Finish::Ended]);
    let mut rig = Rig::new(naps(&["101ms"]));
    rig.run();
    assert_eq!(rig.finished, [Finish::Suspended, Finish::Ended]);
}

#[test]
fn w27_it_does_not_linger_for_ever() {
    let mut rig = Rig::held(naps(&["50ms"]));
    assert!(rig.hosted.as_ref().unwrap().deadline().is_some());
    // The push is lost, and heartbeats do not bring it.
    rig.wait();
    rig.inbox.clear();
    rig.advance(1100);
    // It suspends after all, is told that there is more, and asks for it.
    rig.exchange();
    rig.advance(100);
    rig.run();
    assert_eq!(rig.words().last().unwrap(), "ended");
}

#[test]
fn w30_a_body_that_awaits_something_else_is_parked_by_name() {
    let registry = Registry::new().workflow_fn("w", |_: Workflow, (): ()| async move {
        std::future::pending::<()>().await;
        Ok::<_, Error>(())
    });
    let mut rig = Rig::new(registry);
    rig.run();
    let parked = rig.parked().unwrap();
    assert_eq!(parked.code, ParkCode::ForeignAwait);
    assert!(parked.message.contains("workflow w instance order-1"), "{parked:?}");
}

#[test]
fn w30_a_foreign_wake_is_parked_by_name() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let stranger = std::future::poll_fn(|context| {
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            Poll::<()>::Pending
        });
        futures::future::select(Box::pin(cx.sleep("nap", "1h")), Box::pin(stranger)).await;
        Ok::<_, Error>(())
    });
    let mut rig = Rig::new(registry);
    rig.run();
    assert_eq!(rig.parked().unwrap().code, ParkCode::ForeignAwait);
}

#[test]
fn w34_a_panic_of_the_body_parks_the_instance() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        cx.step("a", (), async |_: Step, (): ()| Ok::<_, Error>(())).await?;
        panic!("oh no");
        #[allow(unreachable_code, reason = "names the type")]
        Ok::<_, Error>(())
    });
    let mut rig = Rig::new(registry);
    rig.run();
    let parked = rig.parked().unwrap();
    assert_eq!(parked.code, ParkCode::BodyPanicked);
    assert!(parked.message.contains("oh no"), "{parked:?}");
    // The result that the panic was folded into is recorded.
    assert_eq!(rig.words(), ["started", "a1 1 ok", "parked"]);
}

#[test]
fn p30_terminate_cancels_what_runs() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        cx.step("a", (), async |_: Step, (): ()| Ok::<_, Error>(())).await
    });
    let mut rig = Rig::held(registry);
    let order = rig.orders.pop_front().unwrap();
    let (_, said) = rig.co.on(rig.uid, What::Terminate { operation: "op".to_owned(), reason: None });
    rig.inbox.extend(said.into_iter().map(|(_, item)| item));
    rig.receive();
    assert!(rig.hosted.is_none());
    rig.finish(&order, Ok(everstep_protocol::Payload::null()));
    rig.exchange();
    assert_eq!(rig.words(), ["started", "ended"]);
}
