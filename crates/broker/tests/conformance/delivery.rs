//! Deliveries: order, settling, prefetch, sharing.

use everstep_broker::{Consume, Error, HeaderValue, Outgoing, Properties, QueueKind};

use crate::rig::{Rig, connected, delivered, depth_is, receive, text, texts};

pub(crate) async fn messages_arrive_in_order_with_their_properties(rig: Rig) {
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

pub(crate) async fn an_ack_removes_and_an_unsettled_message_comes_again(rig: Rig) {
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

pub(crate) async fn a_requeued_message_comes_again(rig: Rig) {
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

pub(crate) async fn prefetch_bounds_what_is_held(rig: Rig) {
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
pub(crate) async fn acks_out_of_order_free_their_places(rig: Rig) {
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

pub(crate) async fn one_of_two_consumers_is_active_and_the_other_takes_over(rig: Rig) {
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

pub(crate) async fn two_consumers_share_a_queue(rig: Rig) {
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

pub(crate) async fn a_cancelled_consumer_gives_back_what_it_was_not_asked_for(rig: Rig) {
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
