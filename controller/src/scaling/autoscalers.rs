//! All autoscalers in an actor's namespace: KEDA's for the actor, and foreign ones.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::record::{HpaRecord, ScaleTarget, ScaledObjectRecord};

/// How long to wait for KEDA to remove its finalizer from a `ScaledObject` (FIN-2).
const KEDA_LETS_GO: Duration = Duration::from_secs(30);

/// All autoscalers in an actor's namespace, as seen by the actor.
pub struct Autoscalers<'a> {
    /// Name of the actor and of its `ScaledObject`.
    pub actor: &'a str,
    /// Uid of the actor's `ScaledObject`.
    pub scaled_object: Option<&'a str>,
    pub hpas: &'a [Arc<HpaRecord>],
    pub scaled_objects: &'a [Arc<ScaledObjectRecord>],
}

impl Autoscalers<'_> {
    /// Kind and name of a foreign autoscaler that scales `target`.
    pub fn rival_on(&self, target: &ScaleTarget) -> Option<String> {
        let is_ours = |uid: &str| self.scaled_object == Some(uid);
        let scaled_objects = self
            .scaled_objects
            .iter()
            .filter(|found| found.target == *target && !is_ours(&found.metadata.uid));
        let hpas = self
            .hpas
            .iter()
            .filter(|hpa| hpa.target == *target && !is_of_name(hpa, self.actor));
        // Name the `ScaledObject` first: its HPA is deleted with it.
        scaled_objects
            .map(|found| format!("ScaledObject {}", found.metadata.key.name))
            .min()
            .or_else(|| {
                hpas.map(|hpa| format!("HorizontalPodAutoscaler {}", hpa.metadata.key.name))
                    .min()
            })
    }
}

/// Whether KEDA created this HPA for a `ScaledObject` of this name: the current one, or an earlier one, with which the
/// HPA will be deleted.
pub fn is_of_name(hpa: &HpaRecord, actor: &str) -> bool {
    let owner = hpa.metadata.controller.as_ref();
    owner.is_some_and(|owner| &*owner.kind == "ScaledObject" && &*owner.name == actor)
}

/// Whether KEDA has failed to remove its finalizer from a deleted `ScaledObject` in time.
pub fn is_overdue(found: &ScaledObjectRecord, now: Timestamp) -> bool {
    lets_go_by(found).is_some_and(|ends| ends <= now)
}

/// Deadline for KEDA to remove its finalizer; `None` while the `ScaledObject` is not being deleted.
pub fn lets_go_by(found: &ScaledObjectRecord) -> Option<Timestamp> {
    let began = found.deleted.as_ref()?.0;
    Some(began.checked_add(KEDA_LETS_GO).unwrap_or(Timestamp::MAX))
}
