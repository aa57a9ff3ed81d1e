//! An input on its way to a batch, with what is owed to whoever sent it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use everstep_broker::Settle;
use everstep_engine::{Answer, Input, start::NameKey};
use everstep_protocol::{InstanceId, crash::at};
use everstep_telemetry::trace::Open;
use tokio::sync::oneshot;

use crate::error::Error;

/// One input with its debts.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) input: Input,
    pub(crate) debt: Debt,
    /// How often its head was locked elsewhere (rule W19).
    pub(crate) held: u8,
}

/// What is owed once the input is decided, committed and its answers are handed over.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    /// The message that it came in.
    pub(crate) message: Option<Share>,
    /// Somebody in this process who waits for the answer.
    pub(crate) reply: Option<oneshot::Sender<Result<Told, Error>>>,
    /// A producer who asked for a reply.
    pub(crate) reply_to: Option<ReplyTo>,
    /// The instance that an event of a producer is sent to.
    pub(crate) event_to: Option<NameKey>,
    /// The span of the message, which lasts until this is decided.
    pub(crate) span: Option<Box<Open>>,
}

/// What somebody in this process is told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) answer: Answer,
    /// The instance that a start is about.
    pub(crate) id: Option<InstanceId>,
}

/// Where a producer wants its reply.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) queue: String,
    pub(crate) correlation_id: Option<String>,
}

impl Arrival {
    pub(crate) fn new(input: Input) -> Self {
        Self { input, debt: Debt::default(), held: 0 }
    }

    pub(crate) fn from_message(input: Input, message: Share) -> Self {
        Self { input, debt: Debt { message: Some(message), ..Debt::default() }, held: 0 }
    }

    pub(crate) fn answered(input: Input) -> (Self, oneshot::Receiver<Result<Told, Error>>) {
        let (reply, answer) = oneshot::channel();
        (Self { input, debt: Debt { reply: Some(reply), ..Debt::default() }, held: 0 }, answer)
    }
}

/// A share in a message that brought several inputs: the message is acked when every share is done (rule W17), and comes
/// again if any of them is given up.
#[derive(Debug)]
pub(crate) struct Share(Arc<Whole>);

#[derive(Debug)]
struct Whole {
    left: AtomicUsize,
    settle: Mutex<Option<Settle>>,
}

impl Share {
    /// Divides a message into shares; none at all settles it at once.
    pub(crate) fn divide(settle: Settle, count: usize) -> Vec<Self> {
        if count == 0 {
            at("ack.input", || settle.ack());
            return Vec::new();
        }
        let whole = Arc::new(Whole { left: AtomicUsize::new(count), settle: Mutex::new(Some(settle)) });
        (0..count).map(|_| Self(Arc::clone(&whole))).collect()
    }

    /// The share is done; the last one acks the message.
    pub(crate) fn done(self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(settle) = self.take()
        {
            at("ack.input", || settle.ack());
        }
    }

    /// The message shall come again: its answers could not be handed over.
    pub(crate) fn again(self) {
        if let Some(settle) = self.take() {
            settle.requeue();
        }
    }

    fn take(&self) -> Option<Settle> {
        self.0.settle.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
