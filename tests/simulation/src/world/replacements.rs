//! The operator replaces a pod only if the quota of its namespace would admit the replacement (ROLL-2, SAFE-7).

use std::collections::VecDeque;

use serde_json::Value;
use tokio::time::Instant;

use super::owners::kind::is_bindable;
use super::quotas::{Limited, limit};
use super::targets::without_sidecar;
use super::workloads::is_ready;
use super::{READ_VALID_FOR, World};
use crate::api_server::id::Id;
use crate::api_server::request::Verb;
use crate::api_server::resources;
use crate::api_server::store::{Objects, owners};
use crate::convergence::owners::workload;
use crate::process::Process;

/// The annotation with which the operator rolls pods.
const ROLL: &str = "asya.sh/roll";

impl Limited {
    /// What the sidecar and the runtime of a binding request.
    #[must_use]
    pub fn of_sidecar(self) -> i64 {
        match self {
            Self::Pods => 0,
            Self::Cpu => 20,
            Self::Memory => 64,
        }
    }
}

/// The pod template of an object that creates pods.
#[must_use]
pub fn template(workload: &Value) -> &Value {
    if workload["kind"] == "RayCluster" {
        &workload["spec"]["workerGroupSpecs"][0]["template"]
    } else {
        &workload["spec"]["template"]
    }
}

/// The actor that injects the sidecar into the pods of a workload.
fn binding<'a>(objects: &'a Objects, workload_of: &Value) -> Option<&'a Value> {
    let namespace = workload_of["metadata"]["namespace"].as_str()?;
    let actors = objects.all(&resources::ACTORS);
    let mut own = actors.filter(|(id, actor)| {
        let target = &actor["spec"]["workloadRef"];
        let bound = workload(objects, namespace, target);
        id.namespace == namespace
            && actor["metadata"]["deletionTimestamp"].is_null()
            && bound.is_some_and(|it| it["metadata"]["uid"] == workload_of["metadata"]["uid"])
    });
    own.next().map(|(_, actor)| &***actor)
}

/// Why the quota of the namespace would reject a pod of the workload with the sidecar once one of these pods is gone;
/// `None` if it would admit it.
fn refusal<'a>(
    objects: &Objects,
    workload: &Value,
    replaced: impl Iterator<Item = &'a Value>,
) -> Option<String> {
    let namespace = workload["metadata"]["namespace"].as_str()?;
    let (limited, hard) = limit(objects, namespace)?;
    let own = match limited.of_pod(&without_sidecar(template(workload))) {
        Ok(own) => own,
        Err(silent) => return Some(format!("containers {silent} request no {limited}")),
    };
    // Whether there is room for what its user adds to a replacement is not judged (SAFE-7).
    let mut same = replaced.filter(|pod| limited.of_pod(&without_sidecar(pod)) == Ok(own));
    let first = limited.of_pod(same.next()?).unwrap_or_default();
    let freed = same.map(|pod| limited.of_pod(pod).unwrap_or_default());
    let freed = freed.fold(first, i64::max);
    let used = limited.used(objects, namespace);
    let needed = own + limited.of_sidecar();
    (used - freed + needed > hard).then(|| {
        format!("of {hard} {limited}, {used} are used, {freed} would be free, {needed} needed")
    })
}

impl World {
    /// Records the state that a dry run of a pod saw.
    pub fn note_dry_run(&self, process: &Process, verb: &Verb) {
        if !matches!(verb, Verb::Create(id, ..) if id.resource == &resources::PODS) {
            return;
        }
        let objects = self.server.lock().store.objects().clone();
        let mut dry_runs = self.dry_runs.lock();
        let of_process: &mut VecDeque<_> = dry_runs.entry(process.name.clone()).or_default();
        of_process.retain(|(at, _)| at.elapsed() < READ_VALID_FOR);
        of_process.push_back((Instant::now(), objects));
    }

    /// A violation if the quota would reject the replacement now, and would have at every recent dry run.
    fn check_replacement(
        &self,
        process: &Process,
        what: &str,
        refusal: impl Fn(&Objects) -> Option<String>,
    ) {
        let Some(now) = refusal(self.server.lock().store.objects()) else {
            return;
        };
        let dry_runs = self.dry_runs.lock();
        let of_process = dry_runs.get(&process.name).into_iter().flatten();
        let mut recent = of_process.filter(|(at, _)| at.elapsed() < READ_VALID_FOR);
        if recent.all(|(_, objects)| refusal(objects).is_some()) {
            let name = &process.name;
            self.violation(format!(
                "{name} {what} although the quota rejects the replacement: {now}"
            ));
        }
    }

    /// A ready pod is evicted only if its replacement would be admitted.
    pub fn check_eviction(&self, process: &Process, verb: &Verb) {
        let Verb::Evict(id, _) = verb else { return };
        self.check_replacement(process, &format!("evicts {id}"), |objects| {
            let pod = objects.get(id).filter(|pod| is_ready(pod))?;
            let uid = &owners(pod).next()?["uid"];
            let mut all = objects.everything().map(|(_, object)| object);
            let workload = all.find(|it| it["metadata"]["uid"] == *uid)?;
            binding(objects, workload)?;
            refusal(objects, workload, std::iter::once(&***pod))
        });
    }

    /// The annotation that rolls the pods of a target is only written if replacements would be admitted.
    pub fn check_rollout(&self, process: &Process, id: &Id, (before, after): (&Value, &Value)) {
        let values = |object: &Value| {
            let template = &object["spec"]["template"]["metadata"]["annotations"][ROLL];
            let predictor = &object["spec"]["predictor"]["annotations"][ROLL];
            let own = &object["metadata"]["annotations"][ROLL];
            [template.clone(), predictor.clone(), own.clone()]
        };
        let (old, new) = (values(before), values(after));
        if old == new || new.iter().all(Value::is_null) {
            return;
        }
        let target = serde_json::json!({"kind": id.resource.kind, "name": *id.name});
        self.check_replacement(process, &format!("rolls {id}"), |objects| {
            let workload = workload(objects, &id.namespace, &target)?;
            binding(objects, &workload)?;
            let uid = &workload["metadata"]["uid"];
            let pods = objects.all(&resources::PODS).map(|(_, pod)| pod);
            let own = pods
                .filter(|pod| is_bindable(pod) && owners(pod).any(|owner| owner["uid"] == *uid));
            let own: Vec<&Value> = own.map(|pod| &***pod).collect();
            // A rollout without pods costs nothing.
            (!own.is_empty()).then_some(())?;
            refusal(objects, &workload, own.into_iter())
        });
    }
}
