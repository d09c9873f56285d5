//! Dry-runs a pod made from a pod template with our part, before that part is written (SAFE-39): a template whose pods
//! the API server refuses leaves its workload in the middle of a rollout.

use asya_shared::resolve::Family;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tracing::debug;

use super::probe::is_complete;
use crate::binding::probes::Failure;
use crate::binding::specimen::{self, Shown, Specimen};
use crate::context::Context;
use crate::fault::{Error, Reason, Requeue};
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::bound_pods::actor_part;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Templated;
use crate::reconcile::observe::probe_pod::from_template;
use crate::reconcile::plan::template::Proof;

/// Returns how the last dry run failed, while the next one is not due.
pub(super) fn waits(context: &Context, observed: &Observed) -> Option<Templated> {
    let turn = context.bindings.probes.turn(observed.key());
    Some(told(&turn.failed?, turn.wait?))
}

/// Dry-runs a pod of this workload, whose template already includes our part. Returns what prevents the write.
pub(super) async fn ask(
    context: &Context,
    observed: &Observed,
    resolved: &Resolved,
    workload: &Value,
) -> Result<Option<Templated>, Error> {
    let (key, probes) = (observed.key(), &context.bindings.probes);
    let Some(pod) = pod_of(observed, resolved, workload) else {
        return Ok(None);
    };
    let hash = observed.bound().and_then(|it| it.injected_hash.as_deref());
    let marks = (&*observed.actor.metadata.uid, actor_part(hash));
    let complete = is_complete(observed);
    let shown = specimen::ask(&context.client, &key.namespace, &pod, marks, complete);
    let failure = match shown.await.map_err(Error::Api)? {
        Shown::Admitted => {
            probes.admitted(key);
            return Ok(None);
        }
        Shown::Unasked(why) => Failure::Unasked(why),
        Shown::LeftAlone(why) => Failure::LeftAlone(why),
        Shown::Refused(why) => Failure::Refused(why),
    };
    let wait = probes.failed(key, failure.clone(), false);
    Ok(Some(told(&failure, wait)))
}

/// Returns whether a new pod of the target would get the sidecar of the actor that the target is handed over to
/// (BIND-45).
pub(super) async fn holds(context: &Context, observed: &Observed, proof: &Proof) -> bool {
    let namespace = &observed.key().namespace;
    let pod = serde_json::from_value(proof.pod.clone());
    let Ok(pod) = pod else {
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

fn pod_of(observed: &Observed, resolved: &Resolved, workload: &Value) -> Option<Pod> {
    let binds_to = observed.actor.binds_to.as_ref();
    let family = binds_to.map_or(Family::Generic, Family::of_target);
    let specimen = Specimen::of(&resolved.target.pods, family)?;
    let claims = workload.pointer("/spec/volumeClaimTemplates");
    let pod = from_template(workload.pointer("/spec/template")?, claims, &specimen)?;
    serde_json::from_value(pod).ok()
}

fn told(failure: &Failure, wait: std::time::Duration) -> Templated {
    let (reason, text) = match failure {
        Failure::Refused(why) => (
            Reason::ProbeRejected,
            format!(
                "the API server refuses pods of the target with the sidecar, so its pod template is left as it is: a dry run of one was answered: {why}"
            ),
        ),
        Failure::Unasked(why) | Failure::LeftAlone(why) => (
            Reason::ProbeFailed,
            format!(
                "a dry run has not shown that pods of the target get the sidecar from its pod template, which is left as it is: {why}"
            ),
        ),
    };
    Templated::Waits(reason, text, Requeue::After(wait))
}
