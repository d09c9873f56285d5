//! Executes one rollout step, after a dry run has shown that replacement pods get the sidecar (ROLL-2, ROLL-3, ROLL-4).

use std::time::Duration;

use asya_shared::names::annotation;
use asya_shared::resolve::Roll;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Preconditions};

use super::parent::{self, Ours, apply, claims};
use crate::context::Context;
use crate::fault::{Error, Reason, Requeue, StepError};
use crate::reconcile::contention::Specs;
use crate::reconcile::contention::field_owner::{Segment, taken};
use crate::reconcile::contention::history::FieldLoss;
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::outcome::{By, Rolled};
use crate::reconcile::plan::evict::backoff;
use crate::reconcile::plan::roll::facts::{Act, Lost, Rolling};
use crate::reconcile::plan::roll::inputs::{RollInputs, SlotChange, annotated};
use crate::record::{ActorRecord, Key};

/// Executes a rollout decision.
pub(super) async fn roll(
    context: &Context,
    actor: &ActorRecord,
    (rolling, inputs): (Rolling, RollInputs),
    claim: Option<bool>,
) -> Result<Rolled, Error> {
    let key = &actor.metadata.key;
    match inputs.slot {
        Some(SlotChange::Forget) => context.rollout_slots.forget(key),
        Some(SlotChange::Release) => context.rollout_slots.release(key),
        Some(SlotChange::Hold(until)) => context.rollout_slots.hold(key, until),
        None => {}
    }
    if let Some((reason, text)) = &inputs.event {
        context.events.tell(actor, *reason, text);
    }
    match rolling {
        Rolling::Rest => Ok(Rolled::Rest),
        Rolling::Wait(reason, text, wait) => Ok(Rolled::Waits(reason, text, Requeue::After(wait))),
        Rolling::Halt(text) => Ok(Rolled::Halted(text)),
        Rolling::Stall(text) => Ok(Rolled::Stalled(text)),
        Rolling::Leave => Ok(Rolled::Left),
        Rolling::Lost(lost) => {
            let taken = lost_annotation(context, &key.namespace, (lost, &inputs.roll));
            Ok(Rolled::Lost(taken.await?))
        }
        Rolling::Act(Act::Prove) => Ok(Rolled::Proved),
        Rolling::Act(Act::Annotate(value)) => {
            let ours = Ours {
                roll: Some(&value),
                claim,
                claim_owner: inputs.claim_owner.as_ref(),
            };
            let refused = put(context, &key.namespace, (&inputs.roll, ours), inputs.specs).await?;
            if refused.is_some() {
                context.rollout_slots.release(key);
            }
            Ok(refused.unwrap_or_else(|| asked(By::Annotation)))
        }
        Rolling::Act(Act::Evict(pod)) => evict(context, key, &pod).await,
    }
}

/// CONF-8
async fn lost_annotation(
    context: &Context,
    namespace: &str,
    (lost, roll): (Lost, &Roll),
) -> Result<FieldLoss, Error> {
    let path = annotated(roll).first().map(|(_, path, _)| *path);
    let path = path.unwrap_or_default();
    let segments = Segment::path(&[path, &[annotation::ROLL]].concat());
    Ok(FieldLoss {
        rival: super::rival::find(context, namespace, &lost.object, &segments).await?,
        field: field(path),
        object: lost.object.to_string(),
        specs: lost.specs,
        last: lost.last,
    })
}

/// Path of our annotation, as shown to users.
fn field(path: &[&str]) -> String {
    format!("{}[{}]", path.join("."), annotation::ROLL)
}

fn asked(by: By) -> Rolled {
    let text = "pods of the target are being replaced by pods with the sidecar";
    Rolled::Asked(by, text.to_owned(), Requeue::After(Duration::from_secs(2)))
}

/// Writes our annotations or gives them up. Returns why that was refused, if it was.
pub(super) async fn put(
    context: &Context,
    namespace: &str,
    (roll, ours): (&Roll, Ours<'_>),
    specs: Specs,
) -> Result<Option<Rolled>, Error> {
    for (object, path, manager) in annotated(roll) {
        let claims = claims(context, namespace, object, ours).await?;
        let body = parent::body(object, path, (ours.roll, claims));
        let Err(error) = apply(context, namespace, object, (manager, &body)).await else {
            continue;
        };
        if let Some((_, rival)) = taken(&error) {
            return Ok(Some(Rolled::Lost(FieldLoss {
                field: field(path),
                object: object.to_string(),
                rival: Some(rival),
                specs,
                last: false,
            })));
        }
        let fault = StepError::of_write(&object.to_string(), error).fault()?;
        let text = format!(
            "{}; until that is fixed, pods get the sidecar when they are restarted by other means",
            fault.message
        );
        return Ok(Some(Rolled::Waits(
            Reason::RolloutWaiting,
            text,
            fault.retry,
        )));
    }
    Ok(None)
}

pub(super) async fn evict(
    context: &Context,
    key: &Key,
    pod: &OutdatedPod,
) -> Result<Rolled, Error> {
    let client = context.applier.writer(&key.namespace).await;
    let params = EvictParams {
        delete_options: Some(DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.to_string()),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        }),
        ..EvictParams::default()
    };
    let evicted = match client {
        Ok(client) => {
            let pods: Api<Pod> = Api::namespaced(client, &key.namespace);
            pods.evict(&pod.name, &params).await.map(drop)
        }
        Err(error) => Err(error),
    };
    match evicted {
        Ok(()) => {
            context.rollout_slots.granted(key);
            Ok(asked(By::Eviction))
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(asked(By::Eviction)),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(Error::Stale("a pod")),
        Err(kube::Error::Api(status)) if status.code == 429 => {
            let wait = backoff(context.rollout_slots.refused(key));
            let text = format!("pod {} may not be evicted: {}", pod.name, status.message);
            Ok(Rolled::Waits(
                Reason::RolloutWaiting,
                text,
                Requeue::After(wait),
            ))
        }
        Err(error) => {
            context.rollout_slots.release(key);
            let what = format!("eviction of pod {}", pod.name);
            let fault = StepError::of_write(&what, error).fault()?;
            Ok(Rolled::Waits(
                Reason::RolloutWaiting,
                fault.message,
                fault.retry,
            ))
        }
    }
}
