//! Which cluster, and which of its actors, a queue belongs to (QUE-32). Operators of several clusters may share a
//! broker; namespace and name of an actor are the same in staging and in production, the uid of `kube-system` is not.

use std::fmt;

/// Key of the mark: a tag at SQS, an argument of a binding at `RabbitMQ`. Its value is the uid of namespace
/// `kube-system`.
pub const CLUSTER: &str = "asya.sh/cluster";

/// Whose a queue is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Uid of namespace `kube-system` of the cluster.
    pub cluster: String,
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
}

/// What the marks of a queue say to one actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// It is the actor's.
    Here,
    /// It may become the actor's: it has no mark, or that of an actor before it, or of a cluster that gave it up.
    Free,
    /// It is another cluster's.
    Elsewhere(String),
}

/// Why a queue is not an actor's to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// Another cluster's operator made it or took it over.
    OfCluster(String),
    /// It is another actor's, or a dead letter queue.
    Of(String),
    /// Nothing at the broker says whose it is.
    Unmarked,
}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfCluster(cluster) => write!(f, "it belongs to another cluster ({cluster})"),
            Self::Of(owner) => write!(f, "it belongs to {owner}"),
            Self::Unmarked => f.write_str("nothing at the broker says that it is this actor's"),
        }
    }
}

/// Judges the clusters that a queue is marked for. With two marks, as after two clusters created the queue at the same
/// moment, the smaller id wins: both come to the same answer.
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

/// What the only mark that a queue can have says; `adopts` is the cluster that the actor takes queues over from.
#[must_use]
pub fn belongs(marked: Option<&str>, cluster: &str, adopts: Option<&str>) -> Belongs {
    of_clusters(marked.into_iter(), cluster, adopts)
}

impl Mark {
    /// What several marks of a queue say to the actor of this one; `adopts` is the cluster that it takes queues over
    /// from.
    #[must_use]
    pub fn among(&self, marks: &[&Mark], adopts: Option<&str>) -> Belongs {
        let clusters = marks.iter().map(|mark| &*mark.cluster);
        match of_clusters(clusters, &self.cluster, adopts) {
            // A mark that another actor or cluster has left must go first.
            Belongs::Here if !self.is_free_of_stale(marks, adopts) => Belongs::Free,
            belongs => belongs,
        }
    }

    /// Whether this is a mark that the actor of `self` replaces.
    #[must_use]
    pub fn replaces(&self, other: &Mark, adopts: Option<&str>) -> bool {
        other != self && (other.cluster == self.cluster || Some(&*other.cluster) == adopts)
    }

    /// Why a queue with these marks is not to be deleted by the actor of this one; `None` where it is.
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

/// What to do about a queue of another cluster.
#[must_use]
pub fn conflict(queue: &str, cluster: &str, shown_by: &str) -> String {
    format!(
        "queue {queue} belongs to another cluster, whose namespace kube-system has uid {cluster}, as {shown_by} says; it \
         is neither changed nor deleted from here. Rename this actor, or give the clusters different \
         queues.nameTemplate. If that cluster no longer uses the queue, take it over with its messages: annotate this \
         actor with asya.sh/adopt-queue-from={cluster}"
    )
}

#[cfg(test)]
mod tests;
