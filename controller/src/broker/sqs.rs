//! SQS through the AWS SDK.

mod connect;
mod removal;
mod responses;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::SqsConfig;
use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::{self, CLUSTER, QueueOwner};
use asya_shared::transport::sqs::{
    Comparison, DlqDeclaration, Drift, FoundQueue, QueueDeclaration,
};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use futures::FutureExt;
use parking_lot::Mutex;
use responses::SqsResponse;

use super::empty_confirmations::EmptyConfirmations;
use super::http_client::BuildSqsHttpClient;
use super::limiter::{self, BrokerLimiter, Operation};
use super::{
    BrokerError, BrokerResponse, BrokerResponses, Count, DeleteIfEmptyOutcome, DeleteOutcome,
    DeletionGuard, Depth, QueueCheck, QueueClient, QueueId, QueueObservation, ReadyQueue, Untagged,
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
    limiter: Arc<BrokerLimiter>,
    urls: Mutex<HashMap<String, String>>,
    empty_confirmations: EmptyConfirmations,
}

/// A queue that exists.
struct Found {
    url: String,
    queue: FoundQueue,
}

/// Dead letter queues that were read for many queues together, by name.
type ReadDlqs = HashMap<String, Result<Option<Found>, BrokerError>>;

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
    /// Builds a client for the transport of that name.
    ///
    /// # Errors
    /// If the region is unknown, or the certificate authority is unusable.
    pub async fn connect(
        transport: &str,
        config: SqsConfig,
        login: Login,
        cluster: Arc<str>,
        limiter: Arc<BrokerLimiter>,
        build: &BuildSqsHttpClient,
    ) -> Result<Self, BrokerError> {
        let (sdk, region) = connect::connect(transport, &config, login, &limiter, build).await?;
        let address = config
            .endpoint
            .clone()
            .unwrap_or_else(|| format!("region {region}"));
        Ok(Self {
            config,
            sdk,
            address,
            cluster,
            limiter,
            urls: Mutex::default(),
            empty_confirmations: EmptyConfirmations::new(LAG),
        })
    }

    /// Returns the URL of a queue; `None` if it does not exist.
    async fn url(&self, name: &str) -> Result<Option<String>, BrokerError> {
        if let Some(url) = self.urls.lock().get(name) {
            return Ok(Some(url.clone()));
        }
        let call = self.sdk.get_queue_url().queue_name(name).send();
        let response = self.send(Operation::read("url"), name, call).await?;
        let url = response.done().and_then(|output| output.queue_url);
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
        let response = self.send(Operation::read("attributes"), name, call).await?;
        let Some(output) = response.done() else {
            self.urls.lock().remove(name);
            return Ok(None);
        };
        let attributes = output.attributes.unwrap_or_default().into_iter();
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
        let response = self.send(Operation::read("tags"), name, call).await?;
        let Some(output) = response.done() else {
            self.urls.lock().remove(name);
            return Ok(None);
        };
        found.queue.tags = output.tags.unwrap_or_default().into_iter().collect();
        Ok(Some(found))
    }

    async fn count(&self, name: &str) -> Result<Count, BrokerError> {
        let found = self.attributes(name).await?;
        Ok(match found.map(|found| found.depth()) {
            None => Count::NotFound,
            Some(None) => Count::Unknown,
            Some(Some(depth)) => Count::Messages(depth),
        })
    }

    async fn id(&self, name: &str) -> Result<Option<QueueId>, BrokerError> {
        let found = self.attributes(name).await?;
        let arn = found.and_then(|found| found.queue.unique_arn().map(str::to_owned));
        Ok(arn.map(QueueId::Arn))
    }

    /// Observes a queue, with the dead letter queues that were `read` already.
    async fn observe_queue(
        &self,
        queue: &ActorQueue,
        read: &ReadDlqs,
    ) -> Result<QueueObservation, BrokerError> {
        let declaration = self.config.declaration(queue);
        let Some(found) = self.find(&declaration.name).await? else {
            return Ok(QueueObservation {
                check: QueueCheck::NotFound,
                depth: None,
            });
        };
        let (dlq, arn) = self.observe_dlq(&declaration, read).await?;
        let comparison = declaration.compare(&found.queue, arn.as_deref(), &self.cluster);
        let check = match comparison {
            Comparison::Mismatch { desired, found } => QueueCheck::Mismatch { desired, found },
            comparison => match drift_level(&declaration.name, comparison)?.max(dlq) {
                DriftLevel::InSync => QueueCheck::Ready(ready_queue(&found.url)),
                DriftLevel::OnlyOwnerTag => QueueCheck::NotTaggedYet,
                DriftLevel::Drifted => QueueCheck::Drifted,
            },
        };
        Ok(QueueObservation {
            check,
            depth: found.depth(),
        })
    }

    /// State of the dead letter queue, and its ARN.
    async fn observe_dlq(
        &self,
        declaration: &QueueDeclaration,
        read: &ReadDlqs,
    ) -> Result<(DriftLevel, Option<String>), BrokerError> {
        let Some(dlq) = declaration
            .dlq
            .as_ref()
            .filter(|_| self.config.queues.auto_create)
        else {
            return Ok((DriftLevel::InSync, None));
        };
        let own;
        let found = match read.get(&dlq.name) {
            Some(Ok(found)) => found,
            Some(Err(error)) => return Err(error.clone()),
            None => {
                own = self.find(&dlq.name).await?;
                &own
            }
        };
        let Some(found) = found else {
            return Ok((DriftLevel::Drifted, None));
        };
        let arn = found.queue.arn().map(str::to_owned);
        let level = drift_level(&dlq.name, dlq.compare(&found.queue, &self.cluster))?;
        Ok((level, arn))
    }

    /// Observes many queues. A dead letter queue that several of them share is read once: AWS allows few reads of tags.
    async fn observe_all(
        &self,
        queues: &[ActorQueue],
    ) -> Vec<Result<QueueObservation, BrokerError>> {
        let mut users: BTreeMap<&str, usize> = BTreeMap::new();
        let is_managed = self.config.queues.auto_create;
        for dlq in queues.iter().filter_map(|queue| queue.names.dlq.as_deref()) {
            *users.entry(dlq).or_default() += usize::from(is_managed);
        }
        let shared = users.into_iter().filter(|(_, users)| *users > 1);
        let mut read = ReadDlqs::new();
        for (name, _) in shared {
            read.insert(name.to_owned(), self.find(name).await);
        }
        let observations = queues
            .iter()
            .map(|queue| self.observe_queue(queue, &read).boxed());
        limiter::run_limited(observations.collect()).await
    }

    async fn create(&self, queue: &ActorQueue) -> Result<ReadyQueue, BrokerError> {
        let declaration = self.config.declaration(queue);
        let arn = self.ensure_dlq(&declaration).await?;
        let attributes = declaration.attributes_with(arn.as_deref());
        let tags = declaration.tags_with(&self.cluster);
        match self.put(&declaration.name, &attributes, &tags).await? {
            Some(url) => {
                self.check_created(&declaration, &url).await?;
                Ok(ready_queue(&url))
            }
            // Created concurrently with other attributes: compare it again.
            None => self.update(queue).await,
        }
    }

    /// Checks who owns a created queue: another cluster may have created it at the same moment, and SQS reports neither
    /// that it existed nor that our tags were ignored. SQS may not find it yet, which means nothing.
    ///
    /// # Errors
    /// `QueueNameTaken` if it belongs to another actor or cluster.
    async fn check_created(
        &self,
        declaration: &QueueDeclaration,
        url: &str,
    ) -> Result<(), BrokerError> {
        let name = &declaration.name;
        let call = self.sdk.list_queue_tags().queue_url(url).send();
        let response = self.send(Operation::read("tags"), name, call).await?;
        let Some(output) = response.done() else {
            return Ok(());
        };
        let created = FoundQueue {
            tags: output.tags.unwrap_or_default().into_iter().collect(),
            ..FoundQueue::default()
        };
        drift_level(name, declaration.compare(&created, None, &self.cluster)).map(drop)
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
        let response = self.send(Operation::write("create"), name, call).await?;
        let url = response.done().and_then(|output| output.queue_url);
        Ok(url.map(|url| self.remember(name, &url)))
    }

    /// Creates or updates the dead letter queue, which must exist before the queue. Returns its ARN.
    async fn ensure_dlq(
        &self,
        declaration: &QueueDeclaration,
    ) -> Result<Option<String>, BrokerError> {
        let Some(dlq) = &declaration.dlq else {
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
        arn.map(Some).ok_or_else(|| existence_unknown(&dlq.name))
    }

    async fn update_dlq(&self, dlq: &DlqDeclaration, found: &Found) -> Result<(), BrokerError> {
        match dlq.compare(&found.queue, &self.cluster) {
            Comparison::Drifted(drift) => self.set(&dlq.name, &found.url, &drift).await,
            other => drift_level(&dlq.name, other).map(drop),
        }
    }

    async fn update(&self, queue: &ActorQueue) -> Result<ReadyQueue, BrokerError> {
        let declaration = self.config.declaration(queue);
        let name = &declaration.name;
        let found = self
            .find(name)
            .await?
            .ok_or_else(|| existence_unknown(name))?;
        // Check ownership first: create nothing for a queue that belongs to another actor or cluster.
        drift_level(name, declaration.compare(&found.queue, None, &self.cluster))?;
        let arn = self.ensure_dlq(&declaration).await?;
        match declaration.compare(&found.queue, arn.as_deref(), &self.cluster) {
            Comparison::Drifted(drift) => self.set(name, &found.url, &drift).await?,
            Comparison::Mismatch { desired, found } => {
                let text = format!("queue {name} has {found}, expected {desired}");
                return Err(BrokerError::Mismatch(text));
            }
            other => drop(drift_level(name, other)?),
        }
        Ok(ready_queue(&found.url))
    }

    async fn set(&self, name: &str, url: &str, drift: &Drift) -> Result<(), BrokerError> {
        if !drift.attributes.is_empty() {
            let call = self
                .sdk
                .set_queue_attributes()
                .queue_url(url)
                .set_attributes(Some(named(&drift.attributes)))
                .send();
            let response = self.send(Operation::write("set"), name, call).await?;
            response.done().ok_or_else(|| existence_unknown(name))?;
        }
        if !drift.tags.is_empty() {
            let tags = drift.tags.clone().into_iter().collect();
            let call = self
                .sdk
                .tag_queue()
                .queue_url(url)
                .set_tags(Some(tags))
                .send();
            let response = self.send(Operation::write("tag"), name, call).await?;
            response.done().ok_or_else(|| existence_unknown(name))?;
        }
        Ok(())
    }

    /// Sends one request. The SDK's future is large, so it is boxed before it is held anywhere.
    fn send<'a, T, E: responses::OperationError>(
        &'a self,
        operation: Operation,
        queue: &'a str,
        call: impl Future<Output = Result<T, responses::SdkError<E>>> + Send + 'a,
    ) -> impl Future<Output = Result<SqsResponse<T>, BrokerError>> + 'a
    where
        T: Send + 'a,
    {
        let call = call.boxed();
        let call =
            async move { responses::interpret(&self.address, operation.name, queue, call.await) };
        self.limiter.call(operation, call)
    }
}

fn named(attributes: &BTreeMap<&'static str, String>) -> HashMap<QueueAttributeName, String> {
    attributes
        .iter()
        .map(|(key, value)| (QueueAttributeName::from(*key), value.clone()))
        .collect()
}

fn ready_queue(url: &str) -> ReadyQueue {
    ReadyQueue {
        url: Some(url.to_owned()),
        ..ReadyQueue::default()
    }
}

/// Drift of a queue, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DriftLevel {
    InSync,
    OnlyOwnerTag,
    Drifted,
}

/// # Errors
/// `QueueNameTaken` if the queue belongs to another actor or cluster.
fn drift_level(queue: &str, comparison: Comparison) -> Result<DriftLevel, BrokerError> {
    match comparison {
        Comparison::Matches | Comparison::Mismatch { .. } => Ok(DriftLevel::InSync),
        Comparison::Drifted(drift) if drift.is_only_cluster_tag() => Ok(DriftLevel::OnlyOwnerTag),
        Comparison::Drifted(_) => Ok(DriftLevel::Drifted),
        Comparison::OwnedByOther(owner) => {
            let shown_by = "its tags asya.sh/namespace and asya.sh/actor";
            let text = ownership::other_actor_message(queue, &owner, shown_by);
            Err(BrokerError::QueueNameTaken(text))
        }
        Comparison::OtherCluster(cluster) => {
            let shown_by = format!("its tag {CLUSTER}");
            let text = ownership::other_cluster_message(queue, &cluster, &shown_by);
            Err(BrokerError::QueueNameTaken(text))
        }
    }
}

fn existence_unknown(queue: &str) -> BrokerError {
    BrokerError::Throttled(format!(
        "queue {queue}: SQS does not report yet whether it exists"
    ))
}

impl QueueClient for Sqs {
    fn observe<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, QueueObservation> {
        async move { self.observe_queue(queue, &ReadDlqs::new()).await }.boxed()
    }

    fn create<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        self.create(queue).boxed()
    }

    fn update<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        self.update(queue).boxed()
    }

    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteOutcome> {
        self.delete(queue, owner, guard).boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        untagged: Untagged,
        generation: i64,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteIfEmptyOutcome> {
        self.delete_if_empty(queue, owner, untagged, generation, guard)
            .boxed()
    }

    fn id<'a>(&'a self, queue: &'a str) -> BrokerResponse<'a, Option<QueueId>> {
        self.id(queue).boxed()
    }

    fn observe_many<'a>(
        &'a self,
        queues: &'a [ActorQueue],
    ) -> BrokerResponses<'a, QueueObservation> {
        self.observe_all(queues).boxed()
    }

    fn depths<'a>(&'a self, queues: &'a [String]) -> BrokerResponses<'a, Count> {
        let counts = queues.iter().map(|queue| self.count(queue).boxed());
        limiter::run_limited(counts.collect()).boxed()
    }
}
