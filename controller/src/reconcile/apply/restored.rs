//! Finds out who changed an object of ours before it is restored, because nothing shows it afterwards (WRK-8).

use asya_shared::api::WorkloadKind;
use asya_shared::inject::Replicas;
use asya_shared::names::manager;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::api::ApiResource;
use serde_json::Value;

use super::rival;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::contention::Part;
use crate::reconcile::contention::field_owner::{Segment, missing};
use crate::reconcile::contention::restoring::{Restored, Restoring};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::restore::Restore;
use crate::record::{AppliedRecord, Key, ScaledObject, ScaledObjectRecord};

/// Reported where no single field is found, because items of lists are not compared.
const CONTAINERS: [&str; 4] = ["spec", "template", "spec", "containers"];
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Returns the changes that are about to be restored.
pub(super) async fn look(
    context: &Context,
    observed: &Observed,
    plan: Restore,
    ensured: &mut Ensured,
) -> Result<Vec<Restored>, Error> {
    let mut found = Vec::new();
    for what in [plan.workload, plan.scaled_object].into_iter().flatten() {
        if let Restoring::In(wait) = what {
            ensured.contests.look_again(wait);
        }
    }
    if plan.workload == Some(Restoring::Now) {
        found.extend(workload(context, observed).await?);
    }
    if plan.scaled_object == Some(Restoring::Now) {
        found.extend(scaled_object(context, observed).await?);
    }
    Ok(found)
}

/// Records those of `found` that were restored.
pub(super) fn book(found: Vec<Restored>, ensured: &mut Ensured) {
    let applied = &ensured.applied;
    let restored = found.into_iter().filter(|it| {
        let mut applied = applied.iter();
        applied.any(|entry| entry.uid.as_ref() == Some(&it.uid))
    });
    ensured.contests.restored = restored.collect();
}

async fn workload(context: &Context, observed: &Observed) -> Result<Option<Restored>, Error> {
    let (Some(own), Some(found)) = (observed.standalone(), observed.workload.ours()) else {
        return Ok(None);
    };
    let resource = match found.kind {
        WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
        WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
    };
    let replicas = matches!(own.workload.replicas, Replicas::Enforced(_)) && !found.owns_replicas;
    let wanted = (!replicas).then_some(&own.workload.kept.object);
    let applied = (manager::WORKLOAD, wanted);
    let (field, rival) = changed(context, (&resource, observed.key()), applied).await?;
    Ok(Some(Restored {
        part: Part::Workload,
        uid: found.metadata.uid.to_string(),
        object: format!("{}/{}", found.kind.name(), observed.key().name),
        field,
        rival,
    }))
}

async fn scaled_object(context: &Context, observed: &Observed) -> Result<Option<Restored>, Error> {
    let (Some(found), Some(Ok(wanted))) = (
        observed.scaling.scaled_object.ours(),
        observed.scaling_objects(),
    ) else {
        return Ok(None);
    };
    let resource = ApiResource::erase::<ScaledObject>(&());
    let applied = (
        ScaledObjectRecord::MANAGER,
        Some(&wanted.scaled_object.object),
    );
    let (field, rival) = changed(context, (&resource, observed.key()), applied).await?;
    Ok(Some(Restored {
        part: Part::ScaledObject,
        uid: found.metadata.uid.to_string(),
        object: format!("ScaledObject/{}", observed.key().name),
        field,
        rival,
    }))
}

/// Returns the first field that `manager` no longer owns, and its current owner. Without `wanted`, the field is the
/// number of replicas.
async fn changed(
    context: &Context,
    (resource, key): (&ApiResource, &Key),
    (manager, wanted): (&str, Option<&Value>),
) -> Result<(String, Option<String>), Error> {
    let live = rival::metadata(context, resource, key).await?;
    let entries = live.as_ref().and_then(|it| it.managed_fields.as_deref());
    let path = match wanted {
        None => Segment::path(&REPLICAS),
        Some(wanted) => missing(entries.unwrap_or_default(), manager, wanted)
            .unwrap_or_else(|| Segment::path(&CONTAINERS)),
    };
    let rival = live.as_ref().and_then(|live| rival::named(live, &path));
    Ok((Segment::text(&path), rival))
}
