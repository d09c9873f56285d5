//! Observes the actor's own objects: the workload, its `ServiceAccount`, and KEDA's objects.

use std::sync::Arc;

use asya_shared::api::WorkloadKind;
use asya_shared::inject::service_account_name;
use asya_shared::scaling::{ScalingObjects, TriggerError, trigger_authentication_name};
use k8s_openapi::api::core::v1::ServiceAccount;

use super::child::{self, child};
use super::is_controlled_by;
use crate::cluster::store::Store;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::cache_sync::keda_is_synced;
use crate::reconcile::model::child::{Child, ChildOwnership};
use crate::reconcile::model::observed::ObservedScaling;
use crate::record::{ChildRecord, Key, Record, WorkloadRecord};

/// Reads the objects of one actor.
pub(super) struct Children<'a> {
    pub(super) context: &'a Context,
    pub(super) ownership: &'a ChildOwnership,
    /// Read objects that no watch shows from the API server.
    pub(super) bypasses_cache: bool,
}

/// The workloads under the actor's name.
pub(super) struct ObservedWorkloads {
    /// The object of the desired kind.
    pub(super) desired: Child<WorkloadRecord>,
    /// Our workload of the other kind, before a change of the kind (WRK-6).
    pub(super) previous: Option<Arc<WorkloadRecord>>,
    /// The kinds of the workloads that are not ours, although they have the actor's name.
    pub(super) orphaned: Vec<WorkloadKind>,
}

/// What scales the actor's pods.
pub(super) struct ScalingQuery<'a> {
    /// The KEDA objects to apply, or why no trigger can be built for the queue yet; `None` while scaling is off.
    pub(super) objects: Option<&'a Result<ScalingObjects, TriggerError>>,
    /// Name of the object to scale.
    pub(super) target: &'a str,
    /// Status names a `ScaledObject`.
    pub(super) was_scaled: bool,
}

impl Children<'_> {
    fn key(&self) -> &Key {
        &self.ownership.actor.metadata.key
    }

    pub(super) async fn workloads(&self, kind: WorkloadKind) -> Result<ObservedWorkloads, Error> {
        let actor = &self.ownership.actor;
        if actor.binds_to.is_some() {
            // Another controller creates the workload, so no object has the actor's name.
            return Ok(ObservedWorkloads {
                desired: Child::NotFound,
                previous: None,
                orphaned: Vec::new(),
            });
        }
        let desired = child::workload(self.context, self.ownership, kind, self.bypasses_cache);
        let desired = desired.await?;
        let other = self.context.workloads.cached(other_kind(kind), self.key());
        let (previous, orphan) = match other {
            Some(other) if is_controlled_by(other.metadata.controller.as_ref(), actor) => {
                (Some(other), None)
            }
            other => (None, other),
        };
        let foreign = match &desired {
            Child::Foreign(foreign) => Some(foreign),
            Child::Ours(_) | Child::NotFound => None,
        };
        let orphaned = foreign.into_iter().chain(&orphan);
        Ok(ObservedWorkloads {
            orphaned: orphaned.map(|it| it.kind).collect(),
            desired,
            previous,
        })
    }

    pub(super) async fn service_account(
        &self,
        is_desired: bool,
    ) -> Result<Child<ChildRecord<ServiceAccount>>, Error> {
        let Key { namespace, name } = self.key();
        let key = Key::new(namespace, &service_account_name(name));
        let accounts = &self.context.service_accounts;
        child(
            accounts,
            &key,
            self.ownership,
            is_desired,
            self.bypasses_cache,
        )
        .await
    }

    pub(super) async fn scaling(&self, query: ScalingQuery<'_>) -> Result<ObservedScaling, Error> {
        let Self {
            context,
            ownership,
            bypasses_cache,
        } = *self;
        let key = self.key();
        let installed = keda_is_synced(context, &key.namespace);
        let objects = query.objects.filter(|_| installed);
        let store = &context.scaled_objects;
        let is_desired = objects.is_some();
        let scaled_object = child(store, key, ownership, is_desired, bypasses_cache).await?;
        let authentication = Key::new(&key.namespace, &trigger_authentication_name(&key.name));
        let needs_authentication = objects.is_some_and(|objects| {
            let objects = objects.as_ref();
            objects.is_ok_and(|it| it.trigger_authentication.is_some())
        });
        let is_lost = !installed && scaled_object.ours().is_none() && query.was_scaled;
        Ok(ObservedScaling {
            installed,
            scaled_object,
            trigger_authentication: child(
                &context.trigger_authentications,
                &authentication,
                ownership,
                needs_authentication,
                bypasses_cache,
            )
            .await?,
            scaled_objects: autoscalers_of(&store.store, key, query.target),
            hpas: autoscalers_of(&context.stores.hpas, key, query.target),
            lost_for: is_lost.then(|| context.lost_scaled_objects.lost_for(key)),
        })
    }
}

fn other_kind(kind: WorkloadKind) -> WorkloadKind {
    match kind {
        WorkloadKind::Deployment => WorkloadKind::StatefulSet,
        WorkloadKind::StatefulSet => WorkloadKind::Deployment,
    }
}

/// Autoscaling objects for the actor itself, and those for the object that it scales.
fn autoscalers_of<R: Record>(store: &Store<R>, key: &Key, scaled: &str) -> Vec<Arc<R>> {
    let mut autoscalers = store.of_actor(key);
    if *key.name != *scaled {
        autoscalers.extend(store.of_actor(&Key::new(&key.namespace, scaled)));
    }
    autoscalers
}
