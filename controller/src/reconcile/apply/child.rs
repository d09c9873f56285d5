//! Writes of one child, whatever its kind.

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
use crate::reconcile::plan::{Step, not_owned};
use crate::record::{AppliedRecord, Key, LastApplied, Metadata};

/// Phase of an object that was applied and is not being deleted.
pub const APPLIED: &str = "Applied";

/// Does about a child what the plan says, but deletes nothing. Answers the object where it was applied.
pub(super) async fn apply_child<R>(
    observed: &Observed,
    (objects, found): (&Objects<R>, &Child<R>),
    key: &Key,
    (step, wanted): (&Step, &HashedManifest),
) -> Result<Result<Option<Arc<R>>, Fault>, Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let Step::Apply { take_over } = step else {
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

/// Makes a child where nothing has its name. What has it is left alone, unless it is ours: no watch has shown it then.
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
        // Its end is an event, and then it is made anew.
        Child::Ours(found) if found.metadata().deleting => Ok(Ok(None)),
        Child::Ours(found) => update(objects, &found, (found.last().former, wanted)).await,
    }
}

/// Makes a child what it should be.
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
    step: &Step,
) -> Result<(), Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    match step {
        Step::Delete(uid) => Ok(objects.delete(key, uid).await?),
        Step::Keep | Step::Apply { .. } | Step::Wait => Ok(()),
    }
}

/// What status remembers of a child that was applied.
pub(super) fn entry_of<R: AppliedRecord>(record: &R, wanted: &HashedManifest) -> InventoryEntry {
    let (group, kind) = (R::Kind::group(&()), R::Kind::kind(&()));
    entry(
        (&group, &kind),
        record.metadata(),
        record.last(),
        &wanted.hash,
    )
}

/// What status remembers of an object that was applied.
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
