//! Writes a child of any kind.

use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use asya_shared::resolve::GroupKind;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;

use crate::cluster::objects::Objects;
use crate::fault::{Error, StepError};
use crate::reconcile::model::child::APPLIED;
use crate::reconcile::plan::child::{
    ChildAction, ChildUpdate, PlannedChild, after_rejected_creation,
};
use crate::record::{AppliedRecord, Key, LastApplied, Metadata};

pub(super) struct AppliedObject<R> {
    pub(super) record: Arc<R>,
    pub(super) entry: InventoryEntry,
}

/// Creates or updates a child as planned; never deletes it. Returns the object if it was applied.
pub(super) async fn apply_child<R>(
    objects: &Objects<R>,
    child: &PlannedChild<R>,
) -> Result<Option<AppliedObject<R>>, StepError>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    let key = &child.key;
    let (update, desired) = match &child.action {
        ChildAction::None | ChildAction::Delete(_) => return Ok(None),
        ChildAction::Update(update, desired) => {
            objects.check_impersonation(key).await?;
            (update.clone(), desired)
        }
        ChildAction::Create(desired) => {
            objects.check_impersonation(key).await?;
            let rejection = match objects.create(key, R::MANAGER, &desired.object).await {
                Ok(record) => return Ok(Some(applied(record, desired))),
                Err(error) => StepError::of_write(&describe::<R>(key), error),
            };
            if !rejection.object_may_exist() {
                return Err(rejection);
            }
            let existing = objects.read(key).await.map_err(Error::Api)?;
            match after_rejected_creation(&child.ownership, existing, rejection)? {
                Some(update) => (update, desired),
                None => return Ok(None),
            }
        }
    };
    let ChildUpdate {
        uid,
        previous_owner,
        take_over,
    } = &update;
    let successor = &child.ownership.actor.metadata.uid;
    if let Some(owner) = previous_owner {
        objects.reparent(key, uid, owner, successor).await?;
    }
    if let Some(index) = take_over {
        objects.take_over(key, uid, *index, R::MANAGER).await?;
    }
    match objects.update(key, uid, R::MANAGER, &desired.object).await {
        Ok(record) => Ok(Some(applied(record, desired))),
        Err(error) => Err(StepError::of_write(&describe::<R>(key), error)),
    }
}

fn describe<R: AppliedRecord>(key: &Key) -> String {
    format!("{} {key}", R::Kind::kind(&()))
}

/// Deletes a child if planned.
pub(super) async fn delete_child<R>(
    objects: &Objects<R>,
    child: &PlannedChild<R>,
) -> Result<(), Error>
where
    R: AppliedRecord,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    match &child.action {
        ChildAction::Delete(uid) => Ok(objects.delete(&child.key, uid).await?),
        ChildAction::None | ChildAction::Create(_) | ChildAction::Update(..) => Ok(()),
    }
}

fn applied<R: AppliedRecord>(record: Arc<R>, desired: &HashedManifest) -> AppliedObject<R> {
    let kind = GroupKind {
        group: &R::Kind::group(&()),
        kind: &R::Kind::kind(&()),
    };
    let entry = inventory_entry(
        kind,
        record.metadata(),
        record.last_applied(),
        &desired.hash,
    );
    AppliedObject { record, entry }
}

/// The inventory entry of an applied object.
pub fn inventory_entry(
    GroupKind { group, kind }: GroupKind<'_>,
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
        applied_generation: None,
    }
}

#[cfg(test)]
mod tests;
