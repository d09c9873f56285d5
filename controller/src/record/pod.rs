//! Pod record, with its failures classified (STA-2).

use std::borrow::Cow;

use asya_shared::api::WorkloadKind;
use asya_shared::inject::selector;
use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation, label};
use asya_shared::resolve::PodMatch;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::condition::RawCondition;
use super::{Enqueue, Key, Labels, Metadata, RawMetadata, Record, TargetPod};

/// Field selector of pods that have not terminated: only those mount volumes, receive messages or become ready.
pub const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

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
    /// Phase `Succeeded` or `Failed`: the pod never runs again.
    pub finished: bool,
    /// Condition `Ready`.
    pub ready: bool,
    /// Whether all volumes are mounted, which happens before any container starts.
    pub mounted: bool,
    /// Since when a running pod has not been ready.
    pub unready_since: Option<Time>,
    /// Why the pod does not run, according to its own fields.
    pub problem: Option<Problem>,
    /// For each class, the most recent container exit with an error, and its time.
    pub failed_exits: Box<[(Problem, Time)]>,
    /// Set if the webhook injected the pod for a binding.
    pub injection: Option<Box<Injection>>,
    /// Kind of our workload that selects the pod, if it has no controller: it was left by a workload that was deleted
    /// without its pods.
    pub unmanaged_of: Option<WorkloadKind>,
    /// Set if the actor label comes neither from the webhook nor from one of our workloads.
    pub copied_label: Option<Box<CopiedLabel>>,
}

/// The relevant fields of a pod whose actor label is not ours, such as one that was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedLabel {
    pub labels: Labels,
    /// Why the webhook did not inject the pod.
    pub not_injected: Option<Box<str>>,
}

/// Annotations of the webhook on a pod that it injected for a binding (BIND-22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub by: Box<str>,
    /// Hash of the injected content.
    pub hash: Option<Box<str>>,
    /// Whether both containers exist. The annotations alone prove nothing: they survive a backup and restore (BIND-8).
    pub intact: bool,
    pub labels: Labels,
}

/// Reason why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub class: ProblemClass,
    /// The failing container, if there is one.
    pub container: Option<Box<str>>,
    /// Reason given by the kubelet or the scheduler.
    pub reason: Box<str>,
}

/// Failure classes, highest precedence first: the first is reported (STA-2, STA-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemClass {
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

impl ProblemClass {
    pub const ALL: [Self; 7] = [
        Self::ConfigError,
        Self::VolumeError,
        Self::ImagePullError,
        Self::RuntimeError,
        Self::SidecarError,
        Self::WorkloadError,
        Self::PendingResources,
    ];
}

/// Scheduler message fragments that mean an unbound `PersistentVolumeClaim`.
const UNBOUND_PVC_MESSAGES: [&str; 3] = [
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
            metadata: raw.metadata.to_metadata(),
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
            unmanaged_of: raw.unmanaged_of(),
            copied_label: raw.copied_label(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        match &self.actor {
            Some(actor) => Enqueue::Actor(Key::new(&self.metadata.key.namespace, actor)),
            None => Enqueue::Nothing,
        }
    }
}

impl PodRecord {
    /// Whether this may be a pod of a target.
    pub fn may_be_bound(&self) -> bool {
        self.labels().is_some()
    }

    fn labels(&self) -> Option<&Labels> {
        let injected = self.injection.as_ref().map(|it| &it.labels);
        injected.or_else(|| self.copied_label.as_ref().map(|it| &it.labels))
    }
}

impl TargetPod for PodRecord {
    fn is_one_of(&self, pods: &PodMatch) -> bool {
        let labels = self.labels();
        labels.is_some_and(|labels| labels.match_target(&self.metadata, pods))
    }

    fn lookup_names(&self) -> Vec<&str> {
        let labels = self.labels();
        labels.map_or_else(Vec::new, |labels| labels.lookup_names(&self.metadata))
    }
}

impl RawPod<'_> {
    fn unmanaged_of(&self) -> Option<WorkloadKind> {
        let metadata = &self.metadata;
        if metadata.has_controller() || metadata.annotation(annotation::INJECTED_BY).is_some() {
            return None;
        }
        let actor = metadata.label(label::ASYA)?;
        let kinds = [WorkloadKind::Deployment, WorkloadKind::StatefulSet];
        kinds.into_iter().find(|kind| {
            let mut labels = selector(actor, *kind).into_iter();
            labels.all(|(name, value)| metadata.label(name) == Some(&*value))
        })
    }

    fn copied_label(&self) -> Option<Box<CopiedLabel>> {
        let metadata = &self.metadata;
        let is_known = metadata.annotation(annotation::INJECTED_BY).is_some()
            || metadata.label(label::WORKLOAD).is_some();
        (!is_known).then(|| {
            Box::new(CopiedLabel {
                labels: Labels::of(metadata),
                not_injected: metadata.annotation(annotation::NOT_INJECTED),
            })
        })
    }

    fn injection(&self) -> Option<Box<Injection>> {
        let by = self.metadata.annotation(annotation::INJECTED_BY)?;
        let spec = &self.spec;
        let has = |name: &str| {
            let mut all = spec.init_containers.iter().chain(&spec.containers);
            all.any(|container| container.name == name)
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
            || self.containers().any(RawContainer::has_mounted_volumes)
    }

    fn problem(&self) -> Option<Problem> {
        let of_containers = self.containers().filter_map(RawContainer::problem);
        of_containers
            .chain(self.unscheduled())
            .min_by_key(|problem| problem.class)
    }

    /// A pod with scheduling gates is held back on purpose, so it does not count as unschedulable.
    fn unscheduled(&self) -> Option<Problem> {
        let condition = self
            .condition("PodScheduled")
            .filter(|c| c.status == "False" && c.reason == "Unschedulable")?;
        // The scheduler sets no distinct reason for an unbound claim, so match on its message.
        let mut unbound_messages = UNBOUND_PVC_MESSAGES.iter();
        let is_unbound_volume_claim = unbound_messages.any(|text| condition.message.contains(text));
        let class = if is_unbound_volume_claim {
            ProblemClass::VolumeError
        } else {
            ProblemClass::PendingResources
        };
        Some(Problem {
            class,
            container: None,
            reason: condition.reason.as_ref().into(),
        })
    }

    /// The latest error exit per class. All classes are kept, because the highest is reported only while its exit is
    /// recent (STA-2, STA-3).
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
    fn has_mounted_volumes(&self) -> bool {
        let RawState {
            waiting,
            running,
            terminated,
        } = &self.state;
        let is_starting = |waiting: &RawWaiting<'_>| {
            matches!(
                &*waiting.reason,
                "" | "ContainerCreating" | "PodInitializing"
            )
        };
        running.is_some()
            || terminated.is_some()
            || waiting
                .as_ref()
                .is_some_and(|waiting| !is_starting(waiting))
    }

    fn problem(&self) -> Option<Problem> {
        let reason = &self.state.waiting.as_ref()?.reason;
        let class = match &**reason {
            "CreateContainerConfigError" => ProblemClass::ConfigError,
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                ProblemClass::ImagePullError
            }
            "CrashLoopBackOff" | "CreateContainerError" | "RunContainerError" => {
                self.failure_class()
            }
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
                    class: self.failure_class(),
                    container: Some(self.name.as_ref().into()),
                    reason,
                };
                Some((problem, terminated.finished_at.clone()?))
            })
    }

    fn failure_class(&self) -> ProblemClass {
        match &*self.name {
            RUNTIME_CONTAINER => ProblemClass::RuntimeError,
            SIDECAR_CONTAINER => ProblemClass::SidecarError,
            _ => ProblemClass::WorkloadError,
        }
    }
}
