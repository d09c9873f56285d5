//! How an existing SQS queue differs from the declaration, and what to set in place (SQS-4 to SQS-7). No change loses
//! messages.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::super::ownership::{self, CLUSTER, DeletionRefusal, Ownership, QueueOwner};
use super::{
    ACTOR, DLQ, DlqDeclaration, NAMESPACE, QueueDeclaration, REDRIVE_POLICY, RETENTION, TYPE, UID,
    VISIBILITY_TIMEOUT,
};

/// A queue as SQS returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundQueue {
    /// The queue's attributes.
    pub attributes: BTreeMap<String, String>,
    /// The queue's tags.
    pub tags: BTreeMap<String, String>,
}

/// How an existing queue compares with the declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The queue can be used.
    Matches,
    /// The queue can be used once these values are set.
    Drifted(Drift),
    /// The queue differs, and we must not change it (SQS-5).
    Mismatch {
        /// The declared values that differ.
        desired: String,
        /// The existing values.
        found: String,
    },
    /// The tags name another owner, given here (SQS-7).
    OwnedByOther(String),
    /// The tags name another cluster, given here (QUE-32).
    OtherCluster(String),
}

/// The values to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Attributes to set.
    pub attributes: BTreeMap<&'static str, String>,
    /// Tags to add or change.
    pub tags: BTreeMap<String, String>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicy {
    dead_letter_target_arn: String,
    max_receive_count: Count,
}

/// SQS returns a number, compatible servers a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
}

impl PartialEq for Count {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Count {}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl FoundQueue {
    /// The queue's ARN.
    #[must_use]
    pub fn arn(&self) -> Option<&str> {
        self.attributes.get("QueueArn").map(String::as_str)
    }

    /// The queue's ARN, unless it is one that servers other than AWS give to each queue of this name: their account is
    /// 000000000000.
    #[must_use]
    pub fn unique_arn(&self) -> Option<&str> {
        self.arn().filter(|arn| !arn.contains(":000000000000:"))
    }

    /// The owner, if it is not `owner`. A queue without our tags has no owner; the UID is not part of the identity
    /// (FW-35).
    #[must_use]
    pub fn other_owner(&self, owner: &QueueOwner) -> Option<String> {
        if self.is_dlq() {
            return Some(DEAD_LETTERS.to_owned());
        }
        self.other_actor(owner)
    }

    /// Why `owner` must not delete the queue; `None` if it may (QUE-34). A queue without a cluster tag must have all
    /// our other tags: if two clusters have fought over it, the UID is that of the last writer.
    #[must_use]
    pub fn deletion_refusal(&self, owner: &QueueOwner, cluster: &str) -> Option<DeletionRefusal> {
        let is = |key: &str, desired: &str| self.tag(key) == Some(desired);
        if let Some(other) = self.other_actor(owner) {
            return Some(DeletionRefusal::OtherOwner(other));
        }
        match ownership::evaluate(self.tag(CLUSTER), cluster, None) {
            Ownership::Ours => None,
            Ownership::OtherCluster(other) => Some(DeletionRefusal::OtherCluster(other)),
            Ownership::Available => {
                let tagged = is(NAMESPACE, &owner.namespace)
                    && is(ACTOR, &owner.actor)
                    && is(UID, &owner.uid);
                (!tagged).then_some(DeletionRefusal::NoOwnerTag)
            }
        }
    }

    /// Whether the tags say that it is a dead letter queue.
    #[must_use]
    pub fn is_dlq(&self) -> bool {
        self.tag(TYPE) == Some(DLQ)
    }

    /// The actor that the tags name, if it is not `owner`. The tags of a dead letter queue name no actor.
    #[must_use]
    pub fn other_actor(&self, owner: &QueueOwner) -> Option<String> {
        let (namespace, actor) = (self.tag(NAMESPACE), self.tag(ACTOR));
        let is_ours = namespace.is_none_or(|namespace| namespace == owner.namespace)
            && actor.is_none_or(|actor| actor == owner.actor);
        (!is_ours).then(|| {
            format!(
                "{}/{}",
                namespace.unwrap_or(&owner.namespace),
                actor.unwrap_or("?")
            )
        })
    }

    fn tag(&self, key: &str) -> Option<&str> {
        self.tags.get(key).map(String::as_str)
    }

    fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    fn missing_tags(&self, desired: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let missing = desired
            .iter()
            .filter(|(key, value)| self.tags.get(*key) != Some(*value));
        missing
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

impl Drift {
    /// Whether the cluster tag is all that is missing.
    #[must_use]
    pub fn is_only_cluster_tag(&self) -> bool {
        self.attributes.is_empty() && self.tags.len() == 1 && self.tags.contains_key(CLUSTER)
    }

    fn add_cluster_tag(&mut self, cluster: &str) {
        self.tags.insert(CLUSTER.to_owned(), cluster.to_owned());
    }

    fn comparison(self) -> Comparison {
        if self.attributes.is_empty() && self.tags.is_empty() {
            Comparison::Matches
        } else {
            Comparison::Drifted(self)
        }
    }
}

impl QueueDeclaration {
    /// Compares an existing queue with what an actor of `cluster` wants; `dlq_arn` is the ARN of its dead letter queue,
    /// if it has one. Ignores the retention period: lowering it would lose messages.
    #[must_use]
    pub fn compare(&self, found: &FoundQueue, dlq_arn: Option<&str>, cluster: &str) -> Comparison {
        if let Some(owner) = found.other_owner(&self.owner) {
            return Comparison::OwnedByOther(owner);
        }
        let visibility = found.attribute(VISIBILITY_TIMEOUT);
        if !self.may_change {
            let desired = self.configured.map(|seconds| seconds.to_string());
            return match desired.filter(|desired| desired != visibility) {
                Some(desired) => Comparison::Mismatch {
                    desired: format!("{VISIBILITY_TIMEOUT}={desired}"),
                    found: format!("{VISIBILITY_TIMEOUT}={visibility}"),
                },
                None => Comparison::Matches,
            };
        }
        let mut drift = Drift {
            tags: found.missing_tags(&self.tags),
            ..Drift::default()
        };
        match ownership::evaluate(found.tag(CLUSTER), cluster, self.adopts.as_deref()) {
            Ownership::OtherCluster(other) => return Comparison::OtherCluster(other),
            Ownership::Available => drift.add_cluster_tag(cluster),
            Ownership::Ours => {}
        }
        if let Some(desired) = self.attributes.get(VISIBILITY_TIMEOUT)
            && desired != visibility
        {
            drift.attributes.insert(VISIBILITY_TIMEOUT, desired.clone());
        }
        if let Some(policy) = self.changed_policy(found.attribute(REDRIVE_POLICY), dlq_arn) {
            drift.attributes.insert(REDRIVE_POLICY, policy);
        }
        drift.comparison()
    }

    /// All tags for creating the queue from `cluster`.
    #[must_use]
    pub fn tags_with(&self, cluster: &str) -> BTreeMap<String, String> {
        with_cluster_tag(&self.tags, cluster)
    }

    /// All attributes for creating the queue.
    #[must_use]
    pub fn attributes_with(&self, dlq_arn: Option<&str>) -> BTreeMap<&'static str, String> {
        let mut attributes = self.attributes.clone();
        if let Some((dlq, arn)) = self.dlq.as_ref().zip(dlq_arn) {
            attributes.insert(REDRIVE_POLICY, dlq.redrive_policy(arn));
        }
        attributes
    }

    /// The actor that owns the queue.
    #[must_use]
    pub fn owner(&self) -> &QueueOwner {
        &self.owner
    }

    /// The redrive policy to set, if it must change. Without a dead letter queue only a policy that we would have set
    /// is removed; a user's policy is kept.
    fn changed_policy(&self, found: &str, dlq_arn: Option<&str>) -> Option<String> {
        let parse = |text: &str| serde_json::from_str::<RedrivePolicy>(text).ok();
        if let Some((dlq, arn)) = self.dlq.as_ref().zip(dlq_arn) {
            let desired = dlq.redrive_policy(arn);
            return (parse(&desired) != parse(found)).then_some(desired);
        }
        let target = parse(found)?.dead_letter_target_arn;
        let is_ours = self.dlq.is_none() && target.rsplit(':').next() == Some(&self.dlq_name);
        is_ours.then(String::new)
    }
}

/// The owner of a dead letter queue, as named in messages.
const DEAD_LETTERS: &str = "the dead letter queues";

fn with_cluster_tag(tags: &BTreeMap<String, String>, cluster: &str) -> BTreeMap<String, String> {
    let mut tags = tags.clone();
    tags.insert(CLUSTER.to_owned(), cluster.to_owned());
    tags
}

impl DlqDeclaration {
    /// All tags for creating the queue from `cluster`.
    #[must_use]
    pub fn tags_with(&self, cluster: &str) -> BTreeMap<String, String> {
        with_cluster_tag(&self.tags, cluster)
    }

    /// Compares an existing queue with what `cluster` wants. Retention is raised, never lowered. A shared dead letter
    /// queue may serve other clusters, too: leave it to the cluster that its tag names (QUE-39).
    #[must_use]
    pub fn compare(&self, found: &FoundQueue, cluster: &str) -> Comparison {
        if let Some(actor) = found.tags.get(ACTOR) {
            let namespace = found.tags.get(NAMESPACE).map_or("?", String::as_str);
            return Comparison::OwnedByOther(format!("{namespace}/{actor}"));
        }
        let mut drift = Drift {
            tags: found.missing_tags(&self.tags),
            ..Drift::default()
        };
        match ownership::evaluate(found.tag(CLUSTER), cluster, self.adopts.as_deref()) {
            Ownership::OtherCluster(_) if self.shared => return Comparison::Matches,
            Ownership::OtherCluster(other) => return Comparison::OtherCluster(other),
            Ownership::Available => drift.add_cluster_tag(cluster),
            Ownership::Ours => {}
        }
        let seconds = |text: &str| text.parse::<u64>().unwrap_or(0);
        if let Some(desired) = self.attributes.get(RETENTION)
            && seconds(found.attribute(RETENTION)) < seconds(desired)
        {
            drift.attributes.insert(RETENTION, desired.clone());
        }
        drift.comparison()
    }
}

#[cfg(test)]
mod tests;
