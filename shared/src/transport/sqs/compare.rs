//! What an existing SQS queue differs in from the one wanted, and what of it is set in place
//! (SQS-4 to SQS-7). Messages survive all of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::super::mark::{self, Belongs, CLUSTER, NotOurs};
use super::{
    ACTOR, DLQ, DlqDeclaration, NAMESPACE, QueueDeclaration, REDRIVE_POLICY, RETENTION, TYPE, UID,
    VISIBILITY_TIMEOUT,
};

/// A queue as SQS shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundQueue {
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// The actor that a queue's tags name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub actor: String,
    /// Its uid. A restore changes it, so it is no part of the identity (FW-35).
    pub uid: String,
}

/// How a queue at SQS compares with the one wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// It serves.
    Matches,
    /// It serves once this has been set.
    Drifted(Drift),
    /// It is not ours to change, and differs (SQS-5).
    Mismatch {
        /// What is wanted, of what differs.
        wanted: String,
        /// What is there instead.
        found: String,
    },
    /// Its tags say that it is another actor's (SQS-7); by whom it is taken.
    Taken(String),
    /// Its tags say that it is another cluster's (QUE-32); by which it is taken.
    OfCluster(String),
}

/// What must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Attributes.
    pub attributes: BTreeMap<&'static str, String>,
    /// Tags, beside those that are there.
    pub tags: BTreeMap<String, String>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicy {
    dead_letter_target_arn: String,
    max_receive_count: Count,
}

/// SQS shows a number, servers that imitate it a text.
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

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.actor)
    }
}

impl FoundQueue {
    /// ARN of the queue.
    #[must_use]
    pub fn arn(&self) -> Option<&str> {
        self.attributes.get("QueueArn").map(String::as_str)
    }

    /// Who owns it, if not `owner`. A queue without our tags is nobody's; a uid is no part of the
    /// identity (FW-35).
    #[must_use]
    pub fn taken_from(&self, owner: &Owner) -> Option<String> {
        if self.is_dlq() {
            return Some(DEAD_LETTERS.to_owned());
        }
        self.of_another_actor(owner)
    }

    /// Why it is not `owner`'s to delete; `None` where it is (QUE-34). A queue from before there were marks needs all our
    /// other tags: where two clusters fought over it, the uid is that of the last one to write.
    #[must_use]
    pub fn withheld_from(&self, owner: &Owner, cluster: &str) -> Option<NotOurs> {
        let is = |key: &str, wanted: &str| self.tag(key) == Some(wanted);
        if let Some(other) = self.of_another_actor(owner) {
            return Some(NotOurs::Of(other));
        }
        match mark::belongs(self.tag(CLUSTER), cluster, None) {
            Belongs::Here => None,
            Belongs::Elsewhere(other) => Some(NotOurs::OfCluster(other)),
            Belongs::Free => {
                let tagged = is(NAMESPACE, &owner.namespace)
                    && is(ACTOR, &owner.actor)
                    && is(UID, &owner.uid);
                (!tagged).then_some(NotOurs::Unmarked)
            }
        }
    }

    /// Whether its tags call it a dead letter queue.
    #[must_use]
    pub fn is_dlq(&self) -> bool {
        self.tag(TYPE) == Some(DLQ)
    }

    /// Which actor its tags name, if not `owner`; a dead letter queue's name none.
    #[must_use]
    pub fn of_another_actor(&self, owner: &Owner) -> Option<String> {
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

    fn missing_tags(&self, wanted: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let missing = wanted
            .iter()
            .filter(|(key, value)| self.tags.get(*key) != Some(*value));
        missing
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

impl Drift {
    /// Whether nothing is wrong with the queue but that it has no mark.
    #[must_use]
    pub fn is_only_mark(&self) -> bool {
        self.attributes.is_empty() && self.tags.len() == 1 && self.tags.contains_key(CLUSTER)
    }

    fn mark(&mut self, cluster: &str) {
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
    /// Compares what exists with what an actor of `cluster` wants; `dlq_arn` is that of its dead letter queue, where it is
    /// to have one. Retention is none of it: lowering it would lose messages.
    #[must_use]
    pub fn compare(&self, found: &FoundQueue, dlq_arn: Option<&str>, cluster: &str) -> Comparison {
        if let Some(owner) = found.taken_from(&self.owner) {
            return Comparison::Taken(owner);
        }
        let visibility = found.attribute(VISIBILITY_TIMEOUT);
        if !self.changed {
            let wanted = self.configured.map(|seconds| seconds.to_string());
            return match wanted.filter(|wanted| wanted != visibility) {
                Some(wanted) => Comparison::Mismatch {
                    wanted: format!("{VISIBILITY_TIMEOUT}={wanted}"),
                    found: format!("{VISIBILITY_TIMEOUT}={visibility}"),
                },
                None => Comparison::Matches,
            };
        }
        let mut drift = Drift {
            tags: found.missing_tags(&self.tags),
            ..Drift::default()
        };
        match mark::belongs(found.tag(CLUSTER), cluster, self.adopts.as_deref()) {
            Belongs::Elsewhere(other) => return Comparison::OfCluster(other),
            Belongs::Free => drift.mark(cluster),
            Belongs::Here => {}
        }
        if let Some(wanted) = self.attributes.get(VISIBILITY_TIMEOUT)
            && wanted != visibility
        {
            drift.attributes.insert(VISIBILITY_TIMEOUT, wanted.clone());
        }
        if let Some(policy) = self.changed_policy(found.attribute(REDRIVE_POLICY), dlq_arn) {
            drift.attributes.insert(REDRIVE_POLICY, policy);
        }
        drift.comparison()
    }

    /// All tags of a new queue of `cluster`.
    #[must_use]
    pub fn tags_with(&self, cluster: &str) -> BTreeMap<String, String> {
        marked(&self.tags, cluster)
    }

    /// All attributes of a new queue.
    #[must_use]
    pub fn attributes_with(&self, dlq_arn: Option<&str>) -> BTreeMap<&'static str, String> {
        let mut attributes = self.attributes.clone();
        if let Some((dlq, arn)) = self.dlq.as_ref().zip(dlq_arn) {
            attributes.insert(REDRIVE_POLICY, dlq.redrive_policy(arn));
        }
        attributes
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Without a dead letter queue only the policy that we would have made goes; a user's stays.
    fn changed_policy(&self, found: &str, dlq_arn: Option<&str>) -> Option<String> {
        let parse = |text: &str| serde_json::from_str::<RedrivePolicy>(text).ok();
        if let Some((dlq, arn)) = self.dlq.as_ref().zip(dlq_arn) {
            let wanted = dlq.redrive_policy(arn);
            return (parse(&wanted) != parse(found)).then_some(wanted);
        }
        let target = parse(found)?.dead_letter_target_arn;
        let is_ours = self.dlq.is_none() && target.rsplit(':').next() == Some(&self.dlq_name);
        is_ours.then(String::new)
    }
}

/// Whose queues the messages are that failed too often.
const DEAD_LETTERS: &str = "the dead letter queues";

fn marked(tags: &BTreeMap<String, String>, cluster: &str) -> BTreeMap<String, String> {
    let mut tags = tags.clone();
    tags.insert(CLUSTER.to_owned(), cluster.to_owned());
    tags
}

impl DlqDeclaration {
    /// All tags of a new one of `cluster`.
    #[must_use]
    pub fn tags_with(&self, cluster: &str) -> BTreeMap<String, String> {
        marked(&self.tags, cluster)
    }

    /// Compares what exists with what `cluster` wants. Retention is raised, never lowered. One that all queues share
    /// serves other clusters, too: it is left to the cluster that marked it (QUE-39).
    #[must_use]
    pub fn compare(&self, found: &FoundQueue, cluster: &str) -> Comparison {
        if let Some(actor) = found.tags.get(ACTOR) {
            let namespace = found.tags.get(NAMESPACE).map_or("?", String::as_str);
            return Comparison::Taken(format!("{namespace}/{actor}"));
        }
        let mut drift = Drift {
            tags: found.missing_tags(&self.tags),
            ..Drift::default()
        };
        match mark::belongs(found.tag(CLUSTER), cluster, self.adopts.as_deref()) {
            Belongs::Elsewhere(_) if self.shared => return Comparison::Matches,
            Belongs::Elsewhere(other) => return Comparison::OfCluster(other),
            Belongs::Free => drift.mark(cluster),
            Belongs::Here => {}
        }
        let seconds = |text: &str| text.parse::<u64>().unwrap_or(0);
        if let Some(wanted) = self.attributes.get(RETENTION)
            && seconds(found.attribute(RETENTION)) < seconds(wanted)
        {
            drift.attributes.insert(RETENTION, wanted.clone());
        }
        drift.comparison()
    }
}

#[cfg(test)]
mod tests;
