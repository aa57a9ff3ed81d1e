//! Where messages go, and what is told about it.

use std::time::Duration;

use everstep_broker::{Confirmation, Declaration, Error, Outgoing, QueueKind};

use crate::rig::{Rig, connected, delivered, depth_is, receive, text, texts};

pub(crate) async fn an_exclusive_queue_goes_with_its_connection(rig: Rig) {
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

pub(crate) async fn a_topic_exchange_routes_by_pattern(rig: Rig) {
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
    assert_eq!(
        (deliveries[0].exchange.as_str(), deliveries[0].routing_key.as_str()),
        (&*exchange, "a.created")
    );
    depth_is(&party, &all.name, Some(4)).await;
}

pub(crate) async fn unroutable_messages_are_told(rig: Rig) {
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

pub(crate) async fn confirmed_messages_are_there(rig: Rig) {
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

pub(crate) async fn a_window_larger_than_the_limit_is_confirmed(rig: Rig) {
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

pub(crate) async fn a_conflicting_declaration_is_refused(rig: Rig) {
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

pub(crate) async fn depth_counts_ready_messages(rig: Rig) {
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

pub(crate) async fn what_expired_is_not_delivered(rig: Rig) {
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
