//! Our finalizer, put on and taken off by JSON patches with a test on the list: a merge would drop what
//! another adds at the same time.

use asya_shared::names::FINALIZER;
use json_patch::jsonptr::PointerBuf;
use json_patch::{
    AddOperation, Patch as JsonPatch, PatchOperation, RemoveOperation, TestOperation,
};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use serde_json::{Value, json};

use crate::reconcile::{Context, Error};
use crate::record::{ActorRecord, Seen};

/// Puts our finalizer on the actor.
pub(super) async fn add_finalizer(context: &Context, actor: &ActorRecord) -> Result<(), Error> {
    let change = if actor.finalizers.is_empty() {
        vec![
            test(&["metadata", "finalizers"], Value::Null),
            add(&["metadata", "finalizers"], json!([FINALIZER])),
        ]
    } else {
        vec![
            test(&["metadata", "finalizers"], json!(actor.finalizers)),
            add(&["metadata", "finalizers", "-"], json!(FINALIZER)),
        ]
    };
    patch_finalizers(context, actor, change).await
}

/// Takes our finalizer off the actor, which lets it go.
pub(super) async fn remove_finalizer(context: &Context, actor: &ActorRecord) -> Result<(), Error> {
    let Some(index) = actor
        .finalizers
        .iter()
        .position(|finalizer| &**finalizer == FINALIZER)
    else {
        return Ok(());
    };
    let change = vec![
        test(&["metadata", "finalizers"], json!(actor.finalizers)),
        PatchOperation::Remove(RemoveOperation {
            path: pointer(&["metadata", "finalizers", &index.to_string()]),
        }),
    ];
    patch_finalizers(context, actor, change).await
}

async fn patch_finalizers(
    context: &Context,
    actor: &ActorRecord,
    change: Vec<PatchOperation>,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let mut operations = vec![test(&["metadata", "uid"], json!(actor.metadata.uid))];
    operations.extend(change);
    let api: Api<Seen<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch = Patch::<()>::Json(JsonPatch(operations));
    match api.patch(&key.name, &PatchParams::default(), &patch).await {
        Ok(seen) => {
            context.stores.actors.wrote(&seen);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if is_failed_test(&status) => Err(Error::Stale("the actor")),
        Err(error) => Err(Error::Api(error)),
    }
}

/// The list changed, or the actor is another one. An object that is refused as a whole, because it was
/// stored before a rule of the API server's, answers 422, too, but with the fields that are wrong.
fn is_failed_test(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes);
    status.code == 422 && causes.is_none_or(Vec::is_empty)
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: pointer(path),
        value,
    })
}

fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: pointer(path),
        value,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_failed_test;

    /// FIN-1
    #[test]
    fn a_changed_list_is_told_from_an_object_that_is_refused() {
        for (details, changed) in [
            (json!({}), true),
            (
                json!({"causes": [{"reason": "FieldValueInvalid", "field": ".spec.workload.replicas"}]}),
                false,
            ),
        ] {
            let answer =
                json!({"status": "Failure", "code": 422, "reason": "Invalid", "details": details});
            let answer = serde_json::from_value(answer).unwrap();
            assert_eq!(is_failed_test(&answer), changed, "{details}");
        }
    }
}
