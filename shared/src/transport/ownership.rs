//! The owner of a queue at its broker: the cluster, and the actor in it (QUE-32). Operators of several clusters
//! may share a broker, and an actor may have the same namespace and name in staging and in production; only the UID of
//! `kube-system` differs.

use std::fmt;

/// Key of the owner tag: a tag on SQS, an argument of a queue binding on `RabbitMQ`. Its value is the UID of namespace
/// `kube-system`.
pub const CLUSTER: &str = "asya.sh/cluster";

/// Names the owner of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerTag {
    /// UID of the cluster's namespace `kube-system`.
    pub cluster: String,
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
}

/// The actor that owns a queue, within a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOwner {
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
    /// UID of the actor. It changes on a restore, so it is not part of the identity (FW-35).
    pub uid: String,
}

impl fmt::Display for QueueOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.actor)
    }
}

/// Ownership of a queue from one cluster's point of view, by the queue's owner tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The queue is the cluster's.
    Ours,
    /// The cluster may take the queue: it is untagged, or tagged by a cluster that has given it up.
    Available,
    /// The queue belongs to this other cluster.
    OtherCluster(String),
}

/// Ownership of a queue from one actor's point of view, by the queue's owner tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorOwnership {
    /// The queue is the actor's.
    Ours,
    /// The actor may take the queue: it is untagged, tagged by a cluster that has given it up, or has stale tags
    /// besides the actor's own.
    Available,
    /// The queue belongs to this other cluster.
    OtherCluster(String),
    /// The queue belongs to this other actor of the cluster, `NAMESPACE/NAME`. It may be gone: the queue is kept for
    /// the next actor of that name.
    OtherActor(String),
}

/// Why an actor must not delete a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionRefusal {
    /// The operator of another cluster has created or adopted the queue.
    OtherCluster(String),
    /// The queue is another actor's, or a dead letter queue.
    OtherOwner(String),
    /// Nothing at the broker identifies the owner.
    NoOwnerTag,
}

impl fmt::Display for DeletionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCluster(cluster) => write!(f, "it belongs to another cluster ({cluster})"),
            Self::OtherOwner(owner) => write!(f, "it belongs to {owner}"),
            Self::NoOwnerTag => f.write_str("nothing at the broker marks it as this actor's"),
        }
    }
}

/// Evaluates the clusters that the owner tags of a queue name. If two clusters create the queue at the same moment it
/// has two tags; the smaller UID wins, so that both clusters agree.
fn evaluate_clusters<'a>(
    tagged: impl Iterator<Item = &'a str> + Clone,
    cluster: &str,
    adopts: Option<&str>,
) -> Ownership {
    let is_ours = tagged.clone().any(|tagged| tagged == cluster);
    let other = tagged
        .filter(|tagged| *tagged != cluster && Some(*tagged) != adopts)
        .min();
    match other {
        Some(other) if !is_ours || other < cluster => Ownership::OtherCluster(other.to_owned()),
        _ if is_ours => Ownership::Ours,
        _ => Ownership::Available,
    }
}

/// Evaluates the tag of a queue that can have only one; `adopts` is the cluster from which the actor adopts
/// queues.
#[must_use]
pub fn evaluate(tagged: Option<&str>, cluster: &str, adopts: Option<&str>) -> Ownership {
    evaluate_clusters(tagged.into_iter(), cluster, adopts)
}

impl OwnerTag {
    /// Evaluates the tags of a queue that can have several, for the actor of this tag; `adopts` is the cluster from
    /// which it adopts the queue of the same namespace and name, and no other one (QUE-33).
    #[must_use]
    pub fn evaluate(&self, tags: &[&OwnerTag], adopts: Option<&str>) -> ActorOwnership {
        let not_adopted = tags.iter().filter(|tag| !self.adopts(tag, adopts));
        let clusters = not_adopted.clone().map(|tag| &*tag.cluster);
        match evaluate_clusters(clusters, &self.cluster, None) {
            Ownership::OtherCluster(cluster) => {
                let owners = not_adopted.filter(|tag| tag.cluster == cluster);
                match owners.map(ToString::to_string).min() {
                    Some(owner) if Some(&*cluster) == adopts => ActorOwnership::OtherActor(owner),
                    _ => ActorOwnership::OtherCluster(cluster),
                }
            }
            Ownership::Available => ActorOwnership::Available,
            Ownership::Ours if !tags.contains(&self) => {
                let others = tags.iter().filter(|tag| tag.cluster == self.cluster);
                let other = others.map(ToString::to_string).min();
                other.map_or(ActorOwnership::Available, ActorOwnership::OtherActor)
            }
            // Stale tags of another actor or cluster must be removed first.
            Ownership::Ours if tags.iter().any(|tag| self.supersedes(tag, adopts)) => {
                ActorOwnership::Available
            }
            Ownership::Ours => ActorOwnership::Ours,
        }
    }

    /// Whether this tag supersedes `other`.
    #[must_use]
    pub fn supersedes(&self, other: &OwnerTag, adopts: Option<&str>) -> bool {
        other != self && (other.cluster == self.cluster || self.adopts(other, adopts))
    }

    /// Whether `tag` is that of the same actor in the cluster from which it adopts its queue.
    fn adopts(&self, tag: &OwnerTag, adopts: Option<&str>) -> bool {
        Some(&*tag.cluster) == adopts
            && (&tag.namespace, &tag.actor) == (&self.namespace, &self.actor)
    }

    /// Why the actor of this tag must not delete a queue with these tags; `None` if it may.
    #[must_use]
    pub fn deletion_refusal(&self, tags: &[&OwnerTag]) -> Option<DeletionRefusal> {
        let clusters = tags.iter().map(|tag| &*tag.cluster);
        match evaluate_clusters(clusters, &self.cluster, None) {
            Ownership::OtherCluster(cluster) => Some(DeletionRefusal::OtherCluster(cluster)),
            Ownership::Available => Some(DeletionRefusal::NoOwnerTag),
            Ownership::Ours if tags.contains(&self) => None,
            Ownership::Ours => {
                let other = tags.iter().find(|tag| tag.cluster == self.cluster)?;
                Some(DeletionRefusal::OtherOwner(other.to_string()))
            }
        }
    }
}

/// The actor, as `NAMESPACE/NAME`.
impl fmt::Display for OwnerTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.actor)
    }
}

/// The message for a queue that belongs to another actor of this cluster, which may be gone.
#[must_use]
pub fn other_actor_message(queue: &str, owner: &str, shown_by: &str) -> String {
    format!(
        "queue {queue} belongs to {owner} according to {shown_by}, with its messages, even if {owner} is deleted; \
         rename this actor. To free the name without losing messages, set spec.queue.deletionPolicy to Retain and delete \
         this actor, create the owner again, and delete it with spec.queue.deletionPolicy: Drain, so that it processes \
         them first"
    )
}

/// The message for a queue that belongs to another cluster.
#[must_use]
pub fn other_cluster_message(queue: &str, cluster: &str, shown_by: &str) -> String {
    format!(
        "queue {queue} belongs to another cluster, whose namespace kube-system has uid {cluster}, according to \
         {shown_by}; this operator neither changes nor deletes it. Rename this actor, or give the clusters different \
         queues.nameTemplate. If that cluster no longer uses the queue, adopt it with its messages: annotate this \
         actor with asya.sh/adopt-queue-from={cluster}"
    )
}

#[cfg(test)]
mod tests;
