//! SQS: names, the sidecar's environment, and the queue to create (SQS-2, SQS-3, SQS-6, POD-4).

mod compare;

use std::collections::BTreeMap;

use asya_wire::env::{self as variable, MAX_SQS_VISIBILITY_TIMEOUT as MAX_VISIBILITY_TIMEOUT};
use asya_wire::queue::Naming;
use serde_json::{Value, json};

use super::ownership::{CLUSTER, QueueOwner};
use super::{ActorQueue, Broker, from_secret, text};
use crate::api::{EffectiveTimeout, EnvVar};
use crate::config::{QueuesConfig, SqsConfig};
use crate::scaling::{self, Trigger, TriggerError, TriggerRequest};
pub use compare::{Comparison, Drift, FoundQueue};

const SECONDS_PER_DAY: u32 = 86_400;

/// Attribute names of SQS.
const VISIBILITY_TIMEOUT: &str = "VisibilityTimeout";
const RETENTION: &str = "MessageRetentionPeriod";
const REDRIVE_POLICY: &str = "RedrivePolicy";

/// Our tags: the queue's owner, and whether it is a dead letter queue.
const ACTOR: &str = "asya.sh/actor";
const NAMESPACE: &str = "asya.sh/namespace";
const UID: &str = "asya.sh/uid";
const TYPE: &str = "asya.sh/type";
const DLQ: &str = "dlq";

/// The queue to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDeclaration {
    /// The queue's name.
    pub name: String,
    /// The queue's attributes, except `RedrivePolicy`, which needs the ARN of the dead letter queue.
    pub attributes: BTreeMap<&'static str, String>,
    /// The queue's tags.
    pub tags: BTreeMap<String, String>,
    /// The dead letter queue, if any.
    pub dlq: Option<DlqDeclaration>,
    owner: QueueOwner,
    /// The cluster from which the actor adopts its queue.
    adopts: Option<String>,
    /// Whether we may change an existing queue (QUE-7).
    may_change: bool,
    /// The configured `VisibilityTimeout`.
    configured: Option<u32>,
    /// The name that the dead letter queue has or would have.
    dlq_name: String,
}

/// The dead letter queue to create first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DlqDeclaration {
    /// The queue's name.
    pub name: String,
    /// The queue's attributes.
    pub attributes: BTreeMap<&'static str, String>,
    /// The queue's tags.
    pub tags: BTreeMap<String, String>,
    /// Whether all queues of the transport share it, so that other clusters may use it, too.
    shared: bool,
    adopts: Option<String>,
    max_receive_count: u32,
}

impl Broker for SqsConfig {
    fn type_name(&self) -> &'static str {
        "sqs"
    }

    fn product(&self) -> &'static str {
        "SQS"
    }

    fn queues(&self) -> &QueuesConfig {
        &self.queues
    }

    fn mismatch_remedy(&self) -> &'static str {
        "autoCreate is false, so the operator does not change it: change it at SQS, or change the transport's \
         configuration"
    }

    fn accepts_name(&self, name: &str) -> bool {
        Naming::Sqs.accepts(name)
    }

    /// KEDA locates a queue by the configured account (KEDA-4).
    fn location_mismatch(&self, queue: &str, url: &str) -> Option<String> {
        let (configured, found) = (self.account_id.as_deref()?, account_in(url)?);
        (configured != found).then(|| {
            format!(
                "queue {queue} belongs to account {found}, the account of the credentials, but accountId of the \
                 transport is {configured}: correct it, or remove it"
            )
        })
    }

    fn sidecar_env(&self) -> Vec<EnvVar> {
        let number = |name, value: Option<u32>| value.map(|value| text(name, &value.to_string()));
        let given = |name, value: &Option<String>| value.as_deref().map(|value| text(name, value));
        let keys = self.credentials.as_ref();
        [
            Some(text(variable::TRANSPORT, self.type_name())),
            given(variable::AWS_REGION, &self.region),
            given(variable::SQS_ENDPOINT, &self.endpoint),
            number(variable::SQS_VISIBILITY_TIMEOUT, self.visibility_timeout),
            number(variable::SQS_WAIT_TIME_SECONDS, self.wait_time_seconds),
            keys.map(|keys| from_secret("AWS_ACCESS_KEY_ID", &keys.access_key_id)),
            keys.map(|keys| from_secret("AWS_SECRET_ACCESS_KEY", &keys.secret_access_key)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn address_variables(&self) -> &'static [&'static str] {
        &[
            variable::TRANSPORT,
            variable::AWS_REGION,
            variable::SQS_ENDPOINT,
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
        ]
    }

    /// Queues with the same name in two accounts are two queues. The account of the credentials is not known before
    /// they are used, so without `accountId` the credentials themselves identify the account.
    fn address(&self, queue: &str) -> Value {
        let keys = self.credentials.as_ref();
        let keys = keys.map(|keys| json!([keys.access_key_id.name, keys.access_key_id.key]));
        let account = self.account_id.as_ref().map(|id| json!(id));
        let account = account.or(keys);
        json!([self.type_name(), self.region, self.endpoint, account, queue])
    }

    fn desired(&self, queue: &ActorQueue) -> Value {
        let desired = self.declaration(queue);
        let dlq = desired.dlq.as_ref();
        json!({
            // Keep this format: adding the account would change the hashes in all statuses, and every queue would be
            // verified again.
            "at": json!([self.type_name(), self.region, self.endpoint, desired.name]),
            "created": desired.may_change,
            "configured": desired.configured,
            "queue": [desired.attributes, desired.tags],
            "dlq": dlq.map(|dlq| json!([dlq.name, dlq.attributes, dlq.tags, dlq.max_receive_count])),
        })
    }

    fn trigger(&self, request: &TriggerRequest<'_>) -> Result<Trigger, TriggerError> {
        scaling::sqs::trigger(self, request)
    }
}

impl SqsConfig {
    /// The declaration of an actor's queue.
    #[must_use]
    pub fn declaration(&self, queue: &ActorQueue) -> QueueDeclaration {
        let name = &queue.names.queue;
        let mut tags = self.tags.clone();
        tags.insert(ACTOR.to_owned(), queue.actor.clone());
        tags.insert(NAMESPACE.to_owned(), queue.namespace.clone());
        tags.insert(UID.to_owned(), queue.uid.clone());
        tags.remove(TYPE);
        tags.remove(CLUSTER);
        let visibility = self.visibility_timeout_for(&queue.timeout).to_string();
        let dlq = queue.names.dlq.as_ref();
        QueueDeclaration {
            name: name.clone(),
            attributes: BTreeMap::from([
                (VISIBILITY_TIMEOUT, visibility),
                (RETENTION, "345600".to_owned()),
            ]),
            tags,
            dlq: dlq.map(|name| self.dlq_declaration(name, queue.adopts.clone())),
            owner: QueueOwner {
                namespace: queue.namespace.clone(),
                actor: queue.actor.clone(),
                uid: queue.uid.clone(),
            },
            adopts: queue.adopts.clone(),
            may_change: self.queues.auto_create,
            configured: self
                .visibility_timeout
                .map(|seconds| seconds.min(MAX_VISIBILITY_TIMEOUT)),
            dlq_name: self.queues.dlq.name_for(name),
        }
    }

    /// The URL by which operator, sidecar and KEDA reach a queue: a configured endpoint replaces the scheme and host
    /// that the server returned (SQS-7).
    #[must_use]
    pub fn reachable(&self, url: &str) -> String {
        let Some((scheme, rest)) = self.endpoint.as_deref().and_then(|e| e.split_once("://"))
        else {
            return url.to_owned();
        };
        let host = rest.split('/').next().unwrap_or(rest);
        let path = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('/'));
        path.map_or_else(
            || url.to_owned(),
            |(_, path)| format!("{scheme}://{host}/{path}"),
        )
    }

    /// Twice the processing timeout: a message that is still being processed must not become visible again (SQS-3).
    #[must_use]
    pub fn visibility_timeout_for(&self, timeout: &EffectiveTimeout) -> u32 {
        let twice = timeout.processing_for_broker().saturating_mul(2);
        self.visibility_timeout
            .unwrap_or(twice)
            .min(MAX_VISIBILITY_TIMEOUT)
    }

    fn dlq_declaration(&self, name: &str, adopts: Option<String>) -> DlqDeclaration {
        let mut tags = self.tags.clone();
        tags.insert(TYPE.to_owned(), DLQ.to_owned());
        tags.remove(CLUSTER);
        let days = self.queues.dlq.retention_days.unwrap_or(14);
        let retention = days.saturating_mul(SECONDS_PER_DAY).to_string();
        DlqDeclaration {
            name: name.to_owned(),
            attributes: BTreeMap::from([(RETENTION, retention)]),
            tags,
            shared: self.queues.dlq.is_shared(),
            adopts,
            max_receive_count: self.queues.dlq.max_retry_count,
        }
    }
}

impl DlqDeclaration {
    /// The queue's `RedrivePolicy` attribute, given the ARN of this dead letter queue.
    #[must_use]
    pub fn redrive_policy(&self, arn: &str) -> String {
        json!({"deadLetterTargetArn": arn, "maxReceiveCount": self.max_receive_count}).to_string()
    }
}

/// The account in a queue's URL, `…/123456789012/NAME`.
fn account_in(url: &str) -> Option<&str> {
    let account = url.rsplit('/').nth(1)?;
    let is_one = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
    is_one.then_some(account)
}

#[cfg(test)]
mod tests;
