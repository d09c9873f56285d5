//! Messages in flight of a queue that was deleted or moved. They are not redelivered, so they are finished while the
//! next connection consumes with the remaining slots (SC-21).

use asya_amqp::Connection;

use super::consuming::Consuming;
use crate::broker::{Receipt, Settlement};

/// The messages in flight on a connection whose consumers the broker has cancelled.
pub(super) struct Detached {
    /// `None` once it is lost.
    connection: Option<Connection>,
    consuming: Consuming,
}

impl Detached {
    pub(super) fn new(connection: Option<Connection>, consuming: Consuming) -> Self {
        Self {
            connection,
            consuming,
        }
    }

    pub(super) fn unsettled(&self) -> usize {
        self.consuming.unacknowledged.unsettled().count()
    }

    /// Settles a delivery of this connection. The broker may no longer know it.
    pub(super) fn settle(&mut self, receipt: &Receipt, settlement: Settlement) {
        if let Some(connection) = &self.connection {
            self.consuming.settle(connection, receipt, settlement);
            self.consuming.return_all(connection);
            self.consuming.acknowledge(connection);
        } else {
            self.consuming.forget(receipt);
        }
    }

    /// Closes the connection gracefully (SC-33).
    pub(super) async fn close(self) {
        if let Some(connection) = self.connection {
            connection.close().await;
        }
    }
}
