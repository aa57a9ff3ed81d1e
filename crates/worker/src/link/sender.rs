//! Sends what the work loop hands over: at once when idle, gathering while a send is under way.

use std::sync::Arc;

use everstep_broker::Broker;
use everstep_protocol::crash::{around, at};
use tokio::sync::mpsc;

use super::ToLink;
use crate::{board::Board, outbox::Outbox};

/// At most so many parcels are put into one flush.
const PARCELS_MAX: usize = 256;

/// Runs until the work loop says that it has ended; false if it vanished without a word.
pub(super) async fn run(
    broker: Arc<dyn Broker>,
    board: Arc<Board>,
    mut outbox: Outbox,
    mut outgoing: mpsc::UnboundedReceiver<ToLink>,
) -> bool {
    let mut parcels = Vec::with_capacity(PARCELS_MAX);
    loop {
        if outgoing.recv_many(&mut parcels, PARCELS_MAX).await == 0 {
            return false;
        }
        let mut bye = false;
        for parcel in parcels.drain(..) {
            match parcel {
                ToLink::Parcel(parcel) => outbox.add(parcel),
                ToLink::Bye => bye = true,
            }
        }
        let (messages, settles) = outbox.flush(&board.credits());
        if !messages.is_empty()
            && let Err(error) = around("publish.reports", broker.send(messages)).await
        {
            tracing::debug!(%error, "a batch was not sent; what is unanswered is repeated");
        }
        for settle in settles {
            at("ack.task", || settle.ack());
        }
        if bye {
            return true;
        }
    }
}
