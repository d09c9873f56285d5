//! Availability of a target's pods: whether one of them may be evicted (SAFE-11).

use asya_shared::resolve::{Controller, ObjectRef, PodMatch};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    /// Pods that are not terminating.
    pub active: i32,
    /// Those that are not ready.
    pub unready: Vec<UnreadyPod>,
    pub has_terminating: bool,
    /// Replicas that the target's controllers should run, if they specify it.
    pub desired_replicas: Option<i32>,
    /// Where this was read; `None` if it was not.
    pub source: Option<AvailabilitySource>,
}

/// What the availability was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct AvailabilitySource {
    pub pods: PodMatch,
    /// The objects that specify the number of replicas.
    pub replicas: Vec<ObjectRef>,
    /// Time of the first request: the API server may have read what it returned that early.
    pub read_at: Instant,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnreadyPod {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub created: Option<Time>,
}

impl Availability {
    /// The availability of those `pods` that are `expected`.
    pub fn of(pods: &[Pod], expected: &PodMatch) -> Self {
        let mut availability = Self::default();
        for pod in pods.iter().filter(|pod| belongs_to(pod, expected)) {
            let metadata = &pod.metadata;
            if metadata.deletion_timestamp.is_some() {
                availability.has_terminating = true;
                continue;
            }
            availability.active = availability.active.saturating_add(1);
            if !is_ready(pod) {
                availability.unready.push(UnreadyPod {
                    name: metadata.name.as_deref().unwrap_or_default().into(),
                    uid: metadata.uid.as_deref().unwrap_or_default().into(),
                    created: metadata.creation_timestamp.clone(),
                });
            }
        }
        availability
    }

    /// Adds up the replicas of the target's controllers that specify them.
    pub fn total_replicas(specified: &[i32]) -> Option<i32> {
        (!specified.is_empty()).then(|| specified.iter().sum())
    }

    /// Whether `other` has the same pods in the same state.
    pub fn has_same_pods(&self, other: &Self) -> bool {
        (self.active, self.has_terminating) == (other.active, other.has_terminating)
            && self.unready == other.unready
    }
}

pub fn belongs_to(pod: &Pod, expected: &PodMatch) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| Controller {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
    });
    let label = |key: &str| labels?.get(key).map(String::as_str);
    expected.matches(label, owner.as_ref())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::{Availability, UnreadyPod};

    /// SAFE-11
    #[test]
    fn every_change_of_a_pod_counts_but_not_when_it_was_read() {
        let read = Availability {
            active: 2,
            desired_replicas: Some(2),
            ..Availability::default()
        };
        let again = Availability {
            desired_replicas: None,
            ..read.clone()
        };
        assert!(again.has_same_pods(&read));
        let fewer = Availability {
            active: 1,
            ..read.clone()
        };
        let unready = Availability {
            unready: vec![UnreadyPod::default()],
            ..read.clone()
        };
        let terminating = Availability {
            has_terminating: true,
            ..read.clone()
        };
        for changed in [fewer, unready, terminating] {
            assert!(!changed.has_same_pods(&read), "{changed:?}");
        }
    }
}
