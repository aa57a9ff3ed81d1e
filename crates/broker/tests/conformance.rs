//! One suite over both brokers: proves that RabbitMQ behind the port and the in-process broker do the same, and that
//! both do what the port promises. It does not prove anything about a cluster, a memory alarm or TLS.
//!
//! `amqp::*` needs a RabbitMQ in `EVERSTEP_TEST_AMQP_URL` and fails without one. Nothing sleeps to synchronise: each
//! wait is for an event, with a deadline that only a failure reaches.

#[path = "conformance/rig.rs"]
mod rig;

use std::time::Duration;

use everstep_broker::{
    Broker, Confirmation, Consume, Declaration, Error, HeaderValue, Incoming, Outgoing, Properties,
    QueueDeclaration, QueueKind,
};

use rig::{Rig, connected, delivered, depth_is, disconnected, is_up, receive, settled_depth, text, texts};

macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Rig::memory()).await;
            })*
        }
        mod amqp {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Rig::amqp().await).await;
            })*
        }
    };
}

conformance!(
    messages_arrive_in_order_with_their_properties,
    an_ack_removes_and_an_unsettled_message_comes_again,
    a_requeued_message_comes_again,
    prefetch_bounds_what_is_held,
    acks_out_of_order_free_their_places,
    one_of_two_consumers_is_active_and_the_other_takes_over,
    two_consumers_share_a_queue,
    a_cancelled_consumer_gives_back_what_it_was_not_asked_for,
    an_exclusive_queue_goes_with_its_connection,
    a_topic_exchange_routes_by_pattern,
    unroutable_messages_are_told,
    confirmed_messages_are_there,
    a_window_larger_than_the_limit_is_confirmed,
    a_consumer_survives_an_outage,
    settles_from_before_an_outage_do_nothing,
    sending_fails_fast_while_down_and_works_again,
    topology_comes_back_with_the_connection,
    a_consumer_waits_for_its_queue,
    a_deleted_queue_is_consumed_again_once_it_is_back,
    a_conflicting_declaration_is_refused,
    depth_counts_ready_messages,
    what_expired_is_not_delivered,
    a_closed_broker_says_so,
    settles_right_before_close_count,
);

async fn messages_arrive_in_order_with_their_properties(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic);
    let party = rig.party().await;
    let mut consumer = party.consume(queue.clone(), 1_000).await;
    let name = connected(&mut consumer).await;
    assert_eq!(name, queue.name);
    let properties = Properties {
        message_id: Some("id-1".into()),
        app_id: Some("tests".into()),
        content_type: Some("application/json".into()),
        correlation_id: Some("c".into()),
        reply_to: Some("r".into()),
        persistent: true,
        expiration_ms: Some(60_000),
        headers: [
            ("text".to_owned(), HeaderValue::from("é")),
            ("int".to_owned(), HeaderValue::from(1_i64 << 40)),
            ("bool".to_owned(), HeaderValue::from(false)),
        ]
        .into(),
    };
    let messages = (0..500).map(|n: u32| Outgoing::to_queue(&name, n.to_string()).with(properties.clone()));
    party.send(messages.collect()).await;
    for n in 0..500_u32 {
        let delivery = delivered(&mut consumer).await;
        assert_eq!(text(&delivery), n.to_string());
        assert_eq!(delivery.properties, properties);
        assert_eq!((delivery.exchange.as_str(), &delivery.routing_key), ("", &name));
        assert!(!delivery.redelivered);
        delivery.ack();
    }
}

async fn an_ack_removes_and_an_unsettled_message_comes_again(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic);
    let (first, second) = (rig.party().await, rig.party().await);
    let mut consumer = first.consume(queue.clone(), 10).await;
    connected(&mut consumer).await;
    first.send_texts(&queue.name, &["acked", "held", "dropped"]).await;
    delivered(&mut consumer).await.ack();
    let held = delivered(&mut consumer).await;
    drop(delivered(&mut consumer).await);
    first.close().await;

    let mut consumer = second.consume(queue.clone(), 10).await;
    connected(&mut consumer).await;
    for expected in ["held", "dropped"] {
        let delivery = delivered(&mut consumer).await;
        assert_eq!((text(&delivery).as_str(), delivery.redelivered), (expected, true));
        delivery.ack();
    }
    held.ack(); // stale: must not touch anything
    depth_is(&second, &queue.name, Some(0)).await;
}

async fn a_requeued_message_comes_again(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Quorum);
    let party = rig.party().await;
    let mut consumer = party.consume(queue.clone(), 1).await;
    connected(&mut consumer).await;
    party.send_texts(&queue.name, &["again"]).await;
    let first = delivered(&mut consumer).await;
    assert!(!first.redelivered);
    first.requeue();
    let second = delivered(&mut consumer).await;
    assert_eq!((text(&second).as_str(), second.redelivered), ("again", true));
    second.ack();
}

async fn prefetch_bounds_what_is_held(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic);
    let party = rig.party().await;
    let mut consumer = party.consume(queue.clone(), 3).await;
    connected(&mut consumer).await;
    party.send_texts(&queue.name, &["1", "2", "3", "4", "5"]).await;
    let mut held = receive(&mut consumer, 3).await;
    depth_is(&party, &queue.name, Some(2)).await;
    assert!(consumer.try_next().is_none(), "a fourth message in spite of a prefetch of 3");
    held.remove(0).ack();
    assert_eq!(text(&delivered(&mut consumer).await), "4");
    depth_is(&party, &queue.name, Some(1)).await;
    let refused = party.broker.consume(Consume::new(queue, 0)).await;
    assert!(matches!(refused, Err(Error::Refused { .. })));
}

/// Stragglers, prefixes and requeues mixed: a wrong multiple-ack would close the channel or lose a message.
async fn acks_out_of_order_free_their_places(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic);
    let party = rig.party().await;
    let mut consumer = party.consume(queue.clone(), 10).await;
    connected(&mut consumer).await;
    let numbers: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    party.send_texts(&queue.name, &numbers.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut seen = Vec::new();
    while seen.len() < 200 {
        let mut group = receive(&mut consumer, 10).await;
        group.swap(1, 8);
        group.swap(0, 5);
        for (place, delivery) in group.into_iter().enumerate() {
            if place == 3 && !delivery.redelivered {
                delivery.requeue();
            } else {
                seen.push(text(&delivery));
                delivery.ack();
            }
        }
        if seen.len() > 190 {
            break;
        }
    }
    while seen.len() < 200 {
        let delivery = delivered(&mut consumer).await;
        seen.push(text(&delivery));
        delivery.ack();
    }
    seen.sort_by_key(|text| text.parse::<u32>().expect("a number"));
    assert_eq!(seen, numbers);
    party.close().await;
    depth_is(&rig.party().await, &queue.name, Some(0)).await;
}

async fn one_of_two_consumers_is_active_and_the_other_takes_over(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic).single_active_consumer();
    let (first, second) = (rig.party().await, rig.party().await);
    let mut active = first.consume(queue.clone(), 2).await;
    connected(&mut active).await;
    let mut waiting = second.consume(queue.clone(), 10).await;
    connected(&mut waiting).await;
    first.send_texts(&queue.name, &["1", "2", "3"]).await;
    delivered(&mut active).await.ack();
    let _held = delivered(&mut active).await;
    let _held = delivered(&mut active).await;
    assert!(waiting.try_next().is_none(), "only one consumer may be active");
    first.close().await;
    assert_eq!(texts(&receive(&mut waiting, 2).await), ["2", "3"]);
}

async fn two_consumers_share_a_queue(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic);
    let party = rig.party().await;
    let mut left = party.consume(queue.clone(), 5).await;
    connected(&mut left).await;
    let mut right = party.consume(queue.clone(), 5).await;
    connected(&mut right).await;
    let numbers: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    party.send_texts(&queue.name, &numbers.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut all = texts(&receive(&mut left, 5).await);
    all.extend(texts(&receive(&mut right, 5).await));
    all.sort();
    assert_eq!(all, numbers);
}

async fn a_cancelled_consumer_gives_back_what_it_was_not_asked_for(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic);
    let party = rig.party().await;
    let mut consumer = party.consume(queue.clone(), 10).await;
    connected(&mut consumer).await;
    party.send_texts(&queue.name, &["mine", "later", "untouched"]).await;
    let mine = delivered(&mut consumer).await;
    let later = delivered(&mut consumer).await;
    consumer.cancel();
    let mut next = party.consume(queue.clone(), 10).await;
    connected(&mut next).await;
    assert_eq!(text(&delivered(&mut next).await), "untouched");
    mine.ack();
    drop(later); // the last handle: the old channel closes, and the message is free
    let again = delivered(&mut next).await;
    assert_eq!((text(&again).as_str(), again.redelivered), ("later", true));
    again.ack();
}

async fn an_exclusive_queue_goes_with_its_connection(rig: Rig) {
    let (owner, other) = (rig.party().await, rig.party().await);
    let mut inbox = owner.consume(rig.queue("inbox", QueueKind::Exclusive), 10).await;
    let name = connected(&mut inbox).await;
    assert!(name.starts_with(&rig.name("inbox")), "{name}");
    let missing = rig.name("missing");
    let ask = vec![name.clone(), missing.clone()];
    let gone = other.broker.unroutable(ask.clone(), "ping".into()).await.expect("an answer");
    assert_eq!(gone, std::slice::from_ref(&missing));
    assert_eq!(text(&delivered(&mut inbox).await), "ping");
    other.send_texts(&name, &["hello"]).await;
    assert_eq!(text(&delivered(&mut inbox).await), "hello");
    owner.close().await;
    let gone = async {
        while other.broker.unroutable(ask.clone(), "ping".into()).await.expect("an answer") != ask {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(2), gone).await.expect("unroutable within 2 s of the close");
}

async fn a_topic_exchange_routes_by_pattern(rig: Rig) {
    let party = rig.party().await;
    let exchange = rig.name("x");
    let all = rig.queue("all", QueueKind::Classic).bind(&exchange, "#");
    let some = rig.queue("some", QueueKind::Quorum).bind(&exchange, "*.created").bind(&exchange, "a.#");
    let declarations = vec![Declaration::exchange(&exchange), all.clone().into(), some.clone().into()];
    party.broker.declare(declarations.clone()).await.expect("declared");
    party.broker.declare(declarations).await.expect("declared again");
    let to = |key: &str| Outgoing::to_exchange(exchange.clone(), key, key.to_owned());
    party.send(vec![to("a.created"), to("b.deleted"), to("a.b.c"), to("b.created")]).await;
    let mut consumer = party.consume(some, 10).await;
    connected(&mut consumer).await;
    let deliveries = receive(&mut consumer, 3).await;
    assert_eq!(texts(&deliveries), ["a.created", "a.b.c", "b.created"]);
    assert_eq!((deliveries[0].exchange.as_str(), deliveries[0].routing_key.as_str()), (&*exchange, "a.created"));
    depth_is(&party, &all.name, Some(4)).await;
}

async fn unroutable_messages_are_told(rig: Rig) {
    let party = rig.party().await;
    let (here, nowhere) = (rig.queue("here", QueueKind::Classic), rig.name("nowhere"));
    party.declare(&here).await;
    let mut expected = Vec::new();
    let mut messages = Vec::new();
    for n in 0..300 {
        let lost = n % 7 == 3;
        let mut message = Outgoing::to_queue(if lost { &nowhere } else { &here.name }, n.to_string());
        // Half of them with an id of their own, some sharing one.
        message.properties.message_id = (n % 2 == 0).then(|| (n / 4).to_string());
        messages.push(message);
        expected.push(if lost { Confirmation::Unroutable } else { Confirmation::Confirmed });
    }
    let told = party.broker.send_confirmed(messages.clone(), true).await.expect("published");
    assert_eq!(told, expected);
    let untold = party.broker.send_confirmed(messages, false).await.expect("published");
    assert!(untold.iter().all(|one| *one == Confirmation::Confirmed));
    depth_is(&party, &here.name, Some(2 * 257)).await;
}

async fn confirmed_messages_are_there(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Quorum).dead_letter(rig.name("dead"));
    let party = rig.party().await;
    party.declare(&queue).await;
    let publish = (0..20).map(|n: u32| {
        let mut message = Outgoing::to_queue(&queue.name, n.to_string());
        message.properties.persistent = true;
        let broker = party.broker.clone();
        async move { broker.send_confirmed(vec![message], true).await.expect("published") }
    });
    for told in futures::future::join_all(publish).await {
        assert_eq!(told, [Confirmation::Confirmed]);
    }
    let mut consumer = party.consume(queue, 20).await;
    connected(&mut consumer).await;
    let mut there = texts(&receive(&mut consumer, 20).await);
    there.sort_by_key(|text| text.parse::<u32>().expect("a number"));
    assert_eq!(there, (0..20).map(|n: u32| n.to_string()).collect::<Vec<_>>());
    assert!(party.broker.send_confirmed(Vec::new(), true).await.expect("nothing to do").is_empty());
}

async fn a_window_larger_than_the_limit_is_confirmed(rig: Rig) {
    let queue = rig.queue("q", QueueKind::Classic);
    let party = rig.party().await;
    party.declare(&queue).await;
    let messages = (0..1_500).map(|n: u32| Outgoing::to_queue(&queue.name, n.to_string())).collect();
    let told = party.broker.send_confirmed(messages, true).await.expect("published");
    assert_eq!(told, vec![Confirmation::Confirmed; 1_500]);
    let mut consumer = party.consume(queue, 1_500).await;
    connected(&mut consumer).await;
    let arrived = texts(&receive(&mut consumer, 1_500).await);
    assert_eq!(arrived, (0..1_500).map(|n: u32| n.to_string()).collect::<Vec<_>>());
}

async fn a_consumer_survives_an_outage(rig: Rig) {
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

async fn settles_from_before_an_outage_do_nothing(rig: Rig) {
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

async fn sending_fails_fast_while_down_and_works_again(rig: Rig) {
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

async fn topology_comes_back_with_the_connection(rig: Rig) {
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

async fn a_consumer_waits_for_its_queue(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    let consume = Consume::new(queue.name.as_str(), 5);
    let mut consumer = party.broker.consume(consume).await.expect("started");
    party.declare(&queue).await;
    party.send_texts(&queue.name, &["there"]).await;
    connected(&mut consumer).await;
    assert_eq!(text(&delivered(&mut consumer).await), "there");
}

async fn a_deleted_queue_is_consumed_again_once_it_is_back(rig: Rig) {
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

async fn a_conflicting_declaration_is_refused(rig: Rig) {
    let party = rig.party().await;
    party.declare(&rig.queue("q", QueueKind::Classic)).await;
    let other = rig.queue("q", QueueKind::Classic).single_active_consumer();
    let refused = party.broker.declare(vec![other.into()]).await.expect_err("it exists with other arguments");
    assert!(!refused.is_retry_safe(), "{refused}");
    let exclusive = party.broker.declare(vec![rig.queue("x", QueueKind::Exclusive).into()]).await;
    assert!(matches!(exclusive, Err(Error::Refused { .. })));
    party.send_texts(&rig.name("q"), &["still works"]).await;
    depth_is(&party, &rig.name("q"), Some(1)).await;
}

async fn depth_counts_ready_messages(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    depth_is(&party, &queue.name, None).await;
    party.declare(&queue).await;
    depth_is(&party, &queue.name, Some(0)).await;
    party.send_texts(&queue.name, &["1", "2"]).await;
    depth_is(&party, &queue.name, Some(2)).await;
    if let Some(memory) = &party.memory {
        assert_eq!(memory.purge(&queue.name), 2);
        depth_is(&party, &queue.name, Some(0)).await;
    }
}

async fn what_expired_is_not_delivered(rig: Rig) {
    let party = rig.party().await;
    let queue = rig.queue("q", QueueKind::Classic);
    party.declare(&queue).await;
    let mut short = Outgoing::to_queue(&queue.name, "short-lived");
    short.properties.expiration_ms = Some(1);
    party.send(vec![short]).await;
    depth_is(&party, &queue.name, Some(0)).await;
    party.send_texts(&queue.name, &["lasting"]).await;
    let mut consumer = party.consume(queue, 5).await;
    connected(&mut consumer).await;
    assert_eq!(text(&delivered(&mut consumer).await), "lasting");
}

async fn a_closed_broker_says_so(rig: Rig) {
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

async fn settles_right_before_close_count(rig: Rig) {
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
