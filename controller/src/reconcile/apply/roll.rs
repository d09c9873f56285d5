//! Executes one rollout step, after a dry run has shown that replacement pods get the sidecar (ROLL-2, ROLL-3, ROLL-4).

use std::time::Duration;

use asya_shared::names::{annotation, manager};
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Preconditions};

use super::parent::{Ours, annotated, apply, claims};
use crate::context::Context;
use crate::fault::{Error, Reason, Requeue, refused};
use crate::reconcile::contention::Specs;
use crate::reconcile::contention::field_owner::{self, Segment};
use crate::reconcile::contention::history::FieldLoss;
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{By, Rolled};
use crate::reconcile::model::rollout::TEMPLATE;
use crate::reconcile::plan::roll::facts::{Act, Lost, Rolling};
use crate::telemetry::events::EventReason;

/// First and longest backoff after a refused eviction (ROLL-4).
const REFUSED: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(5);

/// Executes the rollout plan.
pub(super) async fn roll(
    context: &Context,
    observed: &Observed,
    (plan, claim): (Rolling, Option<bool>),
) -> Result<Rolled, Error> {
    let key = observed.key();
    match plan {
        Rolling::Rest => {
            context.rollout_slots.forget(key);
            Ok(Rolled::Rest)
        }
        Rolling::Wait(reason, text, wait) => {
            // A rollout that we did not start, or that takes too long, must not block others (SAFE-15).
            let ours = (reason == Reason::RolloutInProgress).then(|| held_until(observed));
            match ours.flatten() {
                Some(until) => context.rollout_slots.hold(key, until),
                None => context.rollout_slots.release(key),
            }
            Ok(Rolled::Waits(reason, text, Requeue::After(wait)))
        }
        Rolling::Halt(text) => {
            context.rollout_slots.forget(key);
            let before = observed.previous.rollout.as_ref();
            if before.is_none_or(|before| !before.halted) {
                context
                    .events
                    .tell(&observed.actor, EventReason::RolloutHalted, &text);
            }
            Ok(Rolled::Halted(text))
        }
        Rolling::Stall(text) => {
            context.rollout_slots.release(key);
            let before = observed.previous.rollout.as_ref();
            if before.is_none_or(|before| !before.stalled) {
                context
                    .events
                    .tell(&observed.actor, EventReason::RolloutHalted, &text);
            }
            Ok(Rolled::Stalled(text))
        }
        Rolling::Lost(lost) => {
            context.rollout_slots.forget(key);
            Ok(Rolled::Lost(
                lost_annotation(context, observed, lost).await?,
            ))
        }
        Rolling::Leave => {
            context.rollout_slots.forget(key);
            Ok(Rolled::Left)
        }
        Rolling::Act(act) => step(context, observed, act, claim).await,
    }
}

/// CONF-8
async fn lost_annotation(
    context: &Context,
    observed: &Observed,
    Lost {
        object,
        specs,
        last,
    }: Lost,
) -> Result<FieldLoss, Error> {
    let path = observed.resolved().map(|it| path_of(&it.target.roll));
    let path: Vec<_> = path.into_iter().flatten().collect();
    let segments = Segment::path(&[&path[..], &[annotation::ROLL]].concat());
    let rival = super::rival::find(context, observed, &object, &segments).await?;
    Ok(FieldLoss {
        field: field(&path),
        object: object.to_string(),
        rival,
        specs,
        last,
    })
}

/// Path of the annotations that include ours.
fn path_of(roll: &Roll) -> Vec<&'static str> {
    match roll {
        Roll::AnnotateTemplate(_) => TEMPLATE.to_vec(),
        Roll::Annotate(_, path) => path.clone(),
        Roll::Evict => Vec::new(),
    }
}

/// Path of our annotation, as shown to users.
fn field(path: &[&str]) -> String {
    format!("{}[{}]", path.join("."), annotation::ROLL)
}

async fn step(
    context: &Context,
    observed: &Observed,
    act: Act,
    claim: Option<bool>,
) -> Result<Rolled, Error> {
    let Some(resolved) = observed.resolved() else {
        return Ok(Rolled::Untouched);
    };
    if !context.installation.webhook {
        let text = "the operator runs without its webhook, so no pod gets the sidecar; install it (webhook.enabled)";
        return Ok(Rolled::Waits(
            Reason::WebhookNotReady,
            text.to_owned(),
            Requeue::AwaitChange,
        ));
    }
    let key = observed.key();
    match act {
        Act::Prove => Ok(Rolled::Proved),
        Act::Annotate(value) => {
            hold(context, observed);
            tell_of_gpus(context, observed, resolved);
            let ours = Ours {
                roll: Some(&value),
                claim,
            };
            let refused = put(context, observed, &resolved.target.roll, ours).await?;
            if refused.is_some() {
                context.rollout_slots.release(key);
            }
            Ok(refused.unwrap_or_else(|| asked(By::Annotation)))
        }
        Act::Evict(pod) => {
            hold(context, observed);
            tell_of_gpus(context, observed, resolved);
            evict(context, observed, &pod).await
        }
    }
}

/// A target without progress for this long no longer blocks others (SAFE-15).
const LONGEST_HOLD: Duration = Duration::from_hours(1);

fn hold(context: &Context, observed: &Observed) {
    let until = Timestamp::now().checked_add(hold_time(observed));
    context
        .rollout_slots
        .hold(observed.key(), until.unwrap_or(Timestamp::MAX));
}

fn hold_time(observed: &Observed) -> Duration {
    let limit = observed.progress_limit();
    limit.map_or(LONGEST_HOLD, |limit| limit.min(LONGEST_HOLD))
}

/// Returns until when our last write holds a slot. Derived from the status, so that it survives a restart.
fn held_until(observed: &Observed) -> Option<Timestamp> {
    let since = observed.previous.rollout.as_ref()?.since.as_ref()?;
    let until = since.0.checked_add(hold_time(observed)).ok()?;
    (until > Timestamp::now()).then_some(until)
}

/// Announces that GPU pods will be replaced, before the first one is (ROLL-7).
fn tell_of_gpus(context: &Context, observed: &Observed, resolved: &Resolved) {
    let Some(seen) = observed.rollout() else {
        return;
    };
    let has_gpus = seen.live.iter().any(|it| it.gpus);
    if has_gpus && observed.previous.rollout.is_none() {
        let text = format!(
            "{} pods of {} that use GPUs are replaced to get the sidecar; spec.binding.rollout: OnRestart leaves them until their next restart",
            seen.counted.lacking.len(),
            resolved.target.workload
        );
        context
            .events
            .tell(&observed.actor, EventReason::RollsGpuPods, &text);
    }
}

fn asked(by: By) -> Rolled {
    let text = "pods of the target are being replaced by pods with the sidecar";
    Rolled::Asked(by, text.to_owned(), Requeue::After(Duration::from_secs(2)))
}

/// Writes our annotations or gives them up. Returns why that was refused, if it was.
pub(super) async fn put(
    context: &Context,
    observed: &Observed,
    roll: &Roll,
    ours: Ours<'_>,
) -> Result<Option<Rolled>, Error> {
    let written: Vec<(&ObjectRef, &[&str], &str)> = match roll {
        Roll::AnnotateTemplate(workloads) => {
            let all = workloads.iter();
            all.map(|it| (it, &TEMPLATE[..], manager::ROLL)).collect()
        }
        Roll::Annotate(object, path) => vec![(object, path, manager::PARENT)],
        Roll::Evict => Vec::new(),
    };
    for (object, path, manager) in written {
        let claims = claims(context, observed, object, ours.claim).await?;
        let body = annotated(object, path, (ours.roll, claims));
        if let Err(error) = apply(context, observed, object, (manager, &body)).await {
            if let Some(rival) = rival_of(&error) {
                let target = observed.rollout().map(|seen| seen.target.clone());
                return Ok(Some(Rolled::Lost(FieldLoss {
                    field: field(path),
                    object: object.to_string(),
                    rival: Some(rival),
                    specs: Specs {
                        generation: observed.actor.generation,
                        target: target.unwrap_or_default(),
                    },
                    last: false,
                })));
            }
            let fault = refused(&object.to_string(), error)?;
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
    }
    Ok(None)
}

/// CONF-7
fn rival_of(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let (_, rival) = field_owner::of_refusal(status)?.into_iter().next()?;
    Some(rival.to_string())
}

pub(super) async fn evict(
    context: &Context,
    observed: &Observed,
    pod: &OutdatedPod,
) -> Result<Rolled, Error> {
    let key = observed.key();
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
            let times = context.rollout_slots.refused(key).min(8);
            let wait = REFUSED.saturating_mul(1 << times).min(LONGEST);
            let text = format!("pod {} may not be evicted: {}", pod.name, status.message);
            Ok(Rolled::Waits(
                Reason::RolloutWaiting,
                text,
                Requeue::After(wait),
            ))
        }
        Err(error) => {
            context.rollout_slots.release(key);
            let fault = refused(&format!("eviction of pod {}", pod.name), error)?;
            Ok(Rolled::Waits(
                Reason::RolloutWaiting,
                fault.message,
                fault.retry,
            ))
        }
    }
}
