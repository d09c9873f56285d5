//! Messages that the broker would soon drop: without a configured limit, a quorum queue of RabbitMQ 4.0 and later drops
//! a message that was returned more than 20 times, if it has no dead letter exchange. Instead of being returned once
//! more, they are published to the end of their queue, where their count starts over (SC-34).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::broker::Receipt;

/// Returned at most this often. Lost connections count as well, so this leaves a margin of two.
const MAX_RETURNS: u64 = 18;

/// The bodies of messages in flight that were returned almost as often as the broker allows, by connection
/// number and delivery tag.
#[derive(Clone, Debug, Default)]
pub(super) struct NearDeliveryLimit(Arc<Mutex<HashMap<(u64, u64), Bytes>>>);

impl NearDeliveryLimit {
    /// Keeps the body of a delivery that must not be returned any more. `count`: how often it was returned.
    pub(super) fn delivered(&self, receipt: &Receipt, count: Option<u64>, body: &Bytes) {
        if count.is_some_and(|count| count >= MAX_RETURNS) {
            self.0.lock().insert(receipt.key(), body.clone());
        }
    }

    /// Takes the body of a delivery that must not be returned any more.
    pub(super) fn take(&self, receipt: &Receipt) -> Option<Bytes> {
        self.0.lock().remove(&receipt.key())
    }

    /// Forgets all deliveries of a lost connection.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
