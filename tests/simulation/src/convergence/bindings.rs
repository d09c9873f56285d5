//! What must hold for bindings once users and faults have stopped.

use std::sync::Arc;

use serde_json::Value;

use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources;
use crate::api_server::store::{Store, owners};
use crate::convergence::owners::{self, QueueScaling};
use crate::convergence::problem::Problem;
use crate::convergence::scaling::scaling_faults;
use crate::world::World;
use crate::world::owners::kind::is_bindable;
use crate::world::pods::queue_of;
use crate::world::targets::{has_ours, is_target, without_kept};
use crate::world::workloads::is_ready;

/// A binding, with the state in which to check it.
pub struct BindingExpectations<'a> {
    /// The API server's objects.
    pub store: &'a Store,
    /// The actor's resource, namespace and name.
    pub id: &'a Id,
    /// The actor.
    pub actor: &'a Value,
    /// Whether a pod review has failed, so that a rollout may halt.
    pub may_halt: bool,
}

impl BindingExpectations<'_> {
    /// Everything that differs from the spec.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        // The rollout halted (ROLL-5): pods came back without the sidecar, and only a spec change ends that.
        if self.may_halt && self.condition("Injected") == ("False", "RolloutHalted") {
            return Vec::new();
        }
        let status = &self.actor["status"];
        let generation = &self.actor["metadata"]["generation"];
        if status["observedGeneration"] != *generation {
            return vec![format!(
                "the status is not of generation {generation}: {status}"
            )];
        }
        match self.target() {
            // Its owner removes our fields, and the operator has yielded.
            Some(target) if owners::is_replaced(&target) && self.has_yielded() => Vec::new(),
            Some(target) => self.bound(&target).into_iter().collect(),
            None => self.unbound().into_iter().collect(),
        }
    }

    fn target(&self) -> Option<Arc<Object>> {
        let target = &self.actor["spec"]["workloadRef"];
        owners::workload(self.store.objects(), &self.id.namespace, target)
    }

    fn condition(&self, name: &str) -> (&str, &str) {
        let conditions = self.actor["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it["type"] == name);
        let text = |field: &str| found.and_then(|it| it[field].as_str()).unwrap_or_default();
        (text("status"), text("reason"))
    }

    fn scaled_object(&self) -> Option<Arc<Object>> {
        let id = Id::new(
            &resources::SCALED_OBJECTS,
            &self.id.namespace,
            &self.id.name,
        );
        self.store.get(&id)
    }

    fn has_yielded(&self) -> bool {
        let conflicts = self.actor["status"]["conflicts"].as_array();
        let mut conflicts = conflicts.into_iter().flatten();
        self.condition("Conflict") == ("True", "BindingConflict")
            && conflicts.any(|it| it["state"] == "Stopped" && it["losses"] == 5)
    }

    fn unbound(&self) -> Option<String> {
        let resolved = self.condition("TargetResolved");
        let target = &self.actor["spec"]["workloadRef"];
        if owners::is_stopped(self.store, &self.id.namespace, target) {
            let word = &self.actor["status"]["status"];
            let is_reported = resolved == ("False", "TargetStopped") && word == "Napping";
            return (!is_reported || self.scaled_object().is_some()).then(|| {
                format!("its user has stopped the target; {resolved:?}, STATUS is {word}")
            });
        }
        if resolved != ("False", "TargetNotFound") {
            return Some(format!(
                "there is no target, and TargetResolved is {resolved:?}"
            ));
        }
        let word = &self.actor["status"]["status"];
        if word != "Creating" && word != "WorkloadError" {
            return Some(format!("there is no target, and STATUS is {word}"));
        }
        self.scaled_object()
            .map(|_| "there is no target, but a ScaledObject".to_owned())
    }

    fn bound(&self, target: &Value) -> Option<String> {
        let status = &self.actor["status"];
        if status["resolvedTarget"]["uid"] != target["metadata"]["uid"] {
            return Some(format!("another target: {}", status["resolvedTarget"]));
        }
        let uid = &target["metadata"]["uid"];
        let pods = self.store.all(&resources::PODS).map(|(_, pod)| pod);
        let own = pods.filter(|pod| {
            is_bindable(pod)
                && owners(pod).any(|owner| owner["uid"] == *uid)
                && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let own: Vec<_> = own.collect();
        let injected = own.iter().filter(|pod| self.is_injected(pod)).count();
        let current = own.iter().filter(|pod| self.is_current(pod)).count();
        let counts = &status["pods"];
        let is_count =
            |field: &str, count: usize| counts[field].as_u64().unwrap_or_default() == count as u64;
        if !is_count("matched", own.len()) || !is_count("injected", injected) {
            let matched = own.len();
            return Some(format!(
                "{injected} of {matched} pods have the sidecar; status: {counts}"
            ));
        }
        let is_rolled = self.actor["spec"]["binding"]["rollout"] != "OnRestart";
        if is_rolled && current < own.len() {
            let (matched, conditions) = (own.len(), &status["conditions"]);
            return Some(format!(
                "{current} of {matched} pods are current: {conditions}"
            ));
        }
        let class = owners::class_of_user(self.store, target);
        if let Some(unmet) = self.scaling(class.as_deref(), own.is_empty(), current) {
            return Some(unmet);
        }
        if let Some(unmet) = owners::too_few(self.store, target, self.queue_scaling()) {
            return Some(unmet);
        }
        let ready = own.iter().filter(|pod| is_ready(pod)).count();
        let word = status["status"].as_str().unwrap_or_default();
        let is_faulty = !scaling_faults(self.store, self.actor).is_empty();
        let is_true = match word {
            "ScalingError" => is_faulty,
            "Running" => ready == own.len(),
            "Napping" => own.is_empty(),
            _ => false,
        };
        let is_ready = (self.condition("Ready").0 == "True") != is_faulty;
        let may_wait = !is_rolled && injected < own.len();
        let is_refused = class.is_some() && self.actor["spec"]["scaling"]["enabled"] == true;
        if is_refused {
            return (word != "ScalingError").then(|| format!("STATUS is {word}"));
        }
        if !may_wait && (!is_true || !is_ready) {
            let conditions = &status["conditions"];
            return Some(format!(
                "STATUS is {word} with {ready} ready pods: {conditions}"
            ));
        }
        None
    }

    fn scaling(&self, class: Option<&str>, at_zero: bool, current: usize) -> Option<String> {
        let scales = self.actor["spec"]["scaling"]["enabled"] == true;
        let faults = scaling_faults(self.store, self.actor);
        match (scales, self.scaled_object()) {
            (true, None) if class.is_some() => {
                let condition = self.condition("ScalingReady");
                (condition != ("False", "ScalingNotSupported"))
                    .then(|| format!("its user lets {class:?} scale: {condition:?}"))
            }
            (true, Some(_)) if class.is_some() => {
                Some(format!("its user lets {class:?} scale, and the queue does"))
            }
            (true, None) if !faults.is_empty() => {
                let (status, reason) = self.condition("ScalingReady");
                let is_reported = status == "False" && faults.contains(&reason);
                (!is_reported).then(|| format!("{faults:?}, and ScalingReady is {status}/{reason}"))
            }
            (false, Some(_)) => Some("a ScaledObject is left".to_owned()),
            // Scaling waits until a pod has the sidecar (SAFE-20).
            (true, None) if at_zero || current > 0 => {
                let condition = self.condition("ScalingReady");
                Some(format!("no ScaledObject: {condition:?}"))
            }
            _ => None,
        }
    }

    fn queue_scaling(&self) -> QueueScaling {
        if self.scaled_object().is_some() {
            QueueScaling::Active
        } else if scaling_faults(self.store, self.actor).contains(&"KedaNotInstalled") {
            QueueScaling::WithoutKeda
        } else {
            QueueScaling::Inactive
        }
    }

    fn is_injected(&self, pod: &Value) -> bool {
        let metadata = &pod["metadata"];
        let by = &metadata["annotations"]["asya.sh/injected-by"];
        *by == self.actor["metadata"]["uid"] && container(pod, "asya-sidecar").is_some()
    }

    /// Whether the pod matches the current spec.
    #[must_use]
    pub fn is_current(&self, pod: &Value) -> bool {
        let variable = |container: &Value, name: &str| {
            let mut all = container["env"].as_array().into_iter().flatten();
            all.find(|it| it["name"] == name)
                .map(|it| it["value"].clone())
        };
        let spec = &self.actor["spec"];
        let version = &spec["runtime"]["env"][0]["value"];
        let runtime = container(pod, "asya-runtime");
        let has_version =
            runtime.is_some_and(|it| variable(it, "VERSION").as_ref() == Some(version));
        let has_transport = queue_of(pod).is_some_and(|(host, _)| spec["transport"] == *host);
        self.is_injected(pod) && has_version && has_transport
    }
}

fn container<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = pod["spec"]["containers"].as_array()?.iter();
    all.find(|it| it["name"] == name)
}

/// Targets, and their pods, that differ from their users' intent although no actor is left. Sidecars that an actor may
/// leave in its pods stay, with the annotation that rolled them.
#[must_use]
pub fn left_in_targets(world: &World, store: &Store) -> Vec<Problem> {
    let mut left = Vec::new();
    for (id, target) in store.everything().filter(|(_, object)| is_target(object)) {
        let keeps_sidecars = world.keeps_sidecars(id);
        let is_ours = if keeps_sidecars {
            has_ours(&without_kept(&target["metadata"]["annotations"]))
        } else {
            has_ours(target)
        };
        if is_ours {
            left.push(Problem::of(format!("{id} has something of ours"), target));
        }
        let uid = &target["metadata"]["uid"];
        let own = store
            .all(&resources::PODS)
            .filter(|(_, pod)| owners(pod).any(|owner| owner["uid"] == *uid));
        let injected =
            own.filter(|(_, pod)| !keeps_sidecars && container(pod, "asya-sidecar").is_some());
        left.extend(injected.map(|(id, _)| format!("{id} still has the sidecar").into()));
        if !keeps_sidecars {
            // Nothing scales a target up again that the queue scaled to 0 (SO-6).
            let too_few = owners::too_few(store, target, QueueScaling::Inactive);
            left.extend(too_few.map(|why| format!("{id}: {why}").into()));
        }
    }
    left
}
