//! Calls side by side (P7): joins, races and fan-outs replay as they went, whatever order the outcomes came in. Not here: late
//! outcomes of losers, and what is recorded (worker and engine).

use std::collections::BTreeMap;

use everstep::host::{BodyState, Payload, Polled, Spec};
use everstep::{Either, Error, Workflow};
use proptest::prelude::*;
use proptest::sample::Index;
use serde::{Deserialize, Serialize};

use crate::driver::{Driver, calls, done, echo, is_pending, numbers};

/// What the body of the property test comes to.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Came {
    joined: (u64, String),
    all: Vec<u64>,
    won: (usize, u64),
    answer: Option<u64>,
    each: Vec<u64>,
    remote: Vec<u64>,
}

async fn two(cx: &Workflow, input: u64) -> Result<u64, Error> {
    let first = cx.step("race", input, echo).await?;
    cx.step("race", first + 10, echo).await
}

async fn everything(cx: Workflow) -> Result<Came, Error> {
    let joins = async {
        let (number, text) =
            futures::join!(cx.step("a", 1u64, echo), cx.remote::<String>("b", "text").on("pool"));
        let all = cx.join_all((0..5u64).map(|n| cx.step("all", n, echo))).await;
        let remote = cx.remote_all::<u64>("square", 0..6u64).on("pool").at_most(2).await;
        let collected = (all.into_iter().collect(), remote.into_iter().collect());
        match collected {
            (Ok(all), Ok(remote)) => Ok(((number?, text?), all, remote)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    };
    let races = async {
        let (place, won) = cx.race((0..3u64).map(|n| two(&cx, n))).await;
        let answer = match cx.either(cx.step("ask", 7u64, echo), cx.sleep("patience", "1 h")).await {
            Either::First(answer) => Some(answer?),
            Either::Second(slept) => slept.map(|()| None)?,
        };
        let each = cx.each(0..7u64).at_most(3).run(|n| cx.step("each", n, echo)).await;
        Ok::<_, Error>(((place, won?), answer, each.into_iter().collect::<Result<Vec<_>, _>>()?))
    };
    let ((joined, all, remote), (won, answer, each)) = futures::try_join!(joins, races)?;
    Ok(Came { joined, all, won, answer, each, remote })
}

/// One way in which it can go: which call got its outcome when, and what the body did after each.
#[derive(Debug, PartialEq)]
struct Way {
    order: Vec<u64>,
    trace: Vec<(Vec<String>, Vec<u64>)>,
    came: Came,
}

/// Lets `next` choose among the open calls until the body ends.
fn go(mut next: impl FnMut(&[u64]) -> u64) -> Way {
    let mut driver = Driver::new(everything);
    let (mut order, mut trace, mut open) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut polled = driver.poll();
    loop {
        let made = polled.made.iter();
        trace.push((
            made.map(|made| format!("{} after {}", made.call, made.called_after)).collect(),
            polled.dropped.clone(),
        ));
        for made in &polled.made {
            let output = match &made.spec {
                Spec::Step(step) => step.input.clone(),
                Spec::Remote(remote) => remote.input.clone(),
                Spec::Child(child) => child.input.clone(),
                Spec::Sleep(_)
                | Spec::SleepUntil(_)
                | Spec::Event(_)
                | Spec::Instance(_)
                | Spec::Send(_)
                | Spec::Resume(_)
                | Spec::Patch
                | Spec::Hook(_)
                | Spec::Payload(_)
                | Spec::Reply(_)
                | Spec::Rollback { .. } => Payload::null(),
            };
            open.insert(made.number, (made.call.clone(), output));
        }
        open.retain(|number, _| !polled.dropped.contains(number));
        for (name, most) in [("each", 3), ("square", 2)] {
            assert!(open.values().filter(|(call, _)| call.name.as_str() == name).count() <= most);
        }
        let Polled { state, .. } = polled;
        match state {
            BodyState::Pending => {}
            BodyState::Done(result) => {
                assert!(open.is_empty(), "{open:?}");
                return Way { order, trace, came: result.unwrap().decode().unwrap() };
            }
            other => panic!("{other:?}"),
        }
        let number = next(&open.keys().copied().collect::<Vec<_>>());
        order.push(number);
        let (_, output) = open.remove(&number).unwrap();
        let output: serde_json::Value = output.decode().unwrap();
        polled = driver.feed(number, output);
    }
}

proptest! {
    #[test]
    fn p07_whatever_order_the_outcomes_come_in_replay_repeats_it(
        picks in prop::collection::vec(any::<Index>(), 64),
    ) {
        let mut picks = picks.iter().cycle();
        let live = go(|open| open[picks.next().unwrap().index(open.len())]);
        let mut order = live.order.clone().into_iter();
        let replayed = go(|_| order.next().unwrap());
        prop_assert_eq!(&live, &replayed);
        prop_assert_eq!(&live.came.joined, &(1, "text".to_owned()));
        prop_assert_eq!(&live.came.all, &[0, 1, 2, 3, 4]);
        prop_assert_eq!(&live.came.each, &[0, 1, 2, 3, 4, 5, 6]);
        prop_assert_eq!(&live.came.remote, &[0, 1, 2, 3, 4, 5]);
        prop_assert_eq!(live.came.won.1, live.came.won.0 as u64 + 10);
    }
}

#[test]
fn p07_ten_thousand_calls_are_joined() {
    let driver = Driver::new(|cx: Workflow| async move {
        let all = cx.join_all((0..10_000u64).map(|n| cx.step("fan", n, echo))).await;
        all.into_iter().collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(driver.output::<Vec<u64>>(), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn p07_a_race_drops_its_losers_in_the_poll_that_decides_it() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let mut race = cx.race((0..3u64).map(|n| cx.step("run", n, echo)));
        let won = (&mut race).await;
        // The race itself is kept: its losers are gone all the same.
        cx.sleep("after", "1 h").await?;
        drop(race);
        Ok::<_, Error>((won.0, won.1?))
    });
    driver.poll();
    let polled = driver.feed(1, 7u64);
    assert_eq!((polled.dropped, numbers(&polled.made)), (vec![0, 2], vec![3]));
    assert_eq!(done::<(usize, u64)>(driver.feed(3, ())), (1, 7));
}

#[test]
fn p07_the_first_in_the_code_wins_where_several_are_there() {
    let driver = Driver::new(|cx: Workflow| async move {
        // Neither begins: both have failed when they are first looked at.
        let refused = || cx.sleep("", "1 s");
        let (place, _) = cx.race([refused(), refused()]).await;
        let first = matches!(cx.either(refused(), refused()).await, Either::First(_));
        Ok::<_, Error>((place, first))
    });
    assert_eq!(driver.output::<(usize, bool)>(), (0, true));
}

#[test]
fn p07_joined_calls_are_numbered_when_they_are_given() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let many = cx.join_all((0..2u64).map(|n| cx.step("a", n, echo)));
        let last = cx.step("a", 2u64, echo);
        let (last, many) = futures::join!(last, many);
        Ok::<_, Error>((last?, many.into_iter().collect::<Result<Vec<_>, _>>()?))
    });
    let polled = driver.poll();
    let counts: Vec<_> = calls(&polled.made).into_iter().map(|(_, _, count)| count).collect();
    assert_eq!(counts, [1, 2, 3]);
    driver.feed(2, 2u64);
    driver.feed(1, 1u64);
    assert_eq!(done::<(u64, Vec<u64>)>(driver.feed(0, 0u64)), (2, vec![0, 1]));
}

#[test]
fn p07_nothing_at_all_is_joined_at_once() {
    let driver = Driver::new(|cx: Workflow| async move {
        let all = cx.join_all(Vec::<everstep::Sleep>::new()).await.len();
        let none = cx.each(0..0u64).at_most(0).run(|n| cx.step("n", n, echo)).await.len();
        let one = cx.each(0..2u64).at_most(0).run(|n| cx.step("n", n, echo)).await.len();
        Ok::<_, Error>((all, none, one))
    });
    assert_eq!(driver.output::<(usize, usize, usize)>(), (0, 0, 2));
}

#[test]
fn p07_a_race_of_nobody_is_a_panic_that_says_so() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.race(Vec::<everstep::Sleep>::new()).await.1?;
        Ok::<_, Error>(())
    });
    match driver.poll().state {
        BodyState::Panicked(message) => assert!(message.contains("nothing to race"), "{message}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn p07_remote_steps_of_one_name_share_what_is_said_of_them() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let calls = cx.remote_all::<u64>("square", [3u64, 4]).on("numbers").function("sq").timeout("9s");
        let squares = calls.await;
        squares.into_iter().collect::<Result<Vec<_>, _>>()
    });
    let polled = driver.poll();
    for made in &polled.made {
        let Spec::Remote(remote) = &made.spec else { panic!("{made:?}") };
        assert_eq!((remote.pool.as_str(), remote.function.as_str()), ("numbers", "sq"));
        assert_eq!(remote.policy.timeout.as_u64(), 9_000);
    }
    assert!(is_pending(&driver.feed(1, 16u64)));
    assert_eq!(done::<Vec<u64>>(driver.feed(0, 9u64)), [9, 16]);
}
