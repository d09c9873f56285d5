//! Amazon SQS (SC-35 to SC-41).

mod client;
mod credentials;
mod delete;
mod error;
mod leases;
mod poll;
mod release;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use aws_config::Region;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::client::{Api, Queues};
use self::credentials::{CachedCredentials, DefaultSources};
use self::delete::Deletions;
use self::leases::Leases;
use self::send::Publisher;
use super::demand::{self, DemandSender};
use super::{Broker, Demand, Event, Publication, Receipt, Refusal, Settlement};
use crate::config;
use crate::metrics::BrokerMetrics;

/// Maximum redelivery delay, in seconds (SC-40).
const MAX_REDELIVERY_DELAY: i32 = 30;

#[derive(Clone)]
pub struct Sqs {
    shared: Arc<Shared>,
    demand: DemandSender,
    publisher: Publisher,
    deletions: Deletions,
    /// Cancelled on shutdown.
    stopping: CancellationToken,
    /// Tracks the poll loop.
    tasks: TaskTracker,
}

/// State shared by all requests.
struct Shared {
    api: Api,
    queues: Queues,
    /// The consumed queue.
    own: String,
    leases: Leases,
    settings: config::SqsConfig,
    metrics: BrokerMetrics,
}

impl Sqs {
    /// Starts the poll loop, which is idle while demand is zero.
    pub fn start(
        settings: &config::SqsConfig,
        queue: String,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
        stopping: CancellationToken,
    ) -> Self {
        let region = Region::new(settings.region.clone());
        let credentials = CachedCredentials::new(DefaultSources::new(region));
        Self::start_with(credentials, settings, queue, events, metrics, stopping)
    }

    fn start_with(
        credentials: CachedCredentials,
        settings: &config::SqsConfig,
        queue: String,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
        stopping: CancellationToken,
    ) -> Self {
        let api = Api::new(settings, credentials);
        let shared = Arc::new(Shared {
            queues: Queues::new(api.clone(), settings.endpoint.clone()),
            api,
            own: queue,
            leases: Leases::default(),
            settings: settings.clone(),
            metrics,
        });
        let (demand, wanted) = demand::channel();
        let poll = poll::Poll {
            shared: shared.clone(),
            demand: wanted,
            events,
            stopping: stopping.clone(),
        };
        let tasks = TaskTracker::new();
        tasks.spawn(poll.run());
        tasks.close();
        tokio::spawn(leases::extend(shared.clone()));
        let deletions = Deletions::start(shared.clone());
        let publisher = Publisher::start(shared.clone());
        Self {
            shared,
            demand,
            publisher,
            deletions,
            stopping,
            tasks,
        }
    }
}

impl Broker for Sqs {
    fn demand(&self, demand: Demand) {
        self.demand.set(demand);
    }

    fn publish(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        self.publisher.send(publication)
    }

    /// The message is not released: its receipt handle may by now belong to another consumer's delivery.
    fn begin(&self, receipt: &Receipt) -> bool {
        let expired = self
            .shared
            .leases
            .end_expired(receipt.number, Instant::now());
        if let Some(is_new) = expired {
            self.shared.metrics.leases_lost.inc_by(is_new.into());
            tracing::warn!(
                "SQS: the visibility timeout of a message expired before it was processed, so it is received again"
            );
        }
        expired.is_none()
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
                Settlement::RequeueNow => shared.make_visible(number, |_| 0).await,
                Settlement::RequeueFailed | Settlement::Requeue | Settlement::Reject => {
                    shared.make_visible(number, redelivery_delay).await;
                }
            }
        }
    }

    fn requeue_delay(&self) -> Duration {
        Duration::ZERO
    }

    async fn close(&self) {
        self.stopping.cancel();
        self.tasks.wait().await;
    }
}

/// Redelivery delay in seconds, by receive count. Without it, a failing message would be redelivered in a hot loop.
fn redelivery_delay(received: u32) -> i32 {
    1_i32
        .checked_shl(received.min(31))
        .filter(|seconds| *seconds > 0)
        .map_or(MAX_REDELIVERY_DELAY, |s| s.min(MAX_REDELIVERY_DELAY))
}
