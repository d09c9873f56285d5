//! Writes a child of any kind.

use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde_json::Value;

use crate::cluster::objects::Objects;
use crate::fault::{Error, Fault};
use crate::fault::{may_be_taken, refused};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::{ChildStep, not_owned};
use crate::record::{AppliedRecord, Key, LastApplied, Metadata};

/// Phase of an object that was applied and is not being deleted.
pub const APPLIED: &str = "Applied";

/// Applies a child as planned, but deletes nothing. Returns the object if it was applied.
pub(super) async fn apply_child<R>(
    observed: &Observed,
    (objects, found): (&Objects<R>, &Child<R>),
    key: &Key,
    (step, wanted): (&ChildStep, &HashedManifest),
) -> Result<Result<Option<Arc<R>>, Fault>, Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let ChildStep::Apply { take_over } = step else {
        return Ok(Ok(None));
    };
    if let Err(fault) = objects.may_apply(key).await? {
        return Ok(Err(fault));
    }
    match found.ours() {
        Some(found) => update(objects, found, (*take_over, wanted)).await,
        None => create(observed, objects, key, wanted).await,
    }
}

/// Creates a child. An existing object of that name is left alone, unless it is one of ours that no watch has shown
/// yet.
async fn create<R>(
    observed: &Observed,
    objects: &Objects<R>,
    key: &Key,
    wanted: &HashedManifest,
) -> Result<Result<Option<Arc<R>>, Fault>, Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let refusal = match objects.create(key, R::MANAGER, &wanted.object).await {
        Ok(record) => return Ok(Ok(Some(record))),
        Err(error) => refused(&what::<R>(key), error),
    };
    if !may_be_taken(&refusal) {
        return refusal.map(Err);
    }
    let found = objects.live(key).await.map_err(Error::Api)?;
    match observed.ownership.judge(found, R::metadata) {
        Child::Absent => refusal.map(Err),
        Child::Foreign(found) => Ok(Err(not_owned(&R::Kind::kind(&()), found.metadata()))),
        // The watch reports its deletion, and the child is recreated then.
        Child::Ours(found) if found.metadata().deleting => Ok(Ok(None)),
        Child::Ours(found) => update(objects, &found, (found.last().former, wanted)).await,
    }
}

/// Updates a child to the wanted state.
async fn update<R>(
    objects: &Objects<R>,
    found: &R,
    (take_over, wanted): (Option<usize>, &HashedManifest),
) -> Result<Result<Option<Arc<R>>, Fault>, Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let Metadata { key, uid, .. } = found.metadata();
    let heir = wanted.object.pointer("/metadata/ownerReferences/0/uid");
    let heir = heir.and_then(Value::as_str).unwrap_or_default();
    if let Some(owner) = found.metadata().owner_before(heir) {
        objects.bequeath(key, uid, owner, heir).await?;
    }
    if let Some(index) = take_over {
        objects.take_over(key, uid, index, R::MANAGER).await?;
    }
    match objects.update(key, uid, R::MANAGER, &wanted.object).await {
        Ok(record) => Ok(Ok(Some(record))),
        Err(error) => refused(&what::<R>(key), error).map(Err),
    }
}

fn what<R: AppliedRecord>(key: &Key) -> String {
    format!("{} {key}", R::Kind::kind(&()))
}

/// Deletes a child if the plan says so.
pub(super) async fn delete_child<R>(
    objects: &Objects<R>,
    key: &Key,
    step: &ChildStep,
) -> Result<(), Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    match step {
        ChildStep::Delete(uid) => Ok(objects.delete(key, uid).await?),
        ChildStep::Keep | ChildStep::Apply { .. } | ChildStep::Wait => Ok(()),
    }
}

/// Inventory entry of an applied child.
pub(super) fn entry_of<R: AppliedRecord>(record: &R, wanted: &HashedManifest) -> InventoryEntry {
    let (group, kind) = (R::Kind::group(&()), R::Kind::kind(&()));
    entry(
        (&group, &kind),
        record.metadata(),
        record.last(),
        &wanted.hash,
    )
}

/// Inventory entry of an applied object.
pub fn entry(
    (group, kind): (&str, &str),
    metadata: &Metadata,
    last: &LastApplied,
    hash: &str,
) -> InventoryEntry {
    InventoryEntry {
        group: group.to_owned(),
        kind: kind.to_owned(),
        name: metadata.key.name.to_string(),
        uid: Some(metadata.uid.to_string()),
        phase: Some(APPLIED.to_owned()),
        hash: Some(hash.to_owned()),
        fingerprint: last.fingerprint.map(|fingerprint| fingerprint.to_string()),
    }
}

#[cfg(test)]
mod tests;
