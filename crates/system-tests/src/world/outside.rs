//! What producers and operators do.

use std::time::Duration;

use everstep_broker::{Confirmation, Outgoing, Properties};
use everstep_coordinator::{EventRequest, StartRequest};
use everstep_engine::{Answer, mailbox::EventId};
use everstep_protocol::{
    InstanceId, Namespace, Payload, WorkflowName,
    start::{StartOutcome, StartReply},
    topology,
};
use serde::Serialize;

use super::{Site, World, name};
use crate::{DEADLINE, within};

/// What producers and operators do.
impl World {
    /// Starts an instance through a coordinator's handle.
    pub async fn start<I: Serialize + ?Sized>(&self, workflow: &str, id: &str, input: &I) -> StartReply {
        let request = self.request(workflow, Some(id), input);
        let handle = self.handle();
        within("the answer to a start", DEADLINE, async {
            loop {
                match handle.start(request.clone()).await {
                    Ok(reply) => return reply,
                    // Repeating with the same id is what the error asks for.
                    Err(everstep_coordinator::Error::Unknown { .. }) => {}
                    Err(error) => panic!("start {workflow} {id}: {error}"),
                }
            }
        })
        .await
    }

    /// The request that [`World::start`] sends.
    pub fn request<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
    ) -> StartRequest {
        StartRequest {
            namespace: Namespace::default(),
            workflow: WorkflowName::new(workflow).expect("a valid name"),
            id: id.map(|id| InstanceId::new(id).expect("a valid id")),
            input: Payload::encode(input).expect("it has a JSON form"),
            retention: everstep_protocol::start::Retention::default(),
            pin: None,
            strict: None,
            attributes: Vec::new(),
            hook: None,
            message: None,
        }
    }

    /// Starts an instance that does not exist yet.
    pub async fn begin<I: Serialize + ?Sized>(&self, workflow: &str, id: &str, input: &I) {
        let reply = self.start(workflow, id, input).await;
        assert!(matches!(reply.outcome, StartOutcome::Created | StartOutcome::Exists), "{reply:?}");
    }

    /// Publishes a start message as any producer would.
    pub async fn publish(&self, body: impl Into<bytes::Bytes>, properties: Properties) {
        self.publish_to(topology::START_EXCHANGE, body, properties).await;
    }

    /// Publishes an event message, as a producer does.
    pub async fn publish_event(&self, body: impl Into<bytes::Bytes>, properties: Properties) {
        self.publish_to(topology::EVENT_EXCHANGE, body, properties).await;
    }

    /// Publishes a start message as a producer does that sends it again, with the same id, until it is confirmed.
    pub async fn publish_until_confirmed(&self, workflow: &str, id: &str) {
        let body = format!(r#"{{"workflow":"{workflow}","id":"{id}","input":null}}"#);
        let properties =
            Properties { persistent: true, message_id: Some(id.to_owned()), ..Properties::default() };
        let message = Outgoing::to_exchange(topology::START_EXCHANGE, "default", body).with(properties);
        while !matches!(
            self.producer.send_confirmed(vec![message.clone()], true).await.as_deref(),
            Ok([Confirmation::Confirmed])
        ) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn publish_to(
        &self,
        exchange: &'static str,
        body: impl Into<bytes::Bytes>,
        properties: Properties,
    ) {
        let message = Outgoing::to_exchange(exchange, "default", body)
            .with(Properties { persistent: true, ..properties });
        within("a message of a producer is taken", DEADLINE, async {
            // A queue that was declared a moment ago may not be bound yet: a producer sends again what was not routed.
            loop {
                let sent = self
                    .producer
                    .send_confirmed(vec![message.clone()], true)
                    .await
                    .expect("the broker is there");
                match sent[..] {
                    [Confirmation::Confirmed] => return,
                    [Confirmation::Unroutable] => tokio::time::sleep(Duration::from_millis(10)).await,
                    _ => panic!("a message of a producer was {sent:?}"),
                }
            }
        })
        .await;
    }

    /// Sends an event over the API.
    pub async fn send<P: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: &str,
        event: (&str, &str),
        payload: &P,
    ) -> Answer {
        let (event_id, kind) = event;
        let event = EventRequest {
            kind: kind.parse().expect("a valid type"),
            key: None,
            id: EventId { app_id: String::new(), id: event_id.to_owned() },
            payload: Payload::encode(payload).expect("it has a JSON form"),
        };
        self.handle().send_event(super::name(workflow, id), event).await.expect("it is decided")
    }

    /// Terminates an instance.
    pub async fn terminate(&self, workflow: &str, id: &str, operation: &str) -> Answer {
        let asked = self
            .handle()
            .terminate(name(workflow, id), operation.to_owned(), Some("a test".to_owned()))
            .await;
        asked.expect("the coordinator answers")
    }

    /// Lets a parked instance go on.
    pub async fn retry(&self, workflow: &str, id: &str, operation: &str) -> Answer {
        self.handle().retry(name(workflow, id), operation.to_owned()).await.expect("the coordinator answers")
    }

    /// Removes what is ready in every engine queue: tasks, reports, session messages, inboxes. Start queues keep theirs. Says
    /// how many messages were lost.
    pub fn purge(&self) -> usize {
        self.purge_those(&[
            "everstep.run.",
            "everstep.step.",
            "everstep.report.",
            "everstep.sessions",
            "everstep.inbox.",
        ])
    }

    /// Removes what is ready in queues under these prefixes.
    pub fn purge_those(&self, prefixes: &[&str]) -> usize {
        match &self.site {
            Site::Embedded { hub, .. } => {
                let queues = hub.queues();
                let wanted =
                    queues.iter().filter(|queue| prefixes.iter().any(|prefix| queue.starts_with(prefix)));
                wanted.map(|queue| hub.purge(queue)).sum()
            }
            Site::Fleet { installation, .. } => {
                let prefixes: Vec<_> = prefixes.iter().map(|prefix| format!("<<\"{prefix}\">>")).collect();
                let program = format!(
                    "lists:sum([case rabbit_amqqueue:purge(Q) of {{ok, C}} -> C; _ -> 0 end || \
                     Q <- rabbit_amqqueue:list(<<\"{}\">>), begin {{resource, _, queue, N}} = amqqueue:get_name(Q), \
                     lists:any(fun(P) -> string:prefix(N, P) =/= nomatch end, [{}]) end]).",
                    installation.name(),
                    prefixes.join(", "),
                );
                let purged = tokio::task::block_in_place(|| installation.ctl(&["eval", &program]));
                purged.expect("queues can be purged").trim().parse().expect("a sum")
            }
        }
    }

    /// The names of all queues.
    pub fn queues(&self) -> Vec<String> {
        match &self.site {
            Site::Embedded { hub, .. } => hub.queues(),
            Site::Fleet { installation, .. } => {
                let listed = tokio::task::block_in_place(|| {
                    installation.ctl(&[
                        "list_queues",
                        "-p",
                        installation.name(),
                        "name",
                        "--no-table-headers",
                    ])
                });
                listed.expect("queues can be listed").lines().map(|line| line.trim().to_owned()).collect()
            }
        }
    }
}
