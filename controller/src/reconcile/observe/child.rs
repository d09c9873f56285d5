//! Observes the object under a child's name, and whether it is ours (SA-3).

use std::sync::Arc;

use asya_shared::api::{AsyncActorStatus, WorkloadKind};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;

use crate::cluster::objects::Objects;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::child::{Child, ChildOwnership};
use crate::reconcile::model::observed::is_reconcile_once_done;
use crate::record::{ActorRecord, AppliedRecord, Key, WorkloadRecord};

/// Whether to read a child from the API server if no watch shows it, since the watches select our labels. Not for an
/// object that will be applied (`is_desired`): the apply itself fails if a foreign object has the name. Once that has
/// happened (`child_name_taken`), a read costs less than another rejected apply. After a restart this is unknown
/// (`None`), so an actor that was reconciled before reads once. So does one that the Go operator reconciled, whose
/// objects lack our labels.
pub fn must_bypass_cache(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    is_desired: bool,
    child_name_taken: Option<bool>,
) -> bool {
    !is_desired
        || actor.annotations.paused
        || is_reconcile_once_done(actor, previous)
        || child_name_taken.unwrap_or(*previous != AsyncActorStatus::default())
}

/// Observes the object under the workload's name.
pub(super) async fn workload(
    context: &Context,
    ownership: &ChildOwnership,
    kind: WorkloadKind,
    bypasses_cache: bool,
) -> Result<Child<WorkloadRecord>, Error> {
    let key = &ownership.actor.metadata.key;
    let workloads = &context.workloads;
    let object = match workloads.cached(kind, key) {
        None if bypasses_cache => workloads.read(kind, key).await.map_err(Error::Api)?,
        cached => cached,
    };
    Ok(ownership.classify(object, |it| &it.metadata))
}

/// Observes a child of another kind. Objects that are not desired are not adopted.
pub(super) async fn child<R>(
    objects: &Objects<R>,
    key: &Key,
    ownership: &ChildOwnership,
    is_desired: bool,
    bypasses_cache: bool,
) -> Result<Child<R>, Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let object = match objects.store.get(key) {
        None if is_desired && bypasses_cache => objects.read(key).await.map_err(Error::Api)?,
        cached => cached,
    };
    let ownership = ChildOwnership {
        adopts: ownership.adopts && is_desired,
        actor: Arc::clone(&ownership.actor),
    };
    Ok(ownership.classify(object, R::metadata))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::must_bypass_cache;
    use crate::reconcile::tests::fixtures::{actor, observed, spec};

    /// SA-3, FW-21, FW-30, QUE-4
    #[test]
    fn unwatched_child_is_read_only_if_no_apply_would_detect_it() {
        let new = json!({});
        let reconciled = json!({"readyGeneration": 2, "mode": "Standalone"});
        let by_go_operator = json!({"status": "Running"});
        let plain = json!({});
        let paused = json!({"asya.sh/paused": "true"});
        let once = json!({"asya.sh/reconcile": "Once"});
        for (annotations, status, child_name_taken, is_desired, expected) in [
            (&plain, &new, None, true, false),
            (&plain, &reconciled, None, true, true),
            (&plain, &by_go_operator, None, true, true),
            (&plain, &reconciled, Some(false), true, false),
            (&plain, &reconciled, Some(false), false, true),
            (&plain, &reconciled, Some(true), true, true),
            (&paused, &reconciled, Some(false), true, true),
            (&once, &reconciled, Some(false), true, true),
        ] {
            let metadata = json!({"annotations": annotations});
            let observed = observed(&actor(&metadata, &spec(&json!({})), status));
            let bypasses_cache = must_bypass_cache(
                &observed.actor,
                &observed.previous,
                is_desired,
                child_name_taken,
            );
            assert_eq!(
                bypasses_cache, expected,
                "{annotations} {status} {child_name_taken:?} {is_desired}"
            );
        }
    }
}
