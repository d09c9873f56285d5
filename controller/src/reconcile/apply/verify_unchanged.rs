//! Verifies with the API server what a plan assumed, before a step that cannot be undone: while a watch is down, the
//! store may lack `deletionPolicy: Retain`, the annotation that keeps the queue, or a pod with the actor's sidecar.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::names::label;
use asya_shared::resolve::ObjectRef;
use futures::FutureExt;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::broker::{BrokerError, BrokerResponse, DeletionGuard};
use crate::cluster::pods::list_unfinished;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::rollout::desired_replicas;
use crate::record::{ActorRecord, Key, ORPHAN, PodRecord, Projected, UNFINISHED};

/// How long a verification may be acted upon, counted from its request: the API server may have read the objects that
/// early (QUE-30, SAFE-11).
const VALID_FOR: Duration = Duration::from_secs(3);
/// How long a verification is reused: an actor's queues share one, and most evictions need none.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// The state of an actor and its pods that a plan assumed.
pub(super) struct PlannedState<'a> {
    context: &'a Context,
    actor: &'a ActorRecord,
    /// The actor's pods, if the plan depends on them.
    known_pods: Option<&'a [Arc<PodRecord>]>,
    verified_at: Mutex<Option<Instant>>,
}

impl<'a> PlannedState<'a> {
    pub(super) fn new(
        context: &'a Context,
        actor: &'a ActorRecord,
        known_pods: Option<&'a [Arc<PodRecord>]>,
    ) -> Self {
        Self {
            context,
            actor,
            known_pods,
            verified_at: Mutex::default(),
        }
    }

    pub(super) fn actor(&self) -> &'a ActorRecord {
        self.actor
    }

    /// Returns the deadline for acting on the plan. Fails if the actor has changed or has a pod that the plan did not
    /// know. The next reconcile plans with what was just read, even if the watch is still behind.
    pub(super) async fn verify(&self) -> Result<Instant, Error> {
        let known = *self.verified_at.lock();
        if let Some(at) = known.filter(|at| at.elapsed() < FRESH_FOR) {
            return Ok(at + VALID_FOR);
        }
        let started = Instant::now();
        verify_unchanged(self.context, self.actor).await?;
        if let Some(pods) = self.known_pods {
            verify_pods_known(self.context, &self.actor.metadata.key, pods).await?;
        }
        *self.verified_at.lock() = Some(started);
        Ok(started + VALID_FOR)
    }
}

impl DeletionGuard for PlannedState<'_> {
    fn confirm(&self) -> BrokerResponse<'_, Instant> {
        let unconfirmed = |error: Error| BrokerError::Unconfirmed(error.to_string());
        self.verify()
            .map(move |result| result.map_err(unconfirmed))
            .boxed()
    }
}

/// Fails if the pods of a target, or the number that it should have, are not as they were when its availability was
/// read, unless that was a moment ago: the API server or the broker may have answered slowly since (SAFE-11).
pub(super) async fn verify_availability(
    context: &Context,
    namespace: &str,
    planned: &Availability,
) -> Result<(), Error> {
    let stale = || Error::Stale("the target's pods");
    let source = planned.source.as_ref().ok_or_else(stale)?;
    if source.read_at.elapsed() < FRESH_FOR {
        return Ok(());
    }
    let started = Instant::now();
    let pods = list_unfinished(&context.client, namespace, &source.pods.labels).await;
    let current = Availability::of(&pods.map_err(Error::Api)?, &source.pods);
    let replicas = read_replicas(context, namespace, &source.replicas).await?;
    let is_unchanged = current.has_same_pods(planned) && replicas == planned.desired_replicas;
    if is_unchanged && started.elapsed() < VALID_FOR {
        Ok(())
    } else {
        Err(stale())
    }
}

/// Reads how many pods a target should have from the objects that specify it.
async fn read_replicas(
    context: &Context,
    namespace: &str,
    objects: &[ObjectRef],
) -> Result<Option<i32>, Error> {
    let mut specified = Vec::new();
    for object in objects {
        let body = context
            .bindings
            .read_object(&context.client, namespace, object);
        let body = body.await.map_err(Error::Api)?;
        specified.extend(body.and_then(|body| desired_replicas(object, &body)));
    }
    Ok(Availability::total_replicas(&specified))
}

async fn verify_unchanged(context: &Context, planned: &ActorRecord) -> Result<(), Error> {
    let key = &planned.metadata.key;
    let api: Api<Projected<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let current = api.get_opt(&key.name).await.map_err(Error::Api)?;
    let is_unchanged = |current: &ActorRecord| {
        current.metadata.uid == planned.metadata.uid
            && current.metadata.deleting == planned.metadata.deleting
            && current.generation == planned.generation
            && current.annotations == planned.annotations
            // Deleted again, with another propagation policy (FW-23 (g)).
            && (planned.deletion.orphans || !current.has_finalizer(ORPHAN))
    };
    match current {
        Some(current) if is_unchanged(&current.record) => Ok(()),
        current => {
            if let Some(current) = &current {
                context.stores.actors.apply_response(current);
            }
            Err(Error::Stale("the actor"))
        }
    }
}

async fn verify_pods_known(
    context: &Context,
    actor: &Key,
    known: &[Arc<PodRecord>],
) -> Result<(), Error> {
    let api: Api<Projected<PodRecord>> = Api::namespaced(context.client.clone(), &actor.namespace);
    let params = ListParams::default()
        .labels(&format!("{}={}", label::ASYA, actor.name))
        .fields(UNFINISHED);
    let listed = api.list(&params).await.map_err(Error::Api)?;
    let known: HashSet<_> = known.iter().map(|pod| &pod.metadata.uid).collect();
    let unknown = |pod: &&Projected<PodRecord>| !known.contains(&pod.record.metadata.uid);
    let unknown: Vec<_> = listed.items.iter().filter(unknown).collect();
    for pod in &unknown {
        context.stores.pods.apply_response(pod);
    }
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(Error::Stale("the pods"))
    }
}
