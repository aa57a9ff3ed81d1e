//! Which acks to send: pure book-keeping of one channel's delivery tags.
//!
//! The broker numbers the deliveries of a channel 1, 2, 3, ... An ack with `multiple` covers everything up to a tag,
//! which itself must be unsettled: RabbitMQ closes the channel otherwise. So the book keeps the tags settled out of
//! order until the prefix reaches them, and never names one twice.

use std::collections::BTreeSet;

/// One basic.ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) tag: u64,
    pub(super) multiple: bool,
}

/// The settled tags of one channel.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Everything up to here is settled and told.
    prefix: u64,
    /// Told, above the prefix.
    told: BTreeSet<u64>,
    /// To be told.
    pending: BTreeSet<u64>,
}

impl Book {
    /// A delivery was acked.
    pub(super) fn ack(&mut self, tag: u64) {
        self.pending.insert(tag);
    }

    /// A delivery was settled in another way and the broker told.
    pub(super) fn told(&mut self, tag: u64) {
        self.told.insert(tag);
    }

    /// The acks to send now, in this order.
    pub(super) fn flush(&mut self) -> Vec<Ack> {
        let mut acks = Vec::new();
        let mut covered = 0;
        let mut last_pending = None;
        loop {
            let next = self.prefix + 1;
            if self.pending.remove(&next) {
                covered += 1;
                last_pending = Some(next);
            } else if !self.told.remove(&next) {
                break;
            }
            self.prefix = next;
        }
        if let Some(tag) = last_pending {
            acks.push(Ack { tag, multiple: covered > 1 });
        }
        for tag in std::mem::take(&mut self.pending) {
            acks.push(Ack { tag, multiple: false });
            self.told.insert(tag);
        }
        acks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line per flush: what was acked before (a minus is a requeue) and what must be sent.
    fn check(flushes: &[(&[i64], &str)]) {
        let mut book = Book::default();
        for (settled, expected) in flushes {
            for tag in *settled {
                match u64::try_from(*tag) {
                    Ok(tag) => book.ack(tag),
                    Err(_) => book.told(tag.unsigned_abs()),
                }
            }
            let sent: Vec<_> = book
                .flush()
                .iter()
                .map(|ack| if ack.multiple { format!("..{}", ack.tag) } else { ack.tag.to_string() })
                .collect();
            assert_eq!(sent.join(" "), *expected, "after {settled:?} of {flushes:?}");
        }
    }

    #[test]
    fn a_finished_prefix_is_one_ack() {
        check(&[(&[1, 2, 3], "..3"), (&[], ""), (&[5, 4], "..5"), (&[6], "6")]);
    }

    #[test]
    fn stragglers_go_singly_and_are_not_named_again() {
        check(&[(&[2, 4], "2 4"), (&[1], "1"), (&[3], "3"), (&[5, 6], "..6")]);
    }

    #[test]
    fn a_multiple_ack_names_only_an_unsettled_tag() {
        check(&[(&[3], "3"), (&[1, 2], "..2"), (&[4, 5], "..5")]);
    }

    #[test]
    fn requeued_tags_fill_the_prefix() {
        check(&[(&[-2, 1, 3], "..3"), (&[-4], ""), (&[-5, 6], "6"), (&[8, -7, 9], "..9")]);
    }
}
