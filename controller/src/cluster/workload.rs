//! Workloads of both kinds: cached and uncached reads, and writes.

mod fields;
mod immutable;

use std::sync::Arc;

use asya_shared::api::WorkloadKind;
use asya_shared::names::{annotation, manager};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::{Value, json};

use super::impersonation::Impersonation;
use super::objects::{Objects, WriteError, write_error};
use crate::record::{Key, Metadata, TypedWorkload, WorkloadRecord};

pub use immutable::SELECTOR;

/// Reads and writes workloads.
pub struct WorkloadApi {
    impersonation: Impersonation,
    pub deployments: Objects<TypedWorkload<Deployment>>,
    pub stateful_sets: Objects<TypedWorkload<StatefulSet>>,
}

impl WorkloadApi {
    /// Applies workloads through `impersonation`.
    pub fn new(impersonation: &Impersonation) -> Self {
        Self {
            impersonation: impersonation.clone(),
            deployments: Objects::new(impersonation),
            stateful_sets: Objects::new(impersonation),
        }
    }

    /// Returns the cached workload of a name.
    pub fn cached(&self, kind: WorkloadKind, key: &Key) -> Option<Arc<WorkloadRecord>> {
        match kind {
            WorkloadKind::Deployment => of_kind(self.deployments.store.get(key)),
            WorkloadKind::StatefulSet => of_kind(self.stateful_sets.store.get(key)),
        }
    }

    /// Reads the workload from the API server, past the cache, even if it lacks the labels that the watches select.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn read(
        &self,
        kind: WorkloadKind,
        key: &Key,
    ) -> Result<Option<Arc<WorkloadRecord>>, kube::Error> {
        Ok(match kind {
            WorkloadKind::Deployment => of_kind(self.deployments.read(key).await?),
            WorkloadKind::StatefulSet => of_kind(self.stateful_sets.read(key).await?),
        })
    }

    /// Applies `object` to a workload; another object that has taken its name is left as it is.
    ///
    /// # Errors
    /// 409 if it no longer exists; otherwise if the API server rejects the write or fails.
    pub async fn update(
        &self,
        workload: &WorkloadRecord,
        object: &Value,
    ) -> Result<Arc<WorkloadRecord>, kube::Error> {
        self.update_as(workload, manager::WORKLOAD, object).await
    }

    /// Like [`Self::update`], but only if the workload is still as the cache has it.
    ///
    /// # Errors
    /// Also 409 if it has changed.
    pub async fn update_unchanged(
        &self,
        workload: &WorkloadRecord,
        object: &Value,
    ) -> Result<Arc<WorkloadRecord>, kube::Error> {
        let mut object = object.clone();
        let version = workload.metadata.resource_version.to_string();
        object["metadata"]["resourceVersion"] = version.into();
        self.update(workload, &object).await
    }

    async fn update_as(
        &self,
        workload: &WorkloadRecord,
        manager: &str,
        object: &Value,
    ) -> Result<Arc<WorkloadRecord>, kube::Error> {
        let Metadata { key, uid, .. } = &workload.metadata;
        Ok(match workload.kind {
            WorkloadKind::Deployment => {
                let written = self.deployments.update(key, uid, manager, object).await?;
                Arc::clone(&written.record)
            }
            WorkloadKind::StatefulSet => {
                let written = self.stateful_sets.update(key, uid, manager, object).await?;
                Arc::clone(&written.record)
            }
        })
    }

    /// Creates the workload. Leaves an existing one of its name unchanged.
    ///
    /// # Errors
    /// 409 if one exists; otherwise if the API server rejects the write or fails.
    pub async fn create(
        &self,
        kind: WorkloadKind,
        key: &Key,
        object: &Value,
    ) -> Result<Arc<WorkloadRecord>, kube::Error> {
        let deployments = &self.deployments;
        let stateful_sets = &self.stateful_sets;
        Ok(match kind {
            WorkloadKind::Deployment => {
                let written = deployments.create(key, manager::WORKLOAD, object).await?;
                Arc::clone(&written.record)
            }
            WorkloadKind::StatefulSet => {
                let written = stateful_sets.create(key, manager::WORKLOAD, object).await?;
                Arc::clone(&written.record)
            }
        })
    }

    /// Hands the current number of replicas off to a separate field manager, so that it is kept when the operator stops
    /// applying it: a field without an owner falls back to 1.
    ///
    /// # Errors
    /// If the API server rejects the write or fails.
    pub async fn hand_off_replicas(&self, workload: &WorkloadRecord) -> Result<(), kube::Error> {
        let applied = self.set_replicas(workload, workload.desired).await;
        applied.map(drop)
    }

    /// Sets the number of replicas under a separate field manager.
    ///
    /// # Errors
    /// If the API server rejects the write or fails.
    pub async fn set_replicas(
        &self,
        workload: &WorkloadRecord,
        replicas: i32,
    ) -> Result<Arc<WorkloadRecord>, kube::Error> {
        let key = &workload.metadata.key;
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": workload.kind,
            "metadata": {"name": &*key.name, "namespace": &*key.namespace},
            "spec": {"replicas": replicas},
        });
        self.update_as(workload, manager::REPLICAS_HANDOFF, &object)
            .await
    }

    /// Takes over the Go operator's fields, so that the next apply removes those that it does not contain (WRK-7).
    /// `index` is the position of its entry in `managedFields`.
    ///
    /// # Errors
    /// `Stale` if the entry no longer exists.
    pub async fn take_over_go_operator_fields(
        &self,
        workload: &WorkloadRecord,
        index: usize,
    ) -> Result<(), WriteError> {
        let key = &workload.metadata.key;
        let uid = &workload.metadata.uid;
        let deployments = &self.deployments;
        let stateful_sets = &self.stateful_sets;
        match workload.kind {
            WorkloadKind::Deployment => {
                deployments
                    .take_over(key, uid, index, manager::WORKLOAD)
                    .await
            }
            WorkloadKind::StatefulSet => {
                stateful_sets
                    .take_over(key, uid, index, manager::WORKLOAD)
                    .await
            }
        }
    }

    /// Deletes the workload, and its pods in the background. Succeeds if it does not exist.
    ///
    /// # Errors
    /// `Stale` if another object has its name.
    pub async fn delete(&self, workload: &WorkloadRecord) -> Result<(), WriteError> {
        let key = &workload.metadata.key;
        let uid = &workload.metadata.uid;
        match workload.kind {
            WorkloadKind::Deployment => self.deployments.delete(key, uid).await,
            WorkloadKind::StatefulSet => self.stateful_sets.delete(key, uid).await,
        }
    }

    /// Like [`Self::delete`], but only if the workload is still as it was read.
    ///
    /// # Errors
    /// `Stale` also if it has changed.
    pub async fn delete_unchanged(&self, workload: &WorkloadRecord) -> Result<(), WriteError> {
        let metadata = &workload.metadata;
        match workload.kind {
            WorkloadKind::Deployment => self.deployments.delete_unchanged(metadata).await,
            WorkloadKind::StatefulSet => self.stateful_sets.delete_unchanged(metadata).await,
        }
    }

    /// Removes the actor's owner reference from the workload, which then outlives it (FW-23).
    ///
    /// # Errors
    /// `Stale` if another object has its name.
    pub async fn orphan(&self, workload: &WorkloadRecord, actor: &str) -> Result<(), WriteError> {
        let key = &workload.metadata.key;
        let uid = &workload.metadata.uid;
        match workload.kind {
            WorkloadKind::Deployment => self.deployments.orphan(key, uid, actor).await,
            WorkloadKind::StatefulSet => self.stateful_sets.orphan(key, uid, actor).await,
        }
    }

    /// Makes the actor with the uid `successor` the owner of the workload, in place of the previous actor of its name
    /// (architecture, D13).
    ///
    /// # Errors
    /// `Stale` if another object has its name.
    pub async fn reparent(
        &self,
        workload: &WorkloadRecord,
        owner: &str,
        successor: &str,
    ) -> Result<(), WriteError> {
        let key = &workload.metadata.key;
        let uid = &workload.metadata.uid;
        match workload.kind {
            WorkloadKind::Deployment => self.deployments.reparent(key, uid, owner, successor).await,
            WorkloadKind::StatefulSet => {
                self.stateful_sets
                    .reparent(key, uid, owner, successor)
                    .await
            }
        }
    }

    /// Deletes the workload, but orphans its pods, which the next workload of its name adopts (FW-22).
    ///
    /// # Errors
    /// `Stale` if another object has its name.
    pub async fn delete_orphaning_pods(&self, workload: &WorkloadRecord) -> Result<(), WriteError> {
        let key = &workload.metadata.key;
        let uid = &workload.metadata.uid;
        match workload.kind {
            WorkloadKind::Deployment => self.deployments.delete_orphaning(key, uid).await,
            WorkloadKind::StatefulSet => self.stateful_sets.delete_orphaning(key, uid).await,
        }
    }

    /// Takes over the fields that kubectl and Helm own, and records that in an annotation on the workload (FW-22).
    ///
    /// # Errors
    /// `Stale` if the workload changed concurrently, or no longer exists.
    pub async fn take_over_kubectl_helm_fields(
        &self,
        workload: &WorkloadRecord,
    ) -> Result<(), WriteError> {
        let key = &workload.metadata.key;
        let existing = self.get_full(workload.kind, key).await;
        let existing = existing
            .map_err(WriteError::Api)?
            .filter(|existing| existing.metadata.uid.as_deref() == Some(&*workload.metadata.uid));
        let existing = existing.ok_or_else(|| WriteError::stale(workload.kind.name(), key))?;
        let entries = existing.metadata.managed_fields.iter().flatten();
        let entries: Vec<Value> = entries.map(|entry| json!(entry)).collect();
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": existing.metadata.resource_version,
            "managedFields": fields::kubectl_helm_fields_taken_over(&entries).unwrap_or(entries),
            "annotations": {annotation::RECLAIMED: "true"},
        }}));
        let params = PatchParams {
            field_manager: Some(manager::REPLICAS_HANDOFF.to_owned()),
            ..PatchParams::default()
        };
        match workload.kind {
            WorkloadKind::Deployment => {
                let patched = self.deployments.patch(key, &params, &patch).await;
                patched
                    .map(drop)
                    .map_err(|error| write_error::<TypedWorkload<Deployment>>(key, error))
            }
            WorkloadKind::StatefulSet => {
                let patched = self.stateful_sets.patch(key, &params, &patch).await;
                patched
                    .map(drop)
                    .map_err(|error| write_error::<TypedWorkload<StatefulSet>>(key, error))
            }
        }
    }

    /// Paths of the immutable fields in which the existing object differs from `object`.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn immutable_differences(
        &self,
        kind: WorkloadKind,
        key: &Key,
        object: &Value,
    ) -> Result<Vec<String>, kube::Error> {
        let existing = self.get_full(kind, key).await?;
        let existing =
            existing.map(|existing| immutable::differences(kind, object, &existing.data));
        Ok(existing.unwrap_or_default())
    }

    /// Returns why the API server would reject the workload as a new one; `None` if it would not. Changes nothing: one
    /// of its name exists, which is the only reason to reject a valid one.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn creation_rejection(
        &self,
        kind: WorkloadKind,
        key: &Key,
        object: &Value,
    ) -> Result<Option<String>, kube::Error> {
        let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        let client = self.impersonation.client(&key.namespace);
        let api: Api<DynamicObject> =
            Api::namespaced_with(client, &key.namespace, &resource_of(kind));
        let params = PostParams {
            dry_run: true,
            field_manager: Some(manager::WORKLOAD.to_owned()),
        };
        match api.create(&params, &object).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                Ok(rejection(&status))
            }
            Err(error) => Err(error),
        }
    }

    async fn get_full(
        &self,
        kind: WorkloadKind,
        key: &Key,
    ) -> Result<Option<DynamicObject>, kube::Error> {
        let client = self.impersonation.operator_client.clone();
        let api: Api<DynamicObject> =
            Api::namespaced_with(client, &key.namespace, &resource_of(kind));
        api.get_opt(&key.name).await
    }
}

fn resource_of(kind: WorkloadKind) -> ApiResource {
    match kind {
        WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
        WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
    }
}

/// Why a new workload would be rejected even if the old one were gone. A quota counts the old one, and a webhook that
/// does not support dry runs says nothing.
fn rejection(status: &Status) -> Option<String> {
    let is_undecided = status.is_already_exists()
        || status.code == 429
        || ["exceeded quota", "does not support dry run"]
            .iter()
            .any(|text| status.message.contains(text));
    (!is_undecided).then(|| status.message.clone())
}

fn of_kind<K>(typed: Option<Arc<TypedWorkload<K>>>) -> Option<Arc<WorkloadRecord>> {
    typed.map(|typed| Arc::clone(&typed.record))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::rejection;

    /// FW-22
    #[test]
    fn new_workload_is_rejected_unless_only_the_old_one_is_in_its_way() {
        for (code, reason, message, rejected) in [
            (
                409,
                "AlreadyExists",
                "statefulsets.apps \"a\" already exists",
                false,
            ),
            (
                403,
                "Forbidden",
                "exceeded quota: sets, requested: count/statefulsets.apps=1",
                false,
            ),
            (
                400,
                "BadRequest",
                "admission webhook \"w\" does not support dry run",
                false,
            ),
            (429, "TooManyRequests", "try again", false),
            (422, "Invalid", "spec.template.labels: Invalid value", true),
            (
                403,
                "Forbidden",
                "admission webhook \"w\" denied the request: no",
                true,
            ),
        ] {
            let status = Status::failure(message, reason).with_code(code);
            assert_eq!(rejection(&status).is_some(), rejected, "{message}");
        }
    }
}
