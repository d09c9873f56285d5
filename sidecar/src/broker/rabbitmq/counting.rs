//! Whether the queue counts deliveries. The broker does not report the type of a queue, but a redelivered message
//! without a count shows that it does not (SC-34).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::decide::Deliveries;

/// What the deliveries of a connection have revealed.
#[derive(Clone, Debug, Default)]
pub(super) struct Counting(Arc<AtomicBool>);

impl Counting {
    /// Takes note of a delivery.
    pub(super) fn delivered(&self, deliveries: Deliveries) {
        if deliveries == Deliveries::Redelivered {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the queue is known not to count deliveries.
    pub(super) fn is_absent(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Forgets it: the next connection may find a different queue of this name.
    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
