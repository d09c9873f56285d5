//! Amazon SQS (SC-35 to SC-41).

mod client;
mod delete;
mod error;
mod leases;
mod poll;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::client::Queues;
use self::delete::Deletions;
use self::leases::Leases;
use super::{Broker, Demand, Event, Publication, Receipt, Refusal, Settlement};
use crate::config;
use crate::metrics::BrokerMetrics;

/// The longest pause that a message gets before it comes again (SC-40).
const LONGEST_PAUSE: i32 = 30;

/// The broker.
#[derive(Clone)]
pub struct Sqs {
    shared: Arc<Shared>,
    demand: watch::Sender<Demand>,
    deletions: Deletions,
    closing: CancellationToken,
    closed: watch::Receiver<()>,
}

/// What all requests share.
struct Shared {
    client: Client,
    queues: Queues,
    /// The queue that is consumed.
    own: String,
    leases: Leases,
    settings: config::Sqs,
    metrics: BrokerMetrics,
}

impl Sqs {
    /// Starts to poll, once messages are wanted.
    pub fn start(
        settings: &config::Sqs,
        queue: String,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
    ) -> Self {
        let client = client::connect(settings);
        let shared = Arc::new(Shared {
            queues: Queues::new(client.clone(), settings.endpoint.clone()),
            client,
            own: queue,
            leases: Leases::default(),
            settings: settings.clone(),
            metrics,
        });
        let (demand, wanted) = watch::channel(Demand::default());
        let (open, closed) = watch::channel(());
        let closing = CancellationToken::new();
        let poll = poll::Poll {
            shared: shared.clone(),
            demand: wanted,
            events,
            closing: closing.clone(),
        };
        tokio::spawn(async move {
            poll.run().await;
            drop(open);
        });
        tokio::spawn(leases::extend(shared.clone()));
        let deletions = Deletions::start(shared.clone());
        Self {
            shared,
            demand,
            deletions,
            closing,
            closed,
        }
    }
}

impl Broker for Sqs {
    fn demand(&self, demand: Demand) {
        self.demand
            .send_if_modified(|now| std::mem::replace(now, demand) != demand);
    }

    fn publish(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        send::send(self.shared.clone(), publication)
    }

    fn settle(
        &self,
        receipt: &Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (shared, deletions, number) =
            (self.shared.clone(), self.deletions.clone(), receipt.number);
        async move {
            match settlement {
                Settlement::Acknowledge => deletions.delete(&shared, number).await,
                Settlement::GiveBackNow => shared.show_again(number, |_| 0).await,
                Settlement::GiveBack | Settlement::Reject => {
                    shared.show_again(number, pause_after).await;
                }
            }
        }
    }

    fn pause_before_giving_back(&self) -> Duration {
        Duration::ZERO
    }

    async fn close(&self) {
        self.closing.cancel();
        let mut closed = self.closed.clone();
        // Ends when the poll has dropped its sender.
        while closed.changed().await.is_ok() {}
    }
}

/// Seconds until a message comes again that was received so often: without a pause a failing message would be a hot loop.
fn pause_after(received: u32) -> i32 {
    1_i32
        .checked_shl(received.min(31))
        .filter(|seconds| *seconds > 0)
        .map_or(LONGEST_PAUSE, |s| s.min(LONGEST_PAUSE))
}

impl Shared {
    /// Makes a message visible after so many seconds, by how often it was received.
    async fn show_again(&self, number: u64, seconds: impl FnOnce(u32) -> i32) {
        let Some(lease) = self.leases.end(number) else {
            return;
        };
        let Ok(url) = self.queues.url(&self.own).await else {
            return;
        };
        let request = self
            .client
            .change_message_visibility()
            .queue_url(url)
            .receipt_handle(lease.handle);
        if let Err(error) = request
            .visibility_timeout(seconds(lease.received))
            .send()
            .await
        {
            let error = error::text(&error);
            tracing::warn!(
                "SQS: a message that is given back stays hidden until its visibility ends: {error}"
            );
        }
    }
}
