//! Applies our part of a pod template without force, and gives it up (BIND-50).

use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation, manager};
use asya_shared::resolve::ObjectRef;
use serde_json::{Value, json};

use super::{parent, rival, template_probe};
use crate::cluster::foreign::Apply;
use crate::context::Context;
use crate::fault::{Error, Reason, Requeue, StepError};
use crate::reconcile::contention::field_owner::{Segment, first_missing, named, taken};
use crate::reconcile::model::outcome::Templated;
use crate::reconcile::model::rollout::Live;
use crate::reconcile::plan::template::write::{self, TemplateInputs};
use crate::reconcile::plan::template::{TAKEN_BACK, Templating, after_proof, comes_first};
use crate::record::Key;

/// Path of the pod template in a workload.
const TEMPLATE: [&str; 2] = ["spec", "template"];

/// Executes the plan.
pub(super) async fn template(
    context: &Context,
    actor: &Key,
    (plan, inputs): (Templating, Option<TemplateInputs>),
) -> Result<Templated, Error> {
    match plan {
        Templating::Rest => Ok(Templated::Rest),
        Templating::Stands => Ok(Templated::Stands),
        Templating::Refuse(fault) => Ok(Templated::Refused(fault)),
        Templating::Stop => Ok(Templated::Left),
        Templating::Forget => Ok(Templated::Released(None)),
        Templating::Release(workload, why) => {
            release(context, actor, &workload).await?;
            Ok(Templated::Released(why))
        }
        Templating::Later(wait) => Ok(comes_first(wait)),
        Templating::HandOver(workload, proof) => {
            let proved = Box::pin(template_probe::holds(context, &actor.namespace, &proof)).await;
            if let Err(waits) = after_proof(proved) {
                return Ok(waits);
            }
            release(context, actor, &workload).await?;
            Ok(Templated::Released(None))
        }
        Templating::Wait(wait) => {
            let retry = Requeue::After(wait);
            Ok(write::waits(Reason::RolloutWaiting, TAKEN_BACK, retry))
        }
        Templating::Lost(_) => {
            let Some(inputs) = inputs else {
                return Ok(Templated::Untouched);
            };
            let (field, rival) = lost(context, &actor.namespace, &inputs.workload).await?;
            Ok(inputs.lost(field, rival))
        }
        Templating::Apply => match inputs {
            Some(inputs) => write(context, actor, inputs).await,
            None => Ok(Templated::Untouched),
        },
    }
}

async fn write(context: &Context, actor: &Key, inputs: TemplateInputs) -> Result<Templated, Error> {
    let (bindings, namespace) = (&context.bindings, &*actor.namespace);
    if let Some(waits) = inputs.before_read(bindings.probes.turn(actor)) {
        return Ok(waits);
    }
    let Some(resource) = bindings.resource_of(&inputs.workload) else {
        return Ok(Templated::Untouched);
    };
    let body = bindings.body(&context.client, namespace, &inputs.workload);
    let Some(body) = body.await.map_err(Error::Api)? else {
        return Ok(Templated::Untouched);
    };
    write::confirm(&inputs.workload, &body)?;
    let sidecar = &context.installation.settings.sidecar_resources;
    let live = Live::of(&inputs.workload, &body, None);
    let part = match inputs.part_of((&live, &body), sidecar) {
        Ok(part) => part,
        Err(waits) => return Ok(waits),
    };
    let patch = body_of(&inputs.workload, Some(&part));
    let writer = context.applier.writer(namespace).await;
    let writer = writer.map_err(Error::Api)?;
    let apply = Apply {
        namespace,
        resource: &resource,
        manager: manager::TEMPLATE,
        body: &patch,
    };
    let tried = match apply.dry_run(&writer, &body).await {
        Ok(tried) => tried,
        Err(error) => return not_written(inputs, error),
    };
    if let Some(refusal) = inputs.refusal(&body, &tried.data) {
        return Ok(refusal);
    }
    if let Some(waits) = template_probe::ask(context, actor, &inputs, &tried.data).await? {
        return Ok(waits);
    }
    let answer = match apply.write(&writer).await {
        Ok(answer) => answer,
        Err(error) => return not_written(inputs, error),
    };
    bindings.wrote(actor);
    Ok(inputs.applied(answer, manager::TEMPLATE))
}

fn not_written(inputs: TemplateInputs, error: kube::Error) -> Result<Templated, Error> {
    if let Some((field, rival)) = taken(&error) {
        return Ok(inputs.lost(field, Some(rival)));
    }
    let refused = StepError::of_write(&inputs.workload.to_string(), error);
    refused.fault().map(write::refused)
}

/// Gives up everything we own in a workload's pod template, which restores it as it was before.
pub(super) async fn release(
    context: &Context,
    actor: &Key,
    workload: &ObjectRef,
) -> Result<(), Error> {
    let nothing = body_of(workload, None);
    let body = (manager::TEMPLATE, &nothing);
    let released = parent::apply(context, &actor.namespace, workload, body);
    released.await.map_err(Error::Api)?;
    context.bindings.wrote(actor);
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
    namespace: &str,
    workload: &ObjectRef,
) -> Result<(String, Option<String>), Error> {
    let unknown = || (TEMPLATE.join("."), None);
    let key = Key::new(namespace, &workload.name);
    let Some(resource) = context.bindings.resource_of(workload) else {
        return Ok(unknown());
    };
    let Some(live) = rival::metadata(context, &resource, &key).await? else {
        return Ok(unknown());
    };
    let entries = live.managed_fields.as_deref().unwrap_or_default();
    let path = first_missing(entries, manager::TEMPLATE, parts());
    Ok(path.map_or_else(unknown, |path| (Segment::text(&path), named(&live, &path))))
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
