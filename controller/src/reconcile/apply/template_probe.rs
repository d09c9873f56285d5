//! Dry-runs a pod made from a pod template with our part, before that part is written (SAFE-39): a template whose pods
//! the API server refuses leaves its workload in the middle of a rollout.

use serde_json::Value;
use tracing::debug;

use crate::binding::probes::Failure;
use crate::binding::specimen::{self, Shown};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::Templated;
use crate::reconcile::plan::template::Proof;
use crate::reconcile::plan::template::write::{TemplateInputs, not_proven};
use crate::record::Key;

/// Dry-runs a pod of this workload, whose template already includes our part. Returns what prevents the write.
pub(super) async fn ask(
    context: &Context,
    actor: &Key,
    inputs: &TemplateInputs,
    workload: &Value,
) -> Result<Option<Templated>, Error> {
    let Some(pod) = inputs.pod_of(workload) else {
        return Ok(None);
    };
    let (probes, namespace) = (&context.bindings.probes, &actor.namespace);
    let marks = (&*inputs.uid, inputs.part());
    let shown = specimen::ask(&context.client, namespace, &pod, marks, inputs.complete);
    let failure = match shown.await.map_err(Error::Api)? {
        Shown::Admitted => {
            probes.admitted(actor);
            return Ok(None);
        }
        Shown::Unasked(why) => Failure::Unasked(why),
        Shown::LeftAlone(why) => Failure::LeftAlone(why),
        Shown::Refused(why) => Failure::Refused(why),
    };
    let wait = probes.failed(actor, failure.clone(), false);
    Ok(Some(not_proven(&failure, wait)))
}

/// Returns whether a new pod of the target would get the sidecar of the actor that the target is handed over to
/// (BIND-45).
pub(super) async fn holds(context: &Context, namespace: &str, proof: &Proof) -> bool {
    let Ok(pod) = serde_json::from_value(proof.pod.clone()) else {
        return false;
    };
    let marks = (&*proof.uid, Some(&*proof.part));
    let shown = specimen::ask(&context.client, namespace, &pod, marks, true);
    // A failed dry run must not keep the rest of the plan from being applied: it is repeated soon.
    match shown.await {
        Ok(Shown::Admitted) => true,
        shown => {
            debug!(?shown, "the pod template is not handed over yet");
            false
        }
    }
}
