//! Consumer demand, and the channel that carries it to the consumer.

use tokio::sync::watch;

/// At most this many messages that are in flight without a slot are compensated for, which bounds the memory of their
/// results (SC-84).
pub const MAX_STALLED: usize = 8;
/// One whose body and results are larger than this, in bytes, is not compensated for, since what is delivered in its
/// place needs memory as well (SC-84).
pub const MAX_STALLED_SIZE: usize = 1 << 20;

/// How many messages the consumer should keep in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Messages that can be processed concurrently; 0 stops consuming.
    pub slots: usize,
    /// Messages that may be prefetched in addition.
    pub lookahead: usize,
}

impl Demand {
    /// Upper bound of messages in flight.
    #[must_use]
    pub fn in_flight(self) -> usize {
        if self.slots == 0 {
            0
        } else {
            self.slots + self.lookahead
        }
    }
}

#[derive(Clone)]
pub(super) struct DemandSender(watch::Sender<Demand>);

/// A channel with zero initial demand.
pub(super) fn channel() -> (DemandSender, watch::Receiver<Demand>) {
    let (sender, receiver) = watch::channel(Demand::default());
    (DemandSender(sender), receiver)
}

impl DemandSender {
    /// Wakes the consumer only if the demand has changed.
    pub(super) fn set(&self, demand: Demand) {
        self.0
            .send_if_modified(|now| std::mem::replace(now, demand) != demand);
    }

    /// Makes the consumer re-evaluate its prefetch, although the demand itself has not changed.
    pub(super) fn wake(&self) {
        self.0.send_modify(|_| {});
    }
}
