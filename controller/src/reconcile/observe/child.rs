//! Observes the object under a child's name, and whether it is ours (SA-3).

use std::sync::Arc;

use asya_shared::api::{AsyncActorStatus, WorkloadKind};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;

use crate::cluster::objects::Objects;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::child::{Child, Ownership};
use crate::reconcile::model::observed::is_done_once;
use crate::record::{ActorRecord, AppliedRecord, Key, WorkloadRecord};

/// Whether to read a child from the API server if no watch shows it, since the watches select our labels. Not for an
/// object that will be applied (`wanted`): the apply itself fails if a foreign object has the name. Once that has
/// happened (`stranger`), a read costs less than another rejected apply. After a restart this is unknown (`None`), so
/// an actor that was reconciled before reads once.
pub fn asks(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    wanted: bool,
    stranger: Option<bool>,
) -> bool {
    !wanted
        || actor.annotations.paused
        || is_done_once(actor, previous)
        || stranger.unwrap_or(previous.mode.is_some())
}

/// Observes the object under the workload's name.
pub(super) async fn workload(
    context: &Context,
    ownership: &Ownership,
    kind: WorkloadKind,
    asks: bool,
) -> Result<Child<WorkloadRecord>, Error> {
    let key = &ownership.actor.metadata.key;
    let workloads = &context.workloads;
    let found = match workloads.seen(kind, key) {
        None if asks => workloads.live(kind, key).await.map_err(Error::Api)?,
        seen => seen,
    };
    Ok(ownership.judge(found, |it| &it.metadata))
}

/// Observes a child of another kind. Objects that are not `wanted` are not adopted.
pub(super) async fn child<R>(
    objects: &Objects<R>,
    key: &Key,
    ownership: &Ownership,
    (wanted, asks): (bool, bool),
) -> Result<Child<R>, Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let found = match objects.store.get(key) {
        None if wanted && asks => objects.live(key).await.map_err(Error::Api)?,
        seen => seen,
    };
    let ownership = Ownership {
        adopts: ownership.adopts && wanted,
        actor: Arc::clone(&ownership.actor),
    };
    Ok(ownership.judge(found, R::metadata))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::asks;
    use crate::reconcile::tests::fixtures::{actor, observed, spec};

    /// SA-3, FW-21, FW-30
    #[test]
    fn unwatched_child_is_read_only_if_no_apply_would_detect_it() {
        let (new, known) = (
            json!({}),
            json!({"readyGeneration": 2, "mode": "Standalone"}),
        );
        let (plain, paused) = (json!({}), json!({"asya.sh/paused": "true"}));
        let once = json!({"asya.sh/reconcile": "Once"});
        for (annotations, status, stranger, wanted, asked) in [
            (&plain, &new, None, true, false),
            (&plain, &known, None, true, true),
            (&plain, &known, Some(false), true, false),
            (&plain, &known, Some(false), false, true),
            (&plain, &known, Some(true), true, true),
            (&paused, &known, Some(false), true, true),
            (&once, &known, Some(false), true, true),
        ] {
            let metadata = json!({"annotations": annotations});
            let observed = observed(&actor(&metadata, &spec(&json!({})), status));
            let asks = asks(&observed.actor, &observed.previous, wanted, stranger);
            assert_eq!(asks, asked, "{annotations} {status} {stranger:?} {wanted}");
        }
    }
}
