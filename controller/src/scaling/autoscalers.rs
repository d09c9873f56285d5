//! All autoscalers in an actor's namespace: KEDA's for the actor, and foreign ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::record::{AutoscalerTarget, HpaRecord, ScaledObjectRecord};

/// How long to wait for KEDA to remove its finalizer from a `ScaledObject` (FIN-2).
const KEDA_FINALIZER_TIMEOUT: Duration = Duration::from_secs(30);

/// All autoscalers in an actor's namespace, and the actor's identity.
pub struct Autoscalers<'a> {
    /// Name of the actor and of its `ScaledObject`.
    pub actor: &'a str,
    /// Uid of the actor's `ScaledObject`.
    pub scaled_object: Option<&'a str>,
    pub hpas: &'a [Arc<HpaRecord>],
    pub scaled_objects: &'a [Arc<ScaledObjectRecord>],
}

impl Autoscalers<'_> {
    /// A foreign autoscaler that scales `target`.
    pub fn competing_autoscaler(&self, target: &AutoscalerTarget) -> Option<CompetingAutoscaler> {
        let is_own = |uid: &str| self.scaled_object == Some(uid);
        let scaled_objects = self.scaled_objects.iter().filter(|scaled_object| {
            scaled_object.target == *target && !is_own(&scaled_object.metadata.uid)
        });
        let hpas = self
            .hpas
            .iter()
            .filter(|hpa| hpa.target == *target && !is_keda_hpa_of(hpa, self.actor));
        // Prefer the `ScaledObject`: its HPA is deleted with it.
        let scaled_objects = scaled_objects.map(|it| it.metadata.key.name.clone());
        let hpas = hpas.map(|it| it.metadata.key.name.clone());
        let scaled_object = scaled_objects.min().map(CompetingAutoscaler::ScaledObject);
        scaled_object.or_else(|| hpas.min().map(CompetingAutoscaler::Hpa))
    }
}

/// A foreign autoscaler of an actor's target, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompetingAutoscaler {
    ScaledObject(Arc<str>),
    /// Starts no pods of a target that has none.
    Hpa(Arc<str>),
}

impl fmt::Display for CompetingAutoscaler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScaledObject(name) => write!(f, "ScaledObject {name}"),
            Self::Hpa(name) => write!(f, "HorizontalPodAutoscaler {name}"),
        }
    }
}

/// Whether KEDA created this HPA for a `ScaledObject` with the actor's name: the current one, or a previous one, with
/// which the HPA is about to be deleted.
pub fn is_keda_hpa_of(hpa: &HpaRecord, actor: &str) -> bool {
    let owner = hpa.metadata.controller.as_ref();
    owner.is_some_and(|owner| &*owner.kind == "ScaledObject" && &*owner.name == actor)
}

/// Whether KEDA has failed to remove its finalizer from a deleted `ScaledObject` in time.
pub fn finalizer_expired(scaled_object: &ScaledObjectRecord, now: Timestamp) -> bool {
    finalizer_deadline(scaled_object).is_some_and(|deadline| deadline <= now)
}

/// Deadline for KEDA to remove its finalizer; `None` while the `ScaledObject` is not being deleted.
pub fn finalizer_deadline(scaled_object: &ScaledObjectRecord) -> Option<Timestamp> {
    let deleted_at = scaled_object.deleted.as_ref()?.0;
    Some(
        deleted_at
            .checked_add(KEDA_FINALIZER_TIMEOUT)
            .unwrap_or(Timestamp::MAX),
    )
}
