//! SQS through the AWS SDK.

mod answers;
mod connect;
mod removal;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use answers::Answer;
use asya_shared::config::SqsConfig;
use asya_shared::transport::QueueOf;
use asya_shared::transport::mark::{self, CLUSTER};
use asya_shared::transport::sqs::{
    Comparison, DlqDeclaration, Drift, FoundQueue, Owner, QueueDeclaration,
};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::empty_confirmations::EmptyConfirmations;
use super::gate::{self, BrokerLimiter, Operation};
use super::{
    BrokerError, Count, Deleted, Depth, Emptied, QueueCheck, QueueClient, QueueObservation, Serving,
};

pub use connect::{Keys, Login};

/// AWS' approximate counts may lag by a minute.
const LAG: Duration = Duration::from_mins(1);

/// Client of one SQS endpoint.
pub struct Sqs {
    config: SqsConfig,
    sdk: Client,
    /// The endpoint's name in error messages.
    address: String,
    /// Uid of `kube-system`, which identifies this cluster at the broker.
    cluster: Arc<str>,
    gate: Arc<BrokerLimiter>,
    urls: Mutex<HashMap<String, String>>,
    zeros: EmptyConfirmations,
}

/// A queue that exists.
struct Found {
    url: String,
    queue: FoundQueue,
}

impl Found {
    fn depth(&self) -> Option<Depth> {
        let count = |name: &str| -> Option<u64> { self.queue.attributes.get(name)?.parse().ok() };
        Some(Depth {
            queued: count("ApproximateNumberOfMessages")?
                + count("ApproximateNumberOfMessagesDelayed").unwrap_or(0),
            processing: count("ApproximateNumberOfMessagesNotVisible")?,
        })
    }
}

impl Sqs {
    /// A client for the transport of that name.
    ///
    /// # Errors
    /// When no region is known, or the certificate authority cannot be used.
    pub async fn connect(
        transport: &str,
        config: SqsConfig,
        login: Login,
        cluster: Arc<str>,
        gate: Arc<BrokerLimiter>,
    ) -> Result<Self, BrokerError> {
        let (sdk, region) = connect::connect(transport, &config, login, &gate).await?;
        let address = config
            .endpoint
            .clone()
            .unwrap_or_else(|| format!("region {region}"));
        Ok(Self {
            config,
            sdk,
            address,
            cluster,
            gate,
            urls: Mutex::default(),
            zeros: EmptyConfirmations::new(LAG),
        })
    }

    /// Returns the URL of a queue; `None` if it does not exist.
    async fn url(&self, name: &str) -> Result<Option<String>, BrokerError> {
        if let Some(url) = self.urls.lock().get(name) {
            return Ok(Some(url.clone()));
        }
        let call = self.sdk.get_queue_url().queue_name(name).send();
        let answer = self.ask(Operation::read("url"), name, call).await?;
        let url = answer.done().and_then(|answer| answer.queue_url);
        Ok(url.map(|url| self.remember(name, &url)))
    }

    fn remember(&self, name: &str, url: &str) -> String {
        let url = self.config.reachable(url);
        self.urls.lock().insert(name.to_owned(), url.clone());
        url
    }

    /// The queue without its tags.
    async fn attributes(&self, name: &str) -> Result<Option<Found>, BrokerError> {
        let Some(url) = self.url(name).await? else {
            return Ok(None);
        };
        let call = self
            .sdk
            .get_queue_attributes()
            .queue_url(&url)
            .attribute_names(QueueAttributeName::All)
            .send();
        let answer = self.ask(Operation::read("attributes"), name, call).await?;
        let Some(answer) = answer.done() else {
            self.urls.lock().remove(name);
            return Ok(None);
        };
        let attributes = answer.attributes.unwrap_or_default().into_iter();
        Ok(Some(Found {
            url,
            queue: FoundQueue {
                attributes: attributes
                    .map(|(key, value)| (key.as_str().to_owned(), value))
                    .collect(),
                tags: BTreeMap::new(),
            },
        }))
    }

    async fn find(&self, name: &str) -> Result<Option<Found>, BrokerError> {
        let Some(mut found) = self.attributes(name).await? else {
            return Ok(None);
        };
        let call = self.sdk.list_queue_tags().queue_url(&found.url).send();
        let answer = self.ask(Operation::read("tags"), name, call).await?;
        let Some(answer) = answer.done() else {
            self.urls.lock().remove(name);
            return Ok(None);
        };
        found.queue.tags = answer.tags.unwrap_or_default().into_iter().collect();
        Ok(Some(found))
    }

    async fn count(&self, name: &str) -> Result<Count, BrokerError> {
        let found = self.attributes(name).await?;
        Ok(match found.map(|found| found.depth()) {
            None => Count::Absent,
            Some(None) => Count::Unknown,
            Some(Some(depth)) => Count::Messages(depth),
        })
    }

    async fn look(&self, queue: &QueueOf) -> Result<QueueObservation, BrokerError> {
        let wanted = self.config.declaration(queue);
        let Some(found) = self.find(&wanted.name).await? else {
            return Ok(QueueObservation {
                standing: QueueCheck::Absent,
                depth: None,
            });
        };
        let (dlq, arn) = self.look_at_dlq(&wanted).await?;
        let comparison = wanted.compare(&found.queue, arn.as_deref(), &self.cluster);
        let standing = match comparison {
            Comparison::Mismatch { wanted, found } => QueueCheck::Differs { wanted, found },
            comparison => match fitness(&wanted.name, comparison)?.max(dlq) {
                Fitness::Fits => QueueCheck::Serves(serving(&found.url)),
                Fitness::Unmarked => QueueCheck::Unmarked,
                Fitness::Drifted => QueueCheck::Drifted,
            },
        };
        Ok(QueueObservation {
            standing,
            depth: found.depth(),
        })
    }

    /// State of the dead letter queue, and its ARN.
    async fn look_at_dlq(
        &self,
        wanted: &QueueDeclaration,
    ) -> Result<(Fitness, Option<String>), BrokerError> {
        let Some(dlq) = wanted
            .dlq
            .as_ref()
            .filter(|_| self.config.queues.auto_create)
        else {
            return Ok((Fitness::Fits, None));
        };
        let Some(found) = self.find(&dlq.name).await? else {
            return Ok((Fitness::Drifted, None));
        };
        let arn = found.queue.arn().map(str::to_owned);
        let fitness = fitness(&dlq.name, dlq.compare(&found.queue, &self.cluster))?;
        Ok((fitness, arn))
    }

    async fn create(&self, queue: &QueueOf) -> Result<Serving, BrokerError> {
        let wanted = self.config.declaration(queue);
        let arn = self.ensure_dlq(&wanted).await?;
        let attributes = wanted.attributes_with(arn.as_deref());
        let tags = wanted.tags_with(&self.cluster);
        match self.put(&wanted.name, &attributes, &tags).await? {
            Some(url) => Ok(serving(&url)),
            // Created in the meantime with other attributes: compare it again.
            None => self.update(queue).await,
        }
    }

    /// Creates a queue and returns its URL; `None` if one with other attributes exists (SQS-8).
    async fn put(
        &self,
        name: &str,
        attributes: &BTreeMap<&'static str, String>,
        tags: &BTreeMap<String, String>,
    ) -> Result<Option<String>, BrokerError> {
        let call = self
            .sdk
            .create_queue()
            .queue_name(name)
            .set_attributes(Some(named(attributes)))
            .set_tags(Some(tags.clone().into_iter().collect()))
            .send();
        let answer = self.ask(Operation::write("create"), name, call).await?;
        let url = answer.done().and_then(|answer| answer.queue_url);
        Ok(url.map(|url| self.remember(name, &url)))
    }

    /// Creates or updates the dead letter queue, which must exist before the queue. Returns its ARN.
    async fn ensure_dlq(&self, wanted: &QueueDeclaration) -> Result<Option<String>, BrokerError> {
        let Some(dlq) = &wanted.dlq else {
            return Ok(None);
        };
        if let Some(found) = self.find(&dlq.name).await? {
            self.update_dlq(dlq, &found).await?;
            return Ok(found.queue.arn().map(str::to_owned));
        }
        let tags = dlq.tags_with(&self.cluster);
        self.put(&dlq.name, &dlq.attributes, &tags).await?;
        let found = self.attributes(&dlq.name).await?;
        let arn = found.and_then(|found| found.queue.arn().map(str::to_owned));
        arn.map(Some).ok_or_else(|| vanished(&dlq.name))
    }

    async fn update_dlq(&self, dlq: &DlqDeclaration, found: &Found) -> Result<(), BrokerError> {
        match dlq.compare(&found.queue, &self.cluster) {
            Comparison::Drifted(drift) => self.set(&dlq.name, &found.url, &drift).await,
            other => fitness(&dlq.name, other).map(drop),
        }
    }

    async fn update(&self, queue: &QueueOf) -> Result<Serving, BrokerError> {
        let wanted = self.config.declaration(queue);
        let name = &wanted.name;
        let found = self.find(name).await?.ok_or_else(|| vanished(name))?;
        // Check ownership first: create nothing for a queue that is not ours.
        fitness(name, wanted.compare(&found.queue, None, &self.cluster))?;
        let arn = self.ensure_dlq(&wanted).await?;
        match wanted.compare(&found.queue, arn.as_deref(), &self.cluster) {
            Comparison::Drifted(drift) => self.set(name, &found.url, &drift).await?,
            Comparison::Mismatch { wanted, found } => {
                let text = format!("queue {name} has {found}, expected {wanted}");
                return Err(BrokerError::Mismatch(text));
            }
            other => drop(fitness(name, other)?),
        }
        Ok(serving(&found.url))
    }

    async fn set(&self, name: &str, url: &str, drift: &Drift) -> Result<(), BrokerError> {
        if !drift.attributes.is_empty() {
            let call = self
                .sdk
                .set_queue_attributes()
                .queue_url(url)
                .set_attributes(Some(named(&drift.attributes)))
                .send();
            let answer = self.ask(Operation::write("set"), name, call).await?;
            answer.done().ok_or_else(|| vanished(name))?;
        }
        if !drift.tags.is_empty() {
            let tags = drift.tags.clone().into_iter().collect();
            let call = self
                .sdk
                .tag_queue()
                .queue_url(url)
                .set_tags(Some(tags))
                .send();
            let answer = self.ask(Operation::write("tag"), name, call).await?;
            answer.done().ok_or_else(|| vanished(name))?;
        }
        Ok(())
    }

    /// Sends one request. The SDK's future is large, so it is boxed before it is held anywhere.
    fn ask<'a, T, E: answers::Refusal>(
        &'a self,
        operation: Operation,
        queue: &'a str,
        call: impl Future<Output = Result<T, answers::SdkError<E>>> + Send + 'a,
    ) -> impl Future<Output = Result<Answer<T>, BrokerError>> + 'a
    where
        T: Send + 'a,
    {
        let call = call.boxed();
        let call = async move { answers::judge(&self.address, operation.name, queue, call.await) };
        self.gate.call(operation, call)
    }
}

fn named(attributes: &BTreeMap<&'static str, String>) -> HashMap<QueueAttributeName, String> {
    attributes
        .iter()
        .map(|(key, value)| (QueueAttributeName::from(*key), value.clone()))
        .collect()
}

fn serving(url: &str) -> Serving {
    Serving {
        url: Some(url.to_owned()),
        delivery_limit_inactive: false,
    }
}

/// How well a queue serves, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fitness {
    Fits,
    Unmarked,
    Drifted,
}

/// # Errors
/// `Conflict` when the queue belongs to another actor or another cluster.
fn fitness(queue: &str, comparison: Comparison) -> Result<Fitness, BrokerError> {
    match comparison {
        Comparison::Matches | Comparison::Mismatch { .. } => Ok(Fitness::Fits),
        Comparison::Drifted(drift) if drift.is_only_mark() => Ok(Fitness::Unmarked),
        Comparison::Drifted(_) => Ok(Fitness::Drifted),
        Comparison::Taken(owner) => Err(BrokerError::Conflict(format!(
            "queue {queue} belongs to {owner} according to its tags asya.sh/namespace and asya.sh/actor; rename this \
             actor"
        ))),
        Comparison::OfCluster(cluster) => {
            let shown_by = format!("its tag {CLUSTER}");
            let text = mark::conflict(queue, &cluster, &shown_by);
            Err(BrokerError::Conflict(text))
        }
    }
}

fn vanished(queue: &str) -> BrokerError {
    BrokerError::Throttled(format!(
        "queue {queue}: SQS does not report yet whether it exists"
    ))
}

impl QueueClient for Sqs {
    fn observe<'a>(
        &'a self,
        queue: &'a QueueOf,
    ) -> BoxFuture<'a, Result<QueueObservation, BrokerError>> {
        self.look(queue).boxed()
    }

    fn create<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>> {
        self.create(queue).boxed()
    }

    fn update<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>> {
        self.update(queue).boxed()
    }

    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Deleted, BrokerError>> {
        self.delete(queue, owner).boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Emptied, BrokerError>> {
        self.delete_if_empty(queue, owner).boxed()
    }

    fn survey<'a>(
        &'a self,
        queues: &'a [QueueOf],
    ) -> BoxFuture<'a, Vec<Result<QueueObservation, BrokerError>>> {
        gate::all(queues.iter().map(|queue| self.observe(queue)).collect()).boxed()
    }

    fn depths<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<Count, BrokerError>>> {
        let counts = queues.iter().map(|queue| self.count(queue).boxed());
        gate::all(counts.collect()).boxed()
    }
}
