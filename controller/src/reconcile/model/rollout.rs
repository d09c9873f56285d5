//! The observed state of a rollout of a target's pods, and what an actor being deleted still has in them.

use asya_shared::api::RolloutStatus;
use asya_shared::names::{annotation, manager};
use asya_shared::resolve::{ObjectRef, RolloutMethod, Target, is_handed_off, template};
use asya_shared::roll::{UpdateStrategy, requests_gpus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::availability::Availability;
use super::target_pods::{PodToReplace, SidecarState, TargetPodCounts};
use crate::binding::rollout_slots::RefusedEviction;

/// Path of the annotations in a workload's pod template.
pub const TEMPLATE_ANNOTATIONS: [&str; 4] = ["spec", "template", "metadata", "annotations"];

/// Written in place of the actor's hash where removing the annotation would not trigger a rollout. A rollout with this
/// value restores the pods' former state; any other one gave them the sidecar.
pub const UNBIND_MARKER: &str = "unbound";

/// The state that a rollout decision needs.
#[derive(Clone, Debug, Default)]
pub struct ObservedRollout {
    pub pod_counts: TargetPodCounts,
    /// The objects that carry our roll annotation, and the workloads that this rolls.
    pub objects: Vec<TargetObject>,
    /// Hash of the specs of all workloads of the target, to detect that one changed (ROLL-5).
    pub workload_specs_hash: String,
    /// Name of a `PodDisruptionBudget` that allows no disruption now.
    pub blocking_pdb: Option<String>,
    /// Whether this target has, or can get, a rollout slot.
    pub has_slot: bool,
    /// The last eviction was refused, and is not to be requested again yet.
    pub refused_eviction: Option<RefusedEviction>,
    /// Availability of the target's pods.
    pub availability: Availability,
    /// A pod of the target to dry-run; `None` if none can be constructed.
    pub probe_pod: Option<Value>,
}

/// An object that we annotate, or the workload that this rolls.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent properties of the object"
)]
pub struct TargetObject {
    pub object: ObjectRef,
    /// Value of our roll annotation, if this object carries it.
    pub roll_value: Option<String>,
    /// Our containers are in its pod template (BIND-50). Set only for an actor being deleted.
    pub in_template: bool,
    /// The sidecar that its pod template contains, whoever put it there.
    pub template_sidecar: Option<TemplateSidecar>,
    /// It carries our autoscaler handoff annotation (SO-5).
    pub handed_off: bool,
    /// It carries our annotation with the name of the binding actor (BIND-47).
    pub has_actor_annotation: bool,
    /// Its controller is rolling out pods.
    pub rolling: bool,
    /// Desired replicas, if it specifies them.
    pub desired_replicas: Option<i32>,
    pub ready: i32,
    /// Its controller deletes a pod before it creates the replacement, even while other pods are not ready.
    pub deletes_pod_first: bool,
    /// `spec.paused` is set: its controller replaces no pods.
    pub paused: bool,
    /// A rollout may reduce the number of ready pods.
    pub reduces_ready: bool,
    /// A rollout stops all of its pods before it starts a replacement.
    pub recreates: bool,
    /// Its pods are replaced by eviction, because its own rollout would replace none or all at once (ROLL-6).
    pub needs_eviction: bool,
    pub requests_gpus: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateSidecar {
    /// UID of its actor.
    pub actor: Box<str>,
    /// We own fields of the template, so giving them up may remove it.
    pub is_ours: bool,
}

impl TemplateSidecar {
    fn of(body: &Value) -> Option<Self> {
        let annotations = template(body)?.pointer("/metadata/annotations")?;
        let actor = annotations.get(annotation::INJECTED_BY)?.as_str()?;
        Some(Self {
            actor: actor.into(),
            is_ours: is_written_by(body, manager::TEMPLATE),
        })
    }
}

impl TargetObject {
    /// Reads an object; `annotated` is the path of the annotations that contain ours.
    pub fn from_body(object: &ObjectRef, body: &Value, annotated: Option<&[&str]>) -> Self {
        let number = |path: &str| body.pointer(path).and_then(Value::as_i64);
        let roll_value = annotated.and_then(|path| {
            let mut node = body;
            for key in path {
                node = node.get(key)?;
            }
            node.get(annotation::ROLL)?.as_str().map(str::to_owned)
        });
        let strategy = UpdateStrategy::of(object, body);
        Self {
            object: object.clone(),
            roll_value,
            template_sidecar: TemplateSidecar::of(body),
            requests_gpus: template(body).is_some_and(requests_gpus),
            handed_off: is_handed_off(body),
            has_actor_annotation: is_written_by(body, manager::BINDING),
            ready: number("/status/readyReplicas")
                .and_then(|number| number.try_into().ok())
                .unwrap_or(0),
            rolling: strategy.rolling,
            desired_replicas: desired_replicas(object, body),
            deletes_pod_first: strategy.deletes_pod_first,
            paused: strategy.paused,
            reduces_ready: strategy.reduces_ready,
            recreates: strategy.recreates,
            needs_eviction: strategy.needs_eviction,
            ..Self::default()
        }
    }

    /// Whether it carries an annotation whose removal replaces its pods.
    pub fn has_annotation(&self) -> bool {
        self.roll_value.is_some() || self.handed_off
    }

    /// Whether a rollout by its controller may replace a ready pod while others are not ready (SAFE-13).
    pub fn may_lose_ready_pod(&self) -> bool {
        let is_incomplete = self
            .desired_replicas
            .is_some_and(|desired| self.ready < desired);
        self.deletes_pod_first && !self.needs_eviction && is_incomplete && self.ready > 0
    }

    /// Whether a rollout by its controller would leave the target without a pod, although it has several (SAFE-14).
    pub fn would_stop_all_pods(&self) -> bool {
        self.recreates && self.desired_replicas.is_some_and(|desired| desired > 1)
    }

    /// The sidecar of the actor with this UID in its pod template, whoever put it there.
    pub fn sidecar_of(&self, actor: &str) -> Option<&TemplateSidecar> {
        let sidecar = self.template_sidecar.as_ref();
        sidecar.filter(|it| *it.actor == *actor)
    }

    /// Whether what we wrote for the actor with this UID is in its pod template.
    pub fn has_template_fields_of(&self, actor: &str) -> bool {
        self.in_template || self.sidecar_of(actor).is_some_and(|it| it.is_ours)
    }

    /// Ignores the annotations, which are those of the older actor that binds this target: only our fields of the pod
    /// template are ours to give up (BIND-45).
    pub fn keep_template_fields_only(&mut self) {
        self.roll_value = None;
        self.handed_off = false;
        self.has_actor_annotation = false;
        self.paused &= self.in_template;
    }
}

/// Whether the field manager `manager` owns fields of an object.
fn is_written_by(body: &Value, manager: &str) -> bool {
    let entries = body.pointer("/metadata/managedFields");
    let mut entries = entries.and_then(Value::as_array).into_iter().flatten();
    entries.any(|entry| entry["manager"] == manager)
}

/// Number of pods that an object should have, if it specifies it.
pub fn desired_replicas(object: &ObjectRef, body: &Value) -> Option<i32> {
    let kind = object.group_kind();
    match (kind.group, kind.kind) {
        ("ray.io", "RayCluster") => ray_workers(body),
        _ => UpdateStrategy::of(object, body).desired_replicas,
    }
}

/// Number of workers that a `RayCluster` should have.
fn ray_workers(cluster: &Value) -> Option<i32> {
    let workers = cluster.pointer("/status/desiredWorkerReplicas")?.as_i64()?;
    workers.try_into().ok()
}

/// The state that is left to clean up when the actor of a binding is deleted.
#[derive(Clone, Debug, Default)]
pub struct ObservedUnbinding {
    /// Cleanup is not needed: the user opted out, or the namespace is being deleted.
    pub skip: bool,
    /// Pods with the actor's sidecar that are not terminating.
    pub pods: Vec<PodToReplace>,
    /// Name of such a pod that has no controller to replace it.
    pub unmanaged_pod: Option<Box<str>>,
    /// Whether such a pod is terminating.
    pub has_terminating: bool,
    pub scaled_to_zero: bool,
    /// Availability of the target's pods; `None` if nothing that we do replaces them, or the target does not exist.
    pub availability: Option<Availability>,
    /// The target, unless it does not exist or cannot be resolved.
    pub target: Option<Box<Target>>,
    /// How the target's pods are replaced.
    pub roll: Option<RolloutMethod>,
    /// The object that the queue scaled, if it could.
    pub scaled: Option<ObjectRef>,
    /// The objects that carry our roll annotation, and the workloads that this rolls.
    pub objects: Vec<TargetObject>,
    /// Objects that still carry our annotation, but are not known to belong to the target any more.
    pub stale_objects: Vec<ObjectRef>,
    pub unresolved: Option<Unresolved>,
    pub limits: UnbindLimits,
}

impl ObservedUnbinding {
    /// Whether the target has pods, with the sidecar or without.
    pub fn has_target_pods(&self) -> bool {
        has_target_pods(&self.pods, self.availability.as_ref())
    }
}

/// Whether a target has pods: injected ones, or any that its availability counts.
pub fn has_target_pods(injected: &[PodToReplace], availability: Option<&Availability>) -> bool {
    !injected.is_empty() || availability.is_some_and(|it| it.active > 0)
}

/// Limits on how many pods unbinding replaces, besides the target's own availability.
#[derive(Clone, Debug, Default)]
pub struct UnbindLimits {
    /// Name of a `PodDisruptionBudget` of the target's pods that allows no disruption now.
    pub blocking_pdb: Option<String>,
    /// Whether this target has, or can get, a rollout slot.
    pub has_slot: bool,
    /// The last eviction was refused, and is not to be requested again yet.
    pub refused_eviction: Option<RefusedEviction>,
}

/// Why a target's pods cannot be determined.
#[derive(Clone, Debug, PartialEq)]
pub enum Unresolved {
    Target(String),
    /// Its kind may not be read, so what we wrote there cannot be found either; the text has the missing rule.
    Forbidden(String),
}

impl Unresolved {
    pub fn text(&self) -> &str {
        match self {
            Self::Target(text) | Self::Forbidden(text) => text,
        }
    }
}

/// When the newest of these pods was created, by the API server's clock.
pub fn newest(pods: &[PodToReplace]) -> Option<Time> {
    pods.iter().filter_map(|pod| pod.created.clone()).max()
}

/// Whether a pod was created after the last request to replace pods.
pub fn is_replacement(pod: &PodToReplace, previous: &RolloutStatus) -> bool {
    let Some(created) = pod.created.as_ref().map(|it| it.0) else {
        return false;
    };
    if let Some(newest) = &previous.newest_pod {
        // Compare only times of the API server: `since` is not one, and clocks differ.
        return created > newest.0;
    }
    // An earlier release requested it. Creation timestamps have a resolution of one second: of pods created in the same
    // second as the request, count only those that the webhook has injected.
    let was_injected = pod.sidecar == SidecarState::RemovedByOther;
    let since = previous.since.as_ref().map(|it| it.0);
    since.is_some_and(|since| {
        created > since || (was_injected && created.as_second() == since.as_second())
    })
}

/// The number of consecutive replacements, up to the newest, that started without the sidecar since the last request.
/// Those that have been evicted since are counted in `previous.uninjected_replacements` (ROLL-5).
pub fn consecutive_uninjected(outdated: &[PodToReplace], previous: &RolloutStatus) -> i32 {
    let replacements = outdated.iter().filter(|pod| is_replacement(pod, previous));
    let mut replacements: Vec<_> = replacements.collect();
    replacements.sort_by_key(|pod| pod.created.as_ref().map(|it| it.0));
    let uninjected = replacements.iter().rev();
    let uninjected = uninjected.take_while(|pod| pod.sidecar != SidecarState::Outdated);
    let (withheld, others) = uninjected.fold((0, 0), |(withheld, others), pod| match pod.sidecar {
        SidecarState::NotInjectedYet => (1, others),
        _ => (withheld, others + 1),
    });
    // Count withheld sidecars once: a single webhook replica that is behind may have reviewed all of these pods.
    let uninjected: usize = withheld + others;
    match i32::try_from(uninjected).unwrap_or(i32::MAX) {
        0 => 0,
        uninjected => uninjected.saturating_add(previous.uninjected_replacements),
    }
}
