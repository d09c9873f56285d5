//! Pod record, and how its fields classify a failure (STA-2).

use std::borrow::Cow;

use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation, label};
use asya_shared::resolve::PodMatch;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::condition::RawCondition;
use super::{Enqueue, Key, Labels, Metadata, PodOfTarget, RawMetadata, Record};

/// Pod with an actor label.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRecord {
    pub metadata: Metadata,
    /// Creation time, to the second.
    pub created: Option<Time>,
    /// End of the termination grace period (`deletionTimestamp`), if the pod is being deleted.
    pub deleted: Option<Time>,
    /// Actor named by the label.
    pub actor: Option<Box<str>>,
    /// Distinguishes pods of the current template from older ones.
    pub template_hash: Option<Box<str>>,
    /// Phase `Succeeded` or `Failed`: it never runs again.
    pub finished: bool,
    /// Condition `Ready`.
    pub ready: bool,
    /// Whether all volumes are mounted, which happens before any container starts.
    pub mounted: bool,
    /// Since when a running pod has not been ready.
    pub unready_since: Option<Time>,
    /// What keeps it from running, as far as its fields show.
    pub problem: Option<Problem>,
    /// For each class, the most recent container exit with an error, and its time.
    pub failed_exits: Box<[(Problem, Time)]>,
    /// What the webhook injected for a binding.
    pub injection: Option<Box<Injection>>,
    /// Set if neither the webhook nor a workload of ours explains the actor label.
    pub unmarked: Option<Box<Unmarked>>,
}

/// Pod with an actor label of unknown origin, such as a copied one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmarked {
    pub labels: Labels,
    /// Why the webhook did not inject it.
    pub not_injected: Option<Box<str>>,
}

/// Injection mark of a binding on a pod (BIND-22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub by: Box<str>,
    /// Hash of the injected content.
    pub hash: Option<Box<str>>,
    /// Whether both containers exist. The mark alone proves nothing: it survives a backup and restore (BIND-8).
    pub intact: bool,
    pub labels: Labels,
}

/// Reason why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub class: Class,
    /// The container at fault, if there is one.
    pub container: Option<Box<str>>,
    /// Reason given by the kubelet or the scheduler.
    pub reason: Box<str>,
}

/// Failure classes in order of precedence: the first one is reported (STA-2, STA-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A `ConfigMap` or Secret is missing or invalid.
    ConfigError,
    /// A volume cannot be mounted.
    VolumeError,
    /// An image cannot be pulled.
    ImagePullError,
    /// The runtime container, with the user's handler, fails.
    RuntimeError,
    /// The sidecar fails.
    SidecarError,
    /// Another container fails.
    WorkloadError,
    /// The pod cannot be scheduled.
    PendingResources,
}

/// Scheduler message fragments that mean an unbound `PersistentVolumeClaim`.
const UNBOUND: [&str; 3] = [
    "unbound immediate PersistentVolumeClaims",
    "persistentvolumeclaim \"",
    "find available persistent volumes to bind",
];

/// Decoded fields of a pod.
#[derive(Deserialize)]
pub struct RawPod<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(borrow, default)]
    spec: RawSpec<'a>,
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec<'a> {
    #[serde(borrow)]
    init_containers: Vec<RawName<'a>>,
    #[serde(borrow)]
    containers: Vec<RawName<'a>>,
}

#[derive(Deserialize)]
struct RawName<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    conditions: Vec<RawCondition<'a>>,
    #[serde(borrow)]
    init_container_statuses: Vec<RawContainer<'a>>,
    #[serde(borrow)]
    container_statuses: Vec<RawContainer<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    state: RawState<'a>,
    #[serde(borrow, default)]
    last_state: RawState<'a>,
}

#[derive(Deserialize, Default)]
struct RawState<'a> {
    #[serde(borrow)]
    waiting: Option<RawWaiting<'a>>,
    running: Option<IgnoredAny>,
    #[serde(borrow)]
    terminated: Option<RawTerminated<'a>>,
}

#[derive(Deserialize)]
struct RawWaiting<'a> {
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTerminated<'a> {
    #[serde(default)]
    exit_code: i32,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    finished_at: Option<Time>,
}

impl Record for PodRecord {
    type Kind = Pod;
    type Raw<'de> = RawPod<'de>;

    fn project(raw: RawPod<'_>) -> Self {
        let status = &raw.status;
        let ready = status.condition("Ready");
        let is_ready = ready.is_some_and(|condition| condition.status == "True");
        Self {
            metadata: raw.metadata.keep(),
            created: raw.metadata.creation_timestamp.clone(),
            deleted: raw.metadata.deletion_timestamp.clone(),
            actor: raw.metadata.label(label::ASYA).map(Into::into),
            template_hash: raw.metadata.annotation(annotation::TEMPLATE_HASH),
            finished: matches!(&*status.phase, "Succeeded" | "Failed"),
            ready: is_ready,
            mounted: is_ready || status.is_mounted(),
            unready_since: ready
                .filter(|_| !is_ready && status.phase == "Running")
                .and_then(|condition| condition.last_transition_time.clone()),
            problem: status.problem(),
            failed_exits: status.failed_exits(),
            injection: raw.injection(),
            unmarked: raw.unmarked(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn concerns(&self) -> Enqueue {
        match &self.actor {
            Some(actor) => Enqueue::Actor(Key::new(&self.metadata.key.namespace, actor)),
            None => Enqueue::Nobody,
        }
    }
}

impl PodRecord {
    /// Whether it can be a target's pod.
    pub fn may_be_bound(&self) -> bool {
        self.labels().is_some()
    }

    fn labels(&self) -> Option<&Labels> {
        let injected = self.injection.as_ref().map(|it| &it.labels);
        injected.or_else(|| self.unmarked.as_ref().map(|it| &it.labels))
    }
}

impl PodOfTarget for PodRecord {
    fn is_one_of(&self, pods: &PodMatch) -> bool {
        let labels = self.labels();
        labels.is_some_and(|it| it.match_with(&self.metadata, pods))
    }
}

impl RawPod<'_> {
    fn unmarked(&self) -> Option<Box<Unmarked>> {
        let metadata = &self.metadata;
        let known = metadata.annotation(annotation::INJECTED_BY).is_some()
            || metadata.label(label::WORKLOAD).is_some();
        (!known).then(|| {
            Box::new(Unmarked {
                labels: Labels::of(metadata),
                not_injected: metadata.annotation(annotation::NOT_INJECTED),
            })
        })
    }

    fn injection(&self) -> Option<Box<Injection>> {
        let by = self.metadata.annotation(annotation::INJECTED_BY)?;
        let spec = &self.spec;
        let has = |wanted: &str| {
            let mut all = spec.init_containers.iter().chain(&spec.containers);
            all.any(|container| container.name == wanted)
        };
        Some(Box::new(Injection {
            by,
            hash: self.metadata.annotation(annotation::INJECTED_HASH),
            intact: has(RUNTIME_CONTAINER) && has(SIDECAR_CONTAINER),
            labels: Labels::of(&self.metadata),
        }))
    }
}

impl<'a> RawStatus<'a> {
    fn condition(&self, kind: &str) -> Option<&RawCondition<'a>> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    fn containers(&self) -> impl Iterator<Item = &RawContainer<'a>> {
        self.init_container_statuses
            .iter()
            .chain(&self.container_statuses)
    }

    fn is_mounted(&self) -> bool {
        let sandbox = self.condition("PodReadyToStartContainers");
        sandbox.is_some_and(|condition| condition.status == "True")
            || self.containers().any(RawContainer::is_past_its_volumes)
    }

    fn problem(&self) -> Option<Problem> {
        let of_containers = self.containers().filter_map(RawContainer::problem);
        of_containers
            .chain(self.unscheduled())
            .min_by_key(|problem| problem.class)
    }

    /// A gated pod is held back on purpose, so it does not count as unschedulable.
    fn unscheduled(&self) -> Option<Problem> {
        let condition = self
            .condition("PodScheduled")
            .filter(|c| c.status == "False" && c.reason == "Unschedulable")?;
        // The scheduler sets no distinct reason for an unbound claim, so match on its message.
        let of_claim = UNBOUND.iter().any(|text| condition.message.contains(text));
        let class = if of_claim {
            Class::VolumeError
        } else {
            Class::PendingResources
        };
        Some(Problem {
            class,
            container: None,
            reason: condition.reason.as_ref().into(),
        })
    }

    /// Returns the latest error exit per class. All classes are kept because the first class wins only until its exit
    /// is too old (STA-2, STA-3).
    fn failed_exits(&self) -> Box<[(Problem, Time)]> {
        let mut last: Vec<(Problem, Time)> = Vec::new();
        for exit in self.containers().filter_map(RawContainer::failed_exit) {
            match last
                .iter_mut()
                .find(|(known, _)| known.class == exit.0.class)
            {
                Some(known) if known.1.0 < exit.1.0 => *known = exit,
                Some(_) => {}
                None => last.push(exit),
            }
        }
        last.into()
    }
}

impl RawContainer<'_> {
    fn is_past_its_volumes(&self) -> bool {
        let RawState {
            waiting,
            running,
            terminated,
        } = &self.state;
        let begins = |waiting: &RawWaiting<'_>| {
            matches!(
                &*waiting.reason,
                "" | "ContainerCreating" | "PodInitializing"
            )
        };
        running.is_some()
            || terminated.is_some()
            || waiting.as_ref().is_some_and(|waiting| !begins(waiting))
    }

    fn problem(&self) -> Option<Problem> {
        let reason = &self.state.waiting.as_ref()?.reason;
        let class = match &**reason {
            "CreateContainerConfigError" => Class::ConfigError,
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                Class::ImagePullError
            }
            "CrashLoopBackOff" | "CreateContainerError" | "RunContainerError" => self.failure(),
            _ => return None,
        };
        Some(Problem {
            class,
            container: Some(self.name.as_ref().into()),
            reason: reason.as_ref().into(),
        })
    }

    fn failed_exit(&self) -> Option<(Problem, Time)> {
        [&self.state, &self.last_state]
            .into_iter()
            .filter_map(|state| state.terminated.as_ref())
            .filter(|terminated| terminated.exit_code != 0)
            .find_map(|terminated| {
                let reason = terminated.reason.as_ref().into();
                let problem = Problem {
                    class: self.failure(),
                    container: Some(self.name.as_ref().into()),
                    reason,
                };
                Some((problem, terminated.finished_at.clone()?))
            })
    }

    fn failure(&self) -> Class {
        match &*self.name {
            RUNTIME_CONTAINER => Class::RuntimeError,
            SIDECAR_CONTAINER => Class::SidecarError,
            _ => Class::WorkloadError,
        }
    }
}
