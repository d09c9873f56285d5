//! Applies and gives up our fields of foreign objects. Each apply lists everything that its field manager owns on the
//! object.
//!
//! Whether to keep an annotation that a plan leaves alone is decided here: an apply that does not list it would give it
//! up, so it is read immediately before the write. What follows a refused apply depends on the response.

use asya_shared::names::{annotation, manager};
use asya_shared::resolve::{ObjectRef, RolloutMethod, is_handed_off};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::cluster::foreign::{ApplyError, ForeignApply};
use crate::context::Context;
use crate::fault::{Error, Reason, StepError};
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::contention::history::FieldConflict;
use crate::reconcile::model::outcome::{HandoffChange, RolloutOutcome};
use crate::reconcile::plan::rollout::params::{AnnotatedObject, annotated_objects, manager_of};
use crate::record::Key;

/// The autoscaler class of an `InferenceService` that is scaled externally (SO-5).
const EXTERNAL: &str = "external";

/// The annotations that an object should carry.
#[derive(Clone, Copy)]
pub(super) struct TargetAnnotations<'a> {
    /// Value of the annotation that triggers a rollout.
    pub roll_value: Option<&'a str>,
    /// What to do about the autoscaler handoff annotation; `None` keeps the current state.
    pub handoff: Option<HandoffChange>,
    /// The object that carries the handoff annotation, if there is one.
    pub handoff_object: Option<&'a ObjectRef>,
}

/// Whether the object should carry the handoff annotation. To keep the current state, it is read past the cache, which
/// may lag behind our last write.
pub(super) async fn should_hand_off(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    annotations: TargetAnnotations<'_>,
) -> Result<bool, Error> {
    match annotations.handoff {
        Some(change) => Ok(change == HandoffChange::Set),
        None if annotations.handoff_object == Some(object) => {
            let body = read_body(context, namespace, object).await?;
            Ok(body.is_some_and(|body| is_handed_off(&body)))
        }
        None => Ok(false),
    }
}

/// Writes or gives up our annotations. Returns what prevented that, if anything.
pub(super) async fn write_annotations(
    context: &Context,
    namespace: &str,
    roll: &RolloutMethod,
    desired: TargetAnnotations<'_>,
    revision: SpecRevision,
) -> Result<Option<RolloutOutcome>, Error> {
    for annotated in annotated_objects(roll) {
        let AnnotatedObject {
            object,
            path,
            manager,
        } = annotated;
        let handoff = should_hand_off(context, namespace, object, desired).await?;
        let body = apply_body(object, path, desired.roll_value, handoff);
        let Err(error) = apply(context, namespace, object, manager, &body).await else {
            continue;
        };
        let fault = match error.into_conflict(&object.to_string()) {
            Ok(owned) => {
                return Ok(Some(RolloutOutcome::Conflict(FieldConflict {
                    field: reported_field(owned.field, path),
                    object: object.to_string(),
                    manager: Some(owned.manager),
                    revision,
                    yields: false,
                })));
            }
            Err(failed) => failed.fault()?,
        };
        let text = format!(
            "{}; until that is fixed, pods get the sidecar when they are restarted by other means",
            fault.message
        );
        return Ok(Some(RolloutOutcome::waiting(
            Reason::RolloutWaiting,
            text,
            fault.requeue,
        )));
    }
    Ok(None)
}

/// The field of a conflict, as shown to users. The body may also hold the autoscaler handoff annotation.
fn reported_field(conflict: String, path: &[&str]) -> String {
    if conflict.contains(annotation::ROLL) {
        roll_path(path)
    } else {
        conflict
    }
}

/// Path of our annotation, as shown to users.
pub(super) fn roll_path(path: &[&str]) -> String {
    format!("{}[{}]", path.join("."), annotation::ROLL)
}

/// Annotates the workload with the actor that binds it. The annotation is informational, so a rejection or removal is
/// accepted (BIND-47).
pub(super) async fn annotate_with_actor(
    context: &Context,
    actor: &Key,
    workload: &ObjectRef,
) -> Result<(), Error> {
    let mut body = minimal_body(workload);
    body["metadata"]["annotations"][annotation::MANAGED_BY] = json!(actor.name);
    apply_if_allowed(context, &actor.namespace, workload, &body).await
}

/// Removes the annotation from a workload of an actor being deleted.
pub(super) async fn remove_actor_annotation(
    context: &Context,
    namespace: &str,
    workload: &ObjectRef,
) -> Result<(), Error> {
    apply_if_allowed(context, namespace, workload, &minimal_body(workload)).await
}

async fn apply_if_allowed(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    body: &Value,
) -> Result<(), Error> {
    let Err(error) = apply(context, namespace, object, manager::BINDING, body).await else {
        return Ok(());
    };
    match error.into_conflict(&object.to_string()) {
        Err(StepError::Fault(fault)) => {
            debug!(
                fault.message,
                "cannot annotate the object with the actor that binds it"
            );
            Ok(())
        }
        // Another field manager owns the annotation.
        Ok(_) => Ok(()),
        Err(StepError::Error(error)) => Err(error),
    }
}

/// Gives up the rollout annotation on an object that no longer belongs to the target (SAFE-19).
pub(super) async fn remove_roll_annotation(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
) -> Result<(), Error> {
    let manager = manager_of(object);
    let given_up = apply(context, namespace, object, manager, &minimal_body(object)).await;
    let error = match given_up.map_err(Error::from) {
        Err(Error::Api(error)) => error,
        given_up => return given_up,
    };
    let fault = StepError::of_write(&object.to_string(), error).fault()?;
    warn!(
        fault.message,
        "cannot remove annotation asya.sh/roll from the object"
    );
    Ok(())
}

/// Gives up all our fields of a workload's pod template, which restores the original template (BIND-50).
pub(super) async fn give_up_template(
    context: &Context,
    actor: &Key,
    workload: &ObjectRef,
) -> Result<(), Error> {
    let manager = manager::TEMPLATE;
    let body = minimal_body(workload);
    apply(context, &actor.namespace, workload, manager, &body).await?;
    context.bindings.invalidate_target(actor);
    Ok(())
}

/// Builds the apply body with the rollout and handoff annotations. A body without annotations gives up those we had.
pub(super) fn apply_body(
    object: &ObjectRef,
    path: &[&str],
    roll: Option<&str>,
    handoff: bool,
) -> Value {
    let mut body = minimal_body(object);
    if let Some(value) = roll {
        let mut annotations = &mut body;
        for key in path {
            annotations = &mut annotations[*key];
        }
        annotations[annotation::ROLL] = json!(value);
    }
    if handoff {
        body["metadata"]["annotations"][annotation::AUTOSCALER_CLASS] = json!(EXTERNAL);
    }
    body
}

/// Applies `body` if that removes no fields but ours (SAFE-41). Succeeds if the object no longer exists or its kind is
/// not served.
pub(super) async fn apply(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    manager: &str,
    body: &Value,
) -> Result<(), ApplyError> {
    let bindings = &context.bindings;
    let Some(resource) = bindings.resource_of(object) else {
        return Ok(());
    };
    let Some(existing) = bindings
        .read_object(&context.client, namespace, object)
        .await?
    else {
        return Ok(());
    };
    let apply = ForeignApply {
        namespace,
        resource: &resource,
        manager,
        body,
    };
    let writer = context.impersonation.client_for(namespace).await?;
    let written = async {
        apply.dry_run(&writer, &existing).await?;
        apply.write(&writer).await
    };
    match written.await {
        Ok(_) => Ok(()),
        Err(ApplyError::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The body of an apply without fields, which gives up all that its field manager owns.
pub(super) fn minimal_body(object: &ObjectRef) -> Value {
    json!({
        "apiVersion": object.api_version,
        "kind": object.kind,
        "metadata": {"name": object.name, "uid": object.uid},
    })
}

pub(super) async fn read_body(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
) -> Result<Option<Value>, Error> {
    let bindings = &context.bindings;
    let body = bindings.read_object(&context.client, namespace, object);
    body.await.map_err(Error::Api)
}

#[cfg(test)]
mod tests {
    use super::reported_field;

    /// CONF-7
    #[test]
    fn conflict_names_the_field_that_another_manager_owns() {
        let path = ["spec", "template", "metadata", "annotations"];
        let class = "metadata.annotations.serving.kserve.io/autoscalerClass";
        for (conflict, expected) in [
            (
                "spec.template.metadata.annotations.asya.sh/roll",
                "spec.template.metadata.annotations[asya.sh/roll]",
            ),
            (class, class),
        ] {
            assert_eq!(reported_field(conflict.to_owned(), &path), expected);
        }
    }
}
