//! Evicts a pod, so that its controller replaces it (ROLL-4).
//!
//! The change to the rollout slot is decided here, because only the API server's response says whether the pod is
//! evicted.

use asya_process::clock;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::PostParams;
use kube::core::Status;

use super::verify_unchanged::verify_availability;
use crate::context::Context;
use crate::fault::{Conflict, Error, Fault, Reason, Requeue, StepError};
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::outcome::{ReplacementMethod, RolloutOutcome};
use crate::reconcile::model::target_pods::PodToReplace;
use crate::record::Key;

/// Requests the eviction, if the availability that it was planned with still holds.
///
/// # Errors
/// When the API server fails, or the pod has been replaced, or another pod has changed.
pub async fn evict(
    context: &Context,
    key: &Key,
    pod: &PodToReplace,
    planned: &Availability,
) -> Result<RolloutOutcome, Error> {
    verify_availability(context, &key.namespace, planned).await?;
    let client = context.impersonation.client_for(&key.namespace).await;
    let evicted = match client {
        Ok(client) => post_eviction(&Api::namespaced(client, &key.namespace), pod).await,
        Err(error) => Err(error),
    };
    match evicted {
        Ok(()) => {
            context.rollout_slots.eviction_accepted(key);
            Ok(RolloutOutcome::Requested(ReplacementMethod::Eviction))
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            Ok(RolloutOutcome::Requested(ReplacementMethod::Eviction))
        }
        Err(error) if Conflict::of(&error).is_some() => Err(Error::Stale("a pod")),
        Err(kube::Error::Api(status)) if status.code == 429 => {
            let text = format!("pod {} cannot be evicted yet: {}", pod.name, status.message);
            let slots = &context.rollout_slots;
            let wait = slots.eviction_refused(key, &text, clock::now());
            Ok(RolloutOutcome::waiting(
                Reason::RolloutWaiting,
                text,
                Requeue::After(wait),
            ))
        }
        Err(error) => {
            context.rollout_slots.release(key);
            let subject = format!("eviction of pod {}", pod.name);
            let fault = StepError::of_write(&subject, error).fault()?;
            Ok(RolloutOutcome::Waiting(Fault {
                reason: Reason::RolloutWaiting,
                ..fault
            }))
        }
    }
}

/// Evicts this pod, not another of its name. `Api::evict` of kube 5 sends the precondition under a name that the API
/// server ignores.
async fn post_eviction(pods: &Api<Pod>, pod: &PodToReplace) -> Result<(), kube::Error> {
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.to_string()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.to_string()),
                ..Preconditions::default()
            }),
            ..DeleteOptions::default()
        }),
    };
    let params = PostParams::default();
    let posted = pods.create_subresource("eviction", &pod.name, &params, &eviction);
    posted.await.map(|_: Status| ())
}
