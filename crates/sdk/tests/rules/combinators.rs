//! Calls are plain futures: joins, races and collections work, and only our wakes reach the body (P7, W30).

use std::future::ready;

use everstep::{Error, Workflow};
use futures::StreamExt;
use futures::future::{join_all, select_all};
use futures::stream::FuturesUnordered;

use crate::driver::{Driver, done, echo, is_pending, numbers};

#[test]
fn p07_join_all_of_thousands() {
    let driver = Driver::new(|cx: Workflow| async move {
        let results = join_all((0..3_000u64).map(|n| cx.step("fan", n, echo))).await;
        results.into_iter().collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(driver.output::<Vec<u64>>(), (0..3_000).collect::<Vec<_>>());
}

#[test]
fn p07_outcomes_reach_the_body_in_the_order_of_feeding() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let mut open: FuturesUnordered<_> = (0..3u64).map(|n| cx.step("fan", n, echo)).collect();
        let mut order = Vec::new();
        while let Some(value) = open.next().await {
            order.push(value?);
        }
        Ok::<_, Error>(order)
    });
    assert_eq!(numbers(&driver.poll().made), [0, 1, 2]);
    assert!(is_pending(&driver.feed(2, 2u64)));
    assert!(is_pending(&driver.feed(0, 0u64)));
    assert_eq!(done::<Vec<u64>>(driver.feed(1, 1u64)), [2, 0, 1]);
    assert!(!driver.host.foreign_wake());
}

#[test]
fn p07_buffered_fan_out_begins_the_next_when_one_ends() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let calls: Vec<_> = (0..4u64).map(|n| cx.step("fan", n, echo)).collect();
        let all = futures::stream::iter(calls).buffer_unordered(2).filter_map(|r| ready(r.ok()));
        Ok::<_, Error>(all.collect::<Vec<_>>().await)
    });
    assert_eq!(numbers(&driver.poll().made), [0, 1]);
    assert_eq!(numbers(&driver.feed(1, 1u64).made), [2]);
    assert_eq!(numbers(&driver.feed(0, 0u64).made), [3]);
    driver.feed(3, 3u64);
    assert_eq!(done::<Vec<u64>>(driver.feed(2, 2u64)), [1, 0, 3, 2]);
}

#[tokio::test]
async fn p07_tokio_join_and_select() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let (a, b) = tokio::join!(cx.step("a", 1u64, echo), cx.step("b", 2u64, echo));
        let mut slow = cx.sleep("slow", "1 h");
        let mut fast = cx.step("fast", 3u64, echo);
        let c = loop {
            tokio::select! {
                c = &mut fast => break c?,
                result = &mut slow => result?,
            }
        };
        slow.await?;
        Ok::<_, Error>(a? + b? + c)
    });
    driver.poll();
    driver.feed(1, 2u64);
    assert_eq!(numbers(&driver.feed(0, 1u64).made), [2, 3]);
    let polled = driver.feed(3, 3u64);
    assert!(polled.dropped.is_empty() && is_pending(&polled), "a call that is kept goes on");
    assert_eq!(done::<u64>(driver.feed(2, ())), 6);
}

#[test]
fn p07_select_all_drops_the_losers() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let (first, index, rest) = select_all((0..3u64).map(|n| cx.step("race", n, echo))).await;
        drop(rest);
        Ok::<_, Error>((first?, index))
    });
    driver.poll();
    let polled = driver.feed(1, 7u64);
    assert_eq!(polled.dropped, [0, 2]);
    assert_eq!(done::<(u64, usize)>(polled), (7, 1));
}
