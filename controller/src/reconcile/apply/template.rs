//! Applies our part of a pod template without force, and gives it up (BIND-50).

use std::time::Duration;

use asya_shared::api::TemplateStatus;
use asya_shared::inject::bound::{BoundPlan, Reason as Left, without_ours};
use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation, manager};
use asya_shared::resolve::ObjectRef;
use serde_json::{Value, json};

use super::{parent, rival, template_probe};
use crate::cluster::foreign::Apply;
use crate::context::Context;
use crate::fault::{Error, Reason, Requeue, refused};
use crate::reconcile::contention::Specs;
use crate::reconcile::contention::field_owner::{Segment, first_missing, of_refusal};
use crate::reconcile::contention::history::FieldLoss;
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Templated;
use crate::reconcile::model::rollout::Live;
use crate::reconcile::plan::template::{LOOK_AGAIN, Templating};
use crate::record::{Key, applied_by};

/// Path of the pod template in a workload.
const TEMPLATE: [&str; 2] = ["spec", "template"];
/// Requeue intervals: no watch reports that a rollout has ended, or that a workload was resumed.
const ROLLS: Duration = Duration::from_secs(5);
const PAUSED: Duration = Duration::from_secs(10);
/// Requeue interval: no event reports that the quotas have been listed.
const UNLISTED: Duration = Duration::from_secs(1);

/// Executes the plan.
pub(super) async fn template(
    context: &Context,
    observed: &Observed,
    plan: Templating,
) -> Result<Templated, Error> {
    match plan {
        Templating::Rest => Ok(Templated::Rest),
        Templating::Stands => Ok(Templated::Stands),
        Templating::Refuse(fault) => Ok(Templated::Refused(fault)),
        Templating::Stop => Ok(Templated::Left),
        Templating::Forget => Ok(Templated::Released(None)),
        Templating::Release(workload, why) => {
            release(context, observed, &workload).await?;
            Ok(Templated::Released(why))
        }
        Templating::Later(wait) => Ok(comes_first(wait)),
        Templating::HandOver(workload, proof) => {
            if !Box::pin(template_probe::holds(context, observed, &proof)).await {
                return Ok(comes_first(LOOK_AGAIN));
            }
            release(context, observed, &workload).await?;
            Ok(Templated::Released(None))
        }
        Templating::Wait(wait) => Ok(waits(
            Reason::RolloutWaiting,
            TAKEN_BACK,
            Requeue::After(wait),
        )),
        Templating::Lost(specs) => {
            let Some(resolved) = observed.resolved() else {
                return Ok(Templated::Untouched);
            };
            let workload = &resolved.target.workload;
            let (field, rival) = lost(context, observed, workload).await?;
            Ok(Templated::Lost(loss(workload, field, rival, specs)))
        }
        Templating::Apply => write(context, observed).await,
    }
}

/// Status message until our part is applied again.
pub const TAKEN_BACK: &str = "what Asya has in the target's pod template was taken back; it is put there again after a pause (condition Conflict says what, and by whom)";

fn comes_first(wait: Duration) -> Templated {
    let text = "another actor's sidecar comes first";
    waits(Reason::AlreadyBound, text, Requeue::After(wait))
}

fn waits(reason: Reason, text: &str, retry: Requeue) -> Templated {
    Templated::Waits(reason, text.to_owned(), retry)
}

fn loss(workload: &ObjectRef, field: String, rival: Option<String>, specs: Specs) -> FieldLoss {
    FieldLoss {
        field,
        object: workload.to_string(),
        rival,
        specs,
        last: false,
    }
}

async fn write(context: &Context, observed: &Observed) -> Result<Templated, Error> {
    let (Some(bound), Some(resolved)) = (observed.bound(), observed.resolved()) else {
        return Ok(Templated::Untouched);
    };
    let (workload, namespace) = (&resolved.target.workload, &observed.key().namespace);
    let Some(plan) = &bound.plan else {
        return Ok(Templated::Untouched);
    };
    let Some(limits) = observed.binding.as_ref().and_then(|it| it.limits.as_ref()) else {
        let text = "the quotas of the namespace have not been listed yet";
        return Ok(waits(Reason::NotProven, text, Requeue::After(UNLISTED)));
    };
    if let Some(waits) = template_probe::waits(context, observed) {
        return Ok(waits);
    }
    let Some(resource) = context.bindings.resource_of(workload) else {
        return Ok(Templated::Untouched);
    };
    let body = context.bindings.body(&context.client, namespace, workload);
    let Some(body) = body.await.map_err(Error::Api)? else {
        return Ok(Templated::Untouched);
    };
    if body["metadata"]["uid"].as_str() != workload.uid.as_deref() {
        return Err(Error::Stale("the target"));
    }
    if let Some(waits) = cannot_roll(workload, &Live::of(workload, &body, None)) {
        return Ok(waits);
    }
    let mut template = body["spec"]["template"].clone();
    let uid = &observed.actor.metadata.uid;
    if resolved.templated.as_ref().is_some_and(|it| !it.is_of(uid)) {
        // A younger actor's part, applied by the same field manager, is overwritten (BIND-45).
        without_ours(&mut template);
    }
    let limits: Vec<_> = limits.iter().map(ToString::to_string).collect();
    let installed = &context.installation.settings.sidecar_resources;
    let plan = BoundPlan::clone(plan).with_limits(&limits, installed);
    let part = match plan.in_template(&template) {
        Ok(part) => part,
        Err((reason, why)) => {
            let reason = match reason {
                Left::SpecConflict => Reason::SpecConflict,
                Left::TargetUrlUnknown => Reason::TargetURLUnknown,
                _ => Reason::StrategyNotAllowed,
            };
            let text = format!("{workload}: its pod template gets no sidecar: {why}");
            return Ok(waits(reason, &text, Requeue::AwaitChange));
        }
    };
    let patch = body_of(workload, Some(&part));
    let writer = context
        .applier
        .writer(namespace)
        .await
        .map_err(Error::Api)?;
    let apply = Apply {
        namespace,
        resource: &resource,
        manager: manager::TEMPLATE,
        body: &patch,
    };
    let tried = match apply.dry_run(&writer, &body).await {
        Ok(tried) => tried,
        Err(error) => return not_written(observed, resolved, error),
    };
    let first = |it: &Value| it["spec"]["template"]["spec"]["containers"][0]["name"].clone();
    if first(&tried.data) != first(&body) {
        let text = format!(
            "{workload}: the sidecar would become the first container of its pod template, which its owner may take for the model; use strategy Pod"
        );
        return Ok(waits(
            Reason::StrategyNotAllowed,
            &text,
            Requeue::AwaitChange,
        ));
    }
    if let Some(waits) = template_probe::ask(context, observed, resolved, &tried.data).await? {
        return Ok(waits);
    }
    let answer = match apply.write(&writer).await {
        Ok(answer) => answer,
        Err(error) => return not_written(observed, resolved, error),
    };
    context.bindings.wrote(observed.key());
    let entries = answer.metadata.managed_fields.unwrap_or_default();
    let owned = applied_by(&entries, manager::TEMPLATE);
    Ok(Templated::Applied(TemplateStatus {
        uid: workload.uid.clone().unwrap_or_default(),
        hash: bound.injected_hash.clone().unwrap_or_default(),
        target: resolved.spec.to_string(),
        fingerprint: owned.unwrap_or_default(),
    }))
}

/// Returns why a changed template would not replace pods now, if it would not.
fn cannot_roll(workload: &ObjectRef, live: &Live) -> Option<Templated> {
    if live.paused {
        let text =
            format!("{workload}: spec.paused is true, so no pod would be replaced; resume it");
        return Some(waits(Reason::RolloutWaiting, &text, Requeue::After(PAUSED)));
    }
    let text = "the target's controller is replacing pods; its template is changed after that";
    let rolls = || waits(Reason::RolloutInProgress, text, Requeue::After(ROLLS));
    live.rolling.then(rolls)
}

/// CONF-7
fn not_written(
    observed: &Observed,
    resolved: &Resolved,
    error: kube::Error,
) -> Result<Templated, Error> {
    let workload = &resolved.target.workload;
    if let kube::Error::Api(status) = &error
        && let Some((field, rival)) = of_refusal(status).and_then(|it| it.into_iter().next())
    {
        let specs = resolved.specs(observed.actor.generation);
        let rival = Some(rival.to_string());
        return Ok(Templated::Lost(loss(workload, field, rival, specs)));
    }
    let fault = refused(&workload.to_string(), error)?;
    Ok(Templated::Waits(
        Reason::StrategyNotAllowed,
        fault.message,
        fault.retry,
    ))
}

/// Gives up everything we own in a workload's pod template, which restores it as it was before.
pub(super) async fn release(
    context: &Context,
    observed: &Observed,
    workload: &ObjectRef,
) -> Result<(), Error> {
    let nothing = body_of(workload, None);
    let released = parent::apply(context, observed, workload, (manager::TEMPLATE, &nothing));
    released.await.map_err(Error::Api)?;
    context.bindings.wrote(observed.key());
    Ok(())
}

fn body_of(workload: &ObjectRef, part: Option<&Value>) -> Value {
    let mut body = json!({
        "apiVersion": workload.api_version,
        "kind": workload.kind,
        "metadata": {"name": workload.name, "uid": workload.uid},
    });
    if let Some(part) = part {
        body["spec"]["template"] = part.clone();
    }
    body
}

/// Returns the first part we no longer own, and its current owner (CONF-8).
async fn lost(
    context: &Context,
    observed: &Observed,
    workload: &ObjectRef,
) -> Result<(String, Option<String>), Error> {
    let unknown = || (TEMPLATE.join("."), None);
    let key = Key::new(&observed.key().namespace, &workload.name);
    let Some(resource) = context.bindings.resource_of(workload) else {
        return Ok(unknown());
    };
    let Some(live) = rival::metadata(context, &resource, &key).await? else {
        return Ok(unknown());
    };
    let entries = live.managed_fields.as_deref().unwrap_or_default();
    let path = first_missing(entries, manager::TEMPLATE, parts());
    Ok(path.map_or_else(unknown, |path| {
        (Segment::text(&path), rival::named(&live, &path))
    }))
}

fn parts() -> Vec<Vec<Segment>> {
    let below = |path: &[&str]| Segment::path(&[&TEMPLATE[..], path].concat());
    let container = |list: &str, name: &str| {
        let mut path = below(&["spec", list]);
        path.push(Segment::Item(json!({"name": name})));
        path
    };
    vec![
        container("containers", RUNTIME_CONTAINER),
        container("containers", SIDECAR_CONTAINER),
        below(&["metadata", "annotations", annotation::INJECTED_BY]),
    ]
}
