//! Instances that ended, as lifecycle messages say.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use everstep_broker::{Broker, Consume, Declaration, Incoming, QueueDeclaration, QueueKind};
use everstep_protocol::{SessionId, topology};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{sync::watch, task::JoinHandle};

/// An instance that has ended.
#[derive(Clone, Debug, Deserialize)]
pub struct End {
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// `complete`, `errored` or `terminated`.
    pub status: String,
    /// Its output.
    #[serde(default)]
    pub output: Option<serde_json::Value>,
    /// Its error.
    #[serde(default)]
    pub error: Option<EndError>,
}

/// The error of an instance that ended with one.
#[derive(Clone, Debug, Deserialize)]
pub struct EndError {
    /// The error's name.
    pub name: String,
    /// The error's message.
    pub message: String,
}

impl End {
    /// The output of an instance that must be complete.
    pub fn output<T: DeserializeOwned>(&self) -> T {
        assert_eq!(self.status, "complete", "{self:?}");
        let output = self.output.clone().unwrap_or_default();
        serde_json::from_value(output).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error of an instance that must have ended with one.
    pub fn error(&self) -> &EndError {
        assert_eq!(self.status, "errored", "{self:?}");
        self.error.as_ref().unwrap_or_else(|| panic!("{self:?}"))
    }
}

type Known = HashMap<(String, String), (End, HashSet<String>)>;

/// All ends since the system was started.
#[derive(Debug)]
pub struct Ends {
    known: Arc<watch::Sender<Known>>,
    reader: JoinHandle<()>,
}

impl Ends {
    /// Listens; ready once nothing can be missed.
    pub async fn listen(broker: Arc<dyn Broker>) -> Self {
        let name = format!("test.ends.{}", SessionId::generate());
        let queue = QueueDeclaration::new(name, QueueKind::Exclusive).bind(topology::LIFECYCLE_EXCHANGE, "#");
        broker
            .declare(vec![Declaration::exchange(topology::LIFECYCLE_EXCHANGE)])
            .await
            .expect("the broker is there");
        let mut consumer = broker.consume(Consume::new(queue, 1_000)).await.expect("the broker is there");
        while !matches!(consumer.next().await, Incoming::Connected { .. }) {}
        let known = Arc::new(watch::Sender::new(Known::new()));
        let told = Arc::clone(&known);
        let reader = tokio::spawn(async move {
            loop {
                if let Incoming::Delivery(delivery) = consumer.next().await {
                    let id = delivery.properties.message_id.clone().unwrap_or_default();
                    let end: End =
                        serde_json::from_slice(&delivery.body).expect("a lifecycle message is readable");
                    delivery.ack();
                    told.send_modify(|known| {
                        let key = (end.workflow.clone(), end.id.clone());
                        known.entry(key).or_insert_with(|| (end, HashSet::new())).1.insert(id);
                    });
                }
            }
        });
        Self { known, reader }
    }

    /// The end of an instance, when it comes.
    pub async fn of(&self, workflow: &str, id: &str) -> End {
        let key = (workflow.to_owned(), id.to_owned());
        let mut known = self.known.subscribe();
        let known = known.wait_for(|known| known.contains_key(&key)).await.expect("the sender lives in self");
        known[&key].0.clone()
    }

    /// Waits until so many have ended.
    pub async fn count(&self, count: usize) {
        let mut known = self.known.subscribe();
        drop(known.wait_for(|known| known.len() >= count).await);
    }

    /// How many have ended.
    pub fn len(&self) -> usize {
        self.known.borrow().len()
    }

    /// Whether none has ended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every end once.
    pub fn all(&self) -> Vec<End> {
        self.known.borrow().values().map(|(end, _)| end.clone()).collect()
    }

    /// Instances told to have ended under more than one message id: ended twice.
    pub fn doubled(&self) -> Vec<(String, String)> {
        let known = self.known.borrow();
        known.iter().filter(|(_, (_, ids))| ids.len() > 1).map(|(key, _)| key.clone()).collect()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
