//! Ownership marks: the cluster, and the actor in it, that a queue belongs to (QUE-32). Operators of several clusters
//! may share a broker, and an actor may have the same namespace and name in staging and in production; only the UID of
//! `kube-system` differs.

use std::fmt;

/// Key of the mark: a tag on SQS, an argument of a binding on `RabbitMQ`. Its value is the UID of namespace
/// `kube-system`.
pub const CLUSTER: &str = "asya.sh/cluster";

/// The owner of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// UID of the cluster's namespace `kube-system`.
    pub cluster: String,
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
}

/// What a queue's marks mean to one actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// The queue is the actor's.
    Here,
    /// The actor may take the queue: it is unmarked, or marked for a former actor or for a cluster that gave it up.
    Free,
    /// The queue belongs to this other cluster.
    Elsewhere(String),
}

/// Why an actor must not delete a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// The operator of another cluster has created the queue or taken it over.
    OfCluster(String),
    /// The queue is another actor's, or a dead letter queue.
    Of(String),
    /// Nothing at the broker identifies the owner.
    Unmarked,
}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfCluster(cluster) => write!(f, "it belongs to another cluster ({cluster})"),
            Self::Of(owner) => write!(f, "it belongs to {owner}"),
            Self::Unmarked => f.write_str("nothing at the broker marks it as this actor's"),
        }
    }
}

/// Evaluates the clusters that a queue is marked for. If two clusters create the queue at the same moment it has two
/// marks; the smaller UID wins, so that both clusters agree.
fn of_clusters<'a>(
    marked: impl Iterator<Item = &'a str> + Clone,
    cluster: &str,
    adopts: Option<&str>,
) -> Belongs {
    let is_ours = marked.clone().any(|marked| marked == cluster);
    let other = marked
        .filter(|marked| *marked != cluster && Some(*marked) != adopts)
        .min();
    match other {
        Some(other) if !is_ours || other < cluster => Belongs::Elsewhere(other.to_owned()),
        _ if is_ours => Belongs::Here,
        _ => Belongs::Free,
    }
}

/// Evaluates the mark of a queue that can have only one; `adopts` is the cluster from which the actor takes over
/// queues.
#[must_use]
pub fn belongs(marked: Option<&str>, cluster: &str, adopts: Option<&str>) -> Belongs {
    of_clusters(marked.into_iter(), cluster, adopts)
}

impl Mark {
    /// Evaluates the marks of a queue that can have several, for the actor of this mark; `adopts` is the cluster from
    /// which it takes over queues.
    #[must_use]
    pub fn among(&self, marks: &[&Mark], adopts: Option<&str>) -> Belongs {
        let clusters = marks.iter().map(|mark| &*mark.cluster);
        match of_clusters(clusters, &self.cluster, adopts) {
            // Stale marks of another actor or cluster must be removed first.
            Belongs::Here if !self.is_free_of_stale(marks, adopts) => Belongs::Free,
            belongs => belongs,
        }
    }

    /// Whether this mark supersedes `other`.
    #[must_use]
    pub fn replaces(&self, other: &Mark, adopts: Option<&str>) -> bool {
        other != self && (other.cluster == self.cluster || Some(&*other.cluster) == adopts)
    }

    /// Why the actor of this mark must not delete a queue with these marks; `None` if it may.
    #[must_use]
    pub fn withholds(&self, marks: &[&Mark]) -> Option<NotOurs> {
        let clusters = marks.iter().map(|mark| &*mark.cluster);
        match of_clusters(clusters, &self.cluster, None) {
            Belongs::Elsewhere(cluster) => Some(NotOurs::OfCluster(cluster)),
            Belongs::Free => Some(NotOurs::Unmarked),
            Belongs::Here if marks.contains(&self) => None,
            Belongs::Here => {
                let other = marks.iter().find(|mark| mark.cluster == self.cluster)?;
                Some(NotOurs::Of(format!("{}/{}", other.namespace, other.actor)))
            }
        }
    }

    fn is_free_of_stale(&self, marks: &[&Mark], adopts: Option<&str>) -> bool {
        marks.contains(&self) && !marks.iter().any(|mark| self.replaces(mark, adopts))
    }
}

/// The message for a queue that belongs to another cluster.
#[must_use]
pub fn conflict(queue: &str, cluster: &str, shown_by: &str) -> String {
    format!(
        "queue {queue} belongs to another cluster, whose namespace kube-system has uid {cluster}, according to \
         {shown_by}; this operator neither changes nor deletes it. Rename this actor, or give the clusters different \
         queues.nameTemplate. If that cluster no longer uses the queue, take it over with its messages: annotate this \
         actor with asya.sh/adopt-queue-from={cluster}"
    )
}

#[cfg(test)]
mod tests;
