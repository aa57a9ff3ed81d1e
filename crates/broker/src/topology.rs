//! What can be declared and consumed.
//!
//! Only the queue type, single active consumer and the dead-letter target are queue arguments: a queue cannot be
//! redeclared with other arguments. Everything an operator may want to tune (delivery limit, length, expiry) is a
//! policy in the operator's definitions (W14). The dead-letter target is an argument on purpose: without it a
//! quorum queue of RabbitMQ 4 drops a message after 20 deliveries, and setting a policy needs management rights
//! that the engine does not have.

/// One thing to declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declaration {
    /// A durable topic exchange.
    Exchange {
        /// Its name.
        name: String,
    },
    /// A queue with its bindings.
    Queue(QueueDeclaration),
    /// Removes a queue with all its messages.
    DeleteQueue {
        /// Its name.
        name: String,
    },
}

impl Declaration {
    /// A durable topic exchange.
    pub fn exchange(name: impl Into<String>) -> Self {
        Self::Exchange { name: name.into() }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Exchange { name } | Self::DeleteQueue { name } => name,
            Self::Queue(queue) => &queue.name,
        }
    }

    /// Removal of a queue.
    pub fn delete_queue(name: impl Into<String>) -> Self {
        Self::DeleteQueue { name: name.into() }
    }
}

impl From<QueueDeclaration> for Declaration {
    fn from(queue: QueueDeclaration) -> Self {
        Self::Queue(queue)
    }
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDeclaration {
    /// Its name. For [`QueueKind::Exclusive`] the base of the name, see [`crate::Incoming::Connected`].
    pub name: String,
    /// How it is kept.
    pub kind: QueueKind,
    /// Only one consumer at a time receives; the next takes over when it goes.
    pub single_active_consumer: bool,
    /// Bindings as (exchange, routing key pattern). The exchange must exist.
    pub bind: Vec<(String, String)>,
    /// Queue that gets what this queue gives up.
    pub dead_letter: Option<String>,
}

impl QueueDeclaration {
    /// A queue without bindings.
    pub fn new(name: impl Into<String>, kind: QueueKind) -> Self {
        Self { name: name.into(), kind, single_active_consumer: false, bind: Vec::new(), dead_letter: None }
    }

    /// With one active consumer at a time.
    pub fn single_active_consumer(mut self) -> Self {
        self.single_active_consumer = true;
        self
    }

    /// With a binding more.
    pub fn bind(mut self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.bind.push((exchange.into(), routing_key.into()));
        self
    }

    /// With a queue for what is given up.
    pub fn dead_letter(mut self, queue: impl Into<String>) -> Self {
        self.dead_letter = Some(queue.into());
        self
    }
}

/// How a queue is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Replicated and durable: for what exists nowhere else.
    Quorum,
    /// Durable queue of the kind that is the vhost's default: classic, on one node, unless its operator has chosen another. For the
    /// engine's transient messages. One that is there in another kind serves as well.
    Classic,
    /// Belongs to the consuming connection and goes with it. Only consumed, never declared alone.
    Exclusive,
}

/// A consumer to start.
#[derive(Clone, Debug)]
pub struct Consume {
    /// What to consume.
    pub queue: Source,
    /// Most deliveries unsettled at a time, at least 1.
    pub prefetch: u16,
}

impl Consume {
    /// Consumes a queue, given by its declaration or its name.
    pub fn new(queue: impl Into<Source>, prefetch: u16) -> Self {
        Self { queue: queue.into(), prefetch }
    }
}

/// The queue of a consumer.
#[derive(Clone, Debug)]
pub enum Source {
    /// Declared by the consumer itself, before each consume.
    Declared(QueueDeclaration),
    /// Declared by somebody else; while it is missing the consumer keeps trying.
    Named(String),
}

impl Source {
    /// The declared name.
    pub fn name(&self) -> &str {
        match self {
            Self::Declared(queue) => &queue.name,
            Self::Named(name) => name,
        }
    }

    /// The name on the broker, given the generation of the connection: the declared one, except that an exclusive
    /// queue gets the generation as suffix. Its former namesake may be locked until the broker has noticed that
    /// the former connection is dead.
    pub(crate) fn actual_name(&self, generation: u64) -> String {
        match self {
            Self::Declared(queue) if queue.kind == QueueKind::Exclusive => {
                format!("{}.{generation}", queue.name)
            }
            Self::Declared(queue) => queue.name.clone(),
            Self::Named(name) => name.clone(),
        }
    }
}

impl From<QueueDeclaration> for Source {
    fn from(queue: QueueDeclaration) -> Self {
        Self::Declared(queue)
    }
}

impl From<String> for Source {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<&str> for Source {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}
