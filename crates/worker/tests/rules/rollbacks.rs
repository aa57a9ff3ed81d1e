//! Rollbacks that meet a body which has ended already (rule P38). Not: what runs then; see the rules of the SDK and the test kit.

use everstep_engine::{Answer, What};
use everstep_protocol::journal::End;
use everstep_sdk::{Error, Registry, Step, Undo, Workflow};

use crate::rig::Rig;

fn fails_after_a_nap(compensates: bool) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        let step = cx.step("s", (), async |_: Step, (): ()| Ok::<_, Error>(()));
        if compensates {
            step.compensate(async |_: Step, _: Undo<(), ()>| Ok::<_, Error>(())).await?;
        } else {
            step.await?;
        }
        cx.sleep("nap", "1s").await?;
        Err::<(), _>(Error::failed("enough"))
    })
}

/// Its report is under way when the rollback is written, or is lost with its worker: then a replay meets the entry after the end of
/// the body.
#[test]
fn p38_a_body_that_had_ended_before_the_rollback_ends_as_it_had() {
    for (compensates, crash) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut rig = Rig::new(fails_after_a_nap(compensates));
        while !rig.words().contains(&"fired nap1".to_owned()) {
            assert!(rig.move_on());
        }
        rig.claim();
        rig.receive();
        rig.turn();
        assert_eq!(rig.out.len(), 1, "the body is over, and nobody knows");
        let (answer, said) =
            rig.co.on(rig.uid, What::Rollback { operation: "r".to_owned(), reason: Some("ann".to_owned()) });
        assert_eq!(answer, Answer::Done);
        if crash {
            rig.crash(true);
        } else {
            rig.inbox.extend(said.into_iter().map(|(_, item)| item));
        }
        assert_eq!(rig.failure().message, "enough", "{compensates} {crash}: {:?}", rig.words());
        assert_eq!(rig.words().contains(&"compensated".to_owned()), compensates);
    }
}

#[test]
fn p38_a_body_that_waits_is_thrown_away_by_a_rollback() {
    let mut rig = Rig::held(fails_after_a_nap(true));
    assert!(rig.attempt());
    rig.exchange();
    assert_eq!(rig.words().last().unwrap(), "opened nap1");
    let rollback = What::Rollback { operation: "r".to_owned(), reason: Some("ann".to_owned()) };
    let (_, said) = rig.co.on(rig.uid, rollback);
    rig.inbox.extend(said.into_iter().map(|(_, item)| item));
    rig.run();
    let end = rig.co.end(rig.uid);
    assert_eq!(end, Some(&End::Terminated { reason: Some("ann".to_owned()) }), "{:?}", rig.words());
}
