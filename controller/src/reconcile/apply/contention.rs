//! Records contention over the fields of a binding's target and of our `ScaledObject` (CONF-3 to CONF-5), and finds the
//! manager that changed a field. Our watches of foreign kinds drop `managedFields`, so that costs a read after each
//! conflict (CONF-8).

use std::time::Duration;

use asya_shared::names::annotation::{self, AUTOSCALER_CLASS};
use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, manager};
use asya_shared::resolve::ObjectRef;
use asya_shared::scaling::hpa_name;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::context::Context;
use crate::fault::{ConflictingField, Error};
use crate::reconcile::contention::FieldDecision;
use crate::reconcile::contention::drift_restore::RestoredDrift;
use crate::reconcile::contention::field_manager::{
    PathElement, describe_manager, first_unowned, first_unowned_field,
};
use crate::reconcile::contention::history::{FieldConflict, FieldEvent};
use crate::reconcile::model::outcome::BindingOutcome;
use crate::reconcile::plan::contested_fields::{ContestedField, ContestedFields};
use crate::reconcile::plan::drift::Drift;
use crate::reconcile::plan::replicas::{self, REPLICAS};
use crate::record::{AppliedRecord, Key, ScaledObject, ScaledObjectRecord};

/// Path of the pod template in a workload.
const TEMPLATE: [&str; 2] = ["spec", "template"];
/// Reported if no field is missing from `managedFields`, because items of lists are not compared.
const CONTAINERS: [&str; 4] = ["spec", "template", "spec", "containers"];

/// Whether this reconcile wrote a contested field.
pub(super) enum FieldWrite {
    Skipped,
    Written,
    /// The API server rejected the write, because another manager owns the field.
    Conflict(ConflictingField),
}

/// Records the outcome for one of the contested `fields`.
pub(super) async fn record(
    context: &Context,
    field: &ContestedField,
    fields: &ContestedFields,
    decision: FieldDecision,
    write: FieldWrite,
    outcome: &mut BindingOutcome,
) -> Result<(), Error> {
    let name = &*fields.scaled_object_key.name;
    let conflict = |changed: ChangedField| {
        FieldEvent::Conflict(FieldConflict {
            field: changed.path,
            object: field.object(name),
            manager: changed.manager,
            revision: fields.revision.clone(),
            yields: false,
        })
    };
    let event = match (decision, write) {
        (FieldDecision::Keep, _) => Some(FieldEvent::Reset),
        (FieldDecision::AwaitReset(wait) | FieldDecision::Wait(wait), _) => {
            outcome.contention.recheck_within(wait);
            None
        }
        (FieldDecision::Write, FieldWrite::Skipped) => None,
        (FieldDecision::Write, FieldWrite::Written) => Some(FieldEvent::Written),
        (FieldDecision::Write, FieldWrite::Conflict(owned)) => {
            let path = owned.field;
            let manager = Some(owned.manager);
            Some(conflict(ChangedField { path, manager }))
        }
        (FieldDecision::RecordConflict, _) => {
            let found = find_conflict(context, &fields.scaled_object_key, field).await?;
            found.map(conflict)
        }
        (FieldDecision::Yield, _) => {
            if let Some(scaled) = &mut outcome.common.scaling {
                scaled.fault = scaled.fault.take().or(field.yielded_fault(name));
            }
            None
        }
    };
    if let Some(event) = event {
        if matches!(event, FieldEvent::Conflict(_)) {
            outcome.contention.recheck_within(Duration::ZERO);
        }
        outcome.contention.field_events.push((field.part(), event));
    }
    Ok(())
}

/// The decisions about contention over what scales a binding.
pub(super) struct ScalingContention {
    /// Over our `ScaledObject`; `None` while it is unknown what to scale.
    pub(super) scaled_object: Option<FieldDecision>,
    /// Over the target's number of pods.
    pub(super) replicas: Option<FieldDecision>,
}

/// Records contention over the `ScaledObject`, once scaling is reconciled, and over the target's replicas.
pub(super) async fn record_scaling(
    context: &Context,
    fields: &ContestedFields,
    contention: ScalingContention,
    outcome: &mut BindingOutcome,
) -> Result<(), Error> {
    let Some(decision) = contention.scaled_object else {
        return Ok(());
    };
    let mut applied = outcome.common.applied.iter();
    let write = if applied.any(|entry| entry.kind == "ScaledObject") {
        FieldWrite::Written
    } else {
        FieldWrite::Skipped
    };
    let field = &fields.scaled_object;
    record(context, field, fields, decision, write, outcome).await?;
    if let Some((field, decision)) = fields.replicas.as_ref().zip(contention.replicas) {
        let write = FieldWrite::Skipped;
        record(context, field, fields, decision, write, outcome).await?;
    }
    Ok(())
}

/// A field that another manager changed or owns.
pub(super) struct ChangedField {
    /// As shown to users.
    pub(super) path: String,
    /// `None` if it is not known.
    pub(super) manager: Option<String>,
}

/// Identifies the field and the manager that changed it; `None` if no write counts as a conflict.
pub(super) async fn find_conflict(
    context: &Context,
    scaled_object: &Key,
    field: &ContestedField,
) -> Result<Option<ChangedField>, Error> {
    match field {
        ContestedField::ScaledObject(desired) => {
            let changed = changed_scaled_object_field(context, scaled_object, desired.as_ref());
            changed.await.map(Some)
        }
        ContestedField::Autoscaler(owner) => {
            let path = PathElement::path(&["metadata", "annotations", AUTOSCALER_CLASS]);
            let manager = read_manager(context, &scaled_object.namespace, owner, &path).await?;
            Ok(Some(ChangedField {
                path: PathElement::text(&path),
                manager,
            }))
        }
        ContestedField::Replicas(workload) => {
            changed_replicas(context, scaled_object, workload).await
        }
    }
}

async fn changed_scaled_object_field(
    context: &Context,
    scaled_object: &Key,
    desired: Option<&Value>,
) -> Result<ChangedField, Error> {
    let unknown = || ChangedField {
        path: "spec".to_owned(),
        manager: None,
    };
    let Some(desired) = desired else {
        return Ok(unknown());
    };
    let existing = read_metadata(context, &scaled_objects(), scaled_object).await?;
    let changed = existing.and_then(|existing| {
        let entries = existing.managed_fields.as_deref().unwrap_or_default();
        let path = first_unowned_field(entries, ScaledObjectRecord::MANAGER, desired)?;
        Some(ChangedField::in_object(&existing, &path))
    });
    Ok(changed.unwrap_or_else(unknown))
}

/// Finds the manager of replicas that neither we nor KEDA set; `None` if nothing shows that there is one.
async fn changed_replicas(
    context: &Context,
    scaled_object: &Key,
    workload: &ObjectRef,
) -> Result<Option<ChangedField>, Error> {
    let Some(resource) = context.bindings.resource_of(workload) else {
        return Ok(None);
    };
    let key = Key::new(&scaled_object.namespace, &workload.name);
    let Some(existing) = read_metadata(context, &resource, &key).await? else {
        return Ok(None);
    };
    let Some(manager) = replicas::other_field_manager(&existing) else {
        return Ok(None);
    };
    let scaling = read_metadata(context, &scaled_objects(), scaled_object).await?;
    if replicas::predate_scaling(&existing, scaling.as_ref())
        || !still_differ(context, scaled_object, workload).await?
    {
        return Ok(None);
    }
    Ok(Some(ChangedField {
        path: PathElement::text(&PathElement::path(&REPLICAS)),
        manager: Some(manager),
    }))
}

impl ChangedField {
    fn in_object(metadata: &ObjectMeta, path: &[PathElement]) -> Self {
        Self {
            path: PathElement::text(path),
            manager: describe_manager(metadata, path),
        }
    }
}

/// Whether replicas and HPA also differ at the API server. Their watches are not in step, so the caches may differ
/// although nobody else writes (SAFE-26).
async fn still_differ(
    context: &Context,
    scaled_object: &Key,
    workload: &ObjectRef,
) -> Result<bool, Error> {
    let namespace = &scaled_object.namespace;
    let record = context.scaled_objects.store.get(scaled_object);
    let name = record.and_then(|it| it.hpa_name.as_deref().map(str::to_owned));
    let name = name.unwrap_or_else(|| hpa_name(&scaled_object.name));
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(context.client.clone(), namespace);
    let hpa = hpas.get_opt(&name).await.map_err(Error::Api)?;
    let desired = hpa.and_then(|hpa| Some(hpa.status?.desired_replicas));
    let bindings = &context.bindings;
    let body = bindings.read_object(&context.client, namespace, workload);
    let body = body.await.map_err(Error::Api)?;
    let current = body.and_then(|body| body.pointer("/spec/replicas")?.as_i64()?.try_into().ok());
    Ok(replicas::differ(desired, current))
}

/// Returns the first field of each object that we no longer own, and its current manager.
pub(super) async fn find_causes(
    context: &Context,
    drifts: Vec<Drift>,
) -> Result<Vec<RestoredDrift>, Error> {
    let mut causes = Vec::with_capacity(drifts.len());
    for drift in drifts {
        let existing = read_metadata(context, &drift.resource, &drift.key).await?;
        let entries = existing
            .as_ref()
            .and_then(|it| it.managed_fields.as_deref());
        let path = match &drift.desired {
            None => PathElement::path(&REPLICAS),
            Some(desired) => {
                first_unowned_field(entries.unwrap_or_default(), drift.manager, desired)
                    .unwrap_or_else(|| PathElement::path(&CONTAINERS))
            }
        };
        causes.push(RestoredDrift {
            part: drift.part,
            uid: drift.uid,
            object: format!("{}/{}", drift.resource.kind, drift.key.name),
            manager: existing.and_then(|existing| describe_manager(&existing, &path)),
            field: PathElement::text(&path),
        });
    }
    Ok(causes)
}

/// Returns the first field that we no longer own, and its current manager (CONF-8).
pub(super) async fn first_changed_field(
    context: &Context,
    namespace: &str,
    workload: &ObjectRef,
) -> Result<ChangedField, Error> {
    let unknown = || ChangedField {
        path: TEMPLATE.join("."),
        manager: None,
    };
    let key = Key::new(namespace, &workload.name);
    let Some(resource) = context.bindings.resource_of(workload) else {
        return Ok(unknown());
    };
    let Some(existing) = read_metadata(context, &resource, &key).await? else {
        return Ok(unknown());
    };
    let entries = existing.managed_fields.as_deref().unwrap_or_default();
    let path = first_unowned(entries, manager::TEMPLATE, owned_paths());
    Ok(path.map_or_else(unknown, |path| ChangedField::in_object(&existing, &path)))
}

fn owned_paths() -> Vec<Vec<PathElement>> {
    let below = |path: &[&str]| PathElement::path(&[&TEMPLATE[..], path].concat());
    let container = |list: &str, name: &str| {
        let mut path = below(&["spec", list]);
        path.push(PathElement::Item(json!({"name": name})));
        path
    };
    vec![
        container("containers", RUNTIME_CONTAINER),
        container("containers", SIDECAR_CONTAINER),
        below(&["metadata", "annotations", annotation::INJECTED_BY]),
    ]
}

/// Describes the field manager that now owns a field, and the controller of the object, because many field managers are
/// just called "manager".
pub(super) async fn read_manager(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    path: &[PathElement],
) -> Result<Option<String>, Error> {
    let Some(resource) = context.bindings.resource_of(object) else {
        return Ok(None);
    };
    let key = Key::new(namespace, &object.name);
    let existing = read_metadata(context, &resource, &key).await?;
    Ok(existing.and_then(|existing| describe_manager(&existing, path)))
}

/// Reads the metadata of an object, including `managedFields`.
async fn read_metadata(
    context: &Context,
    resource: &ApiResource,
    key: &Key,
) -> Result<Option<ObjectMeta>, Error> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &key.namespace, resource);
    let existing = api.get_metadata_opt(&key.name).await.map_err(Error::Api)?;
    Ok(existing.map(|existing| existing.metadata))
}

fn scaled_objects() -> ApiResource {
    ApiResource::erase::<ScaledObject>(&())
}
