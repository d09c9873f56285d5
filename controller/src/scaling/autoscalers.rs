//! All that scales something in an actor's namespace: KEDA for us, and others.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::record::{HpaRecord, ScaleTarget, ScaledObjectRecord};

/// KEDA gets this long to let go of a `ScaledObject` (FIN-2).
const KEDA_LETS_GO: Duration = Duration::from_secs(30);

/// All that scales something in an actor's namespace, as far as it concerns the actor.
pub struct Autoscalers<'a> {
    /// Name of the actor, which our `ScaledObject` has, too.
    pub actor: &'a str,
    /// The uid of our `ScaledObject`.
    pub scaled_object: Option<&'a str>,
    /// All HPAs.
    pub hpas: &'a [Arc<HpaRecord>],
    /// All `ScaledObject`s.
    pub scaled_objects: &'a [Arc<ScaledObjectRecord>],
}

impl Autoscalers<'_> {
    /// Kind and name of one that is not ours and scales `target`.
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
        // its HPA goes with it, so the ScaledObject is the one to name
        scaled_objects
            .map(|found| format!("ScaledObject {}", found.metadata.key.name))
            .min()
            .or_else(|| {
                hpas.map(|hpa| format!("HorizontalPodAutoscaler {}", hpa.metadata.key.name))
                    .min()
            })
    }
}

/// Whether KEDA made this HPA for a `ScaledObject` of this name: ours, or an earlier one, with which it is
/// about to go.
pub fn is_of_name(hpa: &HpaRecord, actor: &str) -> bool {
    let owner = hpa.metadata.controller.as_ref();
    owner.is_some_and(|owner| &*owner.kind == "ScaledObject" && &*owner.name == actor)
}

/// Whether KEDA has had its time to let go of a `ScaledObject` that is being deleted.
pub fn is_overdue(found: &ScaledObjectRecord, now: Timestamp) -> bool {
    lets_go_by(found).is_some_and(|ends| ends <= now)
}

/// When KEDA's time to let go of a `ScaledObject` ends; `None` while its deletion has not begun.
pub fn lets_go_by(found: &ScaledObjectRecord) -> Option<Timestamp> {
    let began = found.deleted.as_ref()?.0;
    Some(began.checked_add(KEDA_LETS_GO).unwrap_or(Timestamp::MAX))
}
