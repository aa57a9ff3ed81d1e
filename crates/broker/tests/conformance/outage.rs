//! Connections that go and come back.

use std::time::Duration;

use everstep_broker::{Consume, Declaration, Error, Incoming, Outgoing, QueueKind};

use crate::rig::{
    Rig, connected, delivered, depth_is, disconnected, is_up, receive, settled_depth, text, texts,
};

pub(crate) async fn a_consumer_survives_an_outage(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Quorum);
    let mut consumer = party.consume(queue.clone(), 10).await;
    let mut inbox = party.consume(rig.queue("inbox", QueueKind::Exclusive), 10).await;
    connected(&mut consumer).await;
    let inbox_before = connected(&mut inbox).await;
    for round in 0..2 {
        party.cut();
        disconnected(&mut consumer).await;
        disconnected(&mut inbox).await;
        party.restore();
        connected(&mut consumer).await;
        let inbox_now = connected(&mut inbox).await;
        assert_ne!(inbox_now, inbox_before, "the former inbox may still be locked");
        is_up(&party).await;
        let body = format!("round {round}");
        party.send_texts(&queue.name, &[&body]).await;
        party.send_texts(&inbox_now, &[&body]).await;
        for consumer in [&mut consumer, &mut inbox] {
            let mut delivery = delivered(consumer).await;
            if delivery.redelivered {
                // The ack of the round before was lost in the outage.
                delivery.ack();
                delivery = delivered(consumer).await;
            }
            assert_eq!(text(&delivery), body);
            delivery.ack();
        }
    }
}

pub(crate) async fn settles_from_before_an_outage_do_nothing(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    let mut consumer = party.consume(queue.clone(), 10).await;
    connected(&mut consumer).await;
    party.send_texts(&queue.name, &["1", "2", "3"]).await;
    let before = receive(&mut consumer, 3).await;
    party.cut();
    disconnected(&mut consumer).await;
    party.restore();
    connected(&mut consumer).await;
    let after = receive(&mut consumer, 3).await;
    assert_eq!(texts(&after), ["1", "2", "3"]);
    assert!(after.iter().all(|delivery| delivery.redelivered));
    let mut before = before.into_iter();
    before.by_ref().take(2).for_each(everstep_broker::Delivery::ack);
    before.for_each(everstep_broker::Delivery::requeue);
    for delivery in after {
        delivery.ack();
    }
    is_up(&party).await;
    party.send_texts(&queue.name, &["4"]).await;
    let next = delivered(&mut consumer).await;
    assert_eq!((text(&next).as_str(), next.redelivered), ("4", false), "the channel is as it was");
    next.ack();
    settled_depth(&rig, party, &queue.name, 0).await;
}

pub(crate) async fn sending_fails_fast_while_down_and_works_again(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    party.declare(&queue).await;
    party.cut();
    let mut health = party.broker.health();
    health.wait_for(|health| !health.publishing && !health.consuming).await.expect("alive");
    let failed = tokio::time::timeout(
        Duration::from_millis(100),
        party.broker.send(vec![Outgoing::to_queue(&queue.name, "lost")]),
    );
    let failed = failed.await.expect("fails at once").expect_err("is down");
    assert!(failed.is_retry_safe(), "{failed}");
    let failed = party.broker.send_confirmed(vec![Outgoing::to_queue(&queue.name, "lost")], true).await;
    assert!(failed.expect_err("is down").is_retry_safe());
    party.restore();
    let back = tokio::time::timeout(Duration::from_millis(1_500), is_up(&party));
    back.await.expect("works again soon after the broker's return");
    party.send_texts(&queue.name, &["kept"]).await;
    depth_is(&party, &queue.name, Some(1)).await;
}

pub(crate) async fn topology_comes_back_with_the_connection(rig: Rig) {
    let (party, other) = (rig.party().await, rig.party().await);
    let queue = rig.queue("q", QueueKind::Classic);
    party.declare(&queue).await;
    party.cut();
    party.broker.health().wait_for(|health| !health.publishing).await.expect("alive");
    if rig.is_amqp() {
        other.broker.declare(vec![Declaration::delete_queue(&queue.name)]).await.expect("deleted");
        depth_is(&other, &queue.name, None).await;
    }
    party.restore();
    is_up(&party).await;
    depth_is(&other, &queue.name, Some(0)).await;
}

pub(crate) async fn a_consumer_waits_for_its_queue(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    let consume = Consume::new(queue.name.as_str(), 5);
    let mut consumer = party.broker.consume(consume).await.expect("started");
    party.declare(&queue).await;
    party.send_texts(&queue.name, &["there"]).await;
    connected(&mut consumer).await;
    assert_eq!(text(&delivered(&mut consumer).await), "there");
}

pub(crate) async fn a_deleted_queue_is_consumed_again_once_it_is_back(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    party.declare(&queue).await;
    let consume = Consume::new(queue.name.as_str(), 5);
    let mut consumer = party.broker.consume(consume).await.expect("started");
    connected(&mut consumer).await;
    party.broker.declare(vec![Declaration::delete_queue(&queue.name)]).await.expect("deleted");
    disconnected(&mut consumer).await;
    party.declare(&queue).await;
    connected(&mut consumer).await;
    party.send_texts(&queue.name, &["back"]).await;
    assert_eq!(text(&delivered(&mut consumer).await), "back");
}

/// An operator deletes it: whoever consumes it by its declaration has it back without being told.
pub(crate) async fn a_deleted_queue_is_declared_again_by_whoever_consumes_it(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Quorum);
    let mut consumer = party.consume(queue.clone(), 5).await;
    connected(&mut consumer).await;
    for round in ["one", "two"] {
        let operator = rig.party().await;
        operator.broker.declare(vec![Declaration::delete_queue(&queue.name)]).await.expect("deleted");
        disconnected(&mut consumer).await;
        connected(&mut consumer).await;
        party.send_texts(&queue.name, &[round]).await;
        let delivery = delivered(&mut consumer).await;
        assert_eq!(text(&delivery), round);
        delivery.ack();
    }
}

/// What differs from its declaration is named and left as it is; what is missing is named and declared.
pub(crate) async fn what_differs_from_its_declaration_is_named(rig: Rig) {
    let party = rig.party().await;
    let (is, missing, other) = (
        rig.queue("is", QueueKind::Classic),
        rig.queue("missing", QueueKind::Classic),
        rig.queue("other", QueueKind::Classic),
    );
    party.declare(&is).await;
    party.declare(&other).await;
    let wanted = everstep_broker::QueueDeclaration::new(&other.name, QueueKind::Quorum);
    let looked = || vec![is.clone().into(), missing.clone().into(), wanted.clone().into()];
    let drifted = party.broker.drifted(looked()).await.expect("up");
    let names: Vec<_> = drifted.iter().map(|drift| drift.name.as_str()).collect();
    assert_eq!(names, [missing.name.as_str(), other.name.as_str()], "{drifted:?}");
    assert!(drifted.iter().all(|drift| !drift.reason.is_empty()));
    let again = party.broker.drifted(looked()).await.expect("up");
    let names: Vec<_> = again.iter().map(|drift| drift.name.as_str()).collect();
    assert_eq!(names, [other.name.as_str()], "what was missing is there");
    assert_eq!(party.broker.depth(&missing.name).await.expect("up"), Some(0));
}

pub(crate) async fn a_closed_broker_says_so(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    let mut consumer = party.consume(queue.clone(), 5).await;
    connected(&mut consumer).await;
    party.broker.close().await;
    party.broker.close().await;
    let health = party.broker.health().borrow().clone();
    assert!(!health.publishing && !health.consuming, "{health:?}");
    let sent = party.broker.send(vec![Outgoing::to_queue(&queue.name, "x")]).await;
    assert!(matches!(sent, Err(Error::Closed)));
    assert!(matches!(party.broker.consume(Consume::new(queue.clone(), 1)).await, Err(Error::Closed)));
    assert!(matches!(party.broker.declare(vec![queue.into()]).await, Err(Error::Closed)));
    while let Some(incoming) = consumer.try_next() {
        assert!(matches!(incoming, Incoming::Disconnected), "{incoming:?}");
    }
}

pub(crate) async fn settles_right_before_close_count(rig: Rig) {
    let (party, other) = (rig.party().await, rig.party().await);
    let queue = rig.queue("q", QueueKind::Classic);
    let mut consumer = party.consume(queue.clone(), 100).await;
    connected(&mut consumer).await;
    let numbers: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    party.send_texts(&queue.name, &numbers.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (place, delivery) in receive(&mut consumer, 100).await.into_iter().enumerate() {
        if place < 99 { delivery.ack() } else { drop(delivery) }
    }
    party.close().await;
    depth_is(&other, &queue.name, Some(1)).await;
}
