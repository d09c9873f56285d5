//! Runs a plan's writes in order. What one refuses keeps those from running that need it, and no others.

use std::sync::Arc;

use asya_shared::api::QueueStatus;
use asya_shared::names::{FINALIZER, manager};
use json_patch::jsonptr::PointerBuf;
use json_patch::{
    AddOperation, Patch as JsonPatch, PatchOperation, RemoveOperation, TestOperation,
};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};

use super::desired::Desired;
use super::error::refused;
use super::observe::{Child, Observed};
use super::plan::{Delete, Ensure, Plan, QueueStep, Then, WorkloadRemoval, WorkloadStep};
use super::{Context, Error, Fault, Reason, Retry};
use crate::events::Note;
use crate::queue::{BrokerError, Standing};
use crate::record::{ActorRecord, Record, Seen, WorkloadRecord};

/// What a pass did, and what stands now.
#[derive(Debug)]
pub enum Outcome {
    /// The actor lives.
    Ensured(Ensured),
    /// The actor is on its way out.
    Deleting {
        /// Why its queue could not be deleted.
        fault: Option<Fault>,
        /// When to look again.
        retry: Retry,
    },
    /// Our finalizer is gone: there is nothing left to tell.
    Gone,
}

/// What stands after a pass over an actor that lives.
#[derive(Debug, Default)]
pub struct Ensured {
    /// About the queue.
    pub queue: QueueState,
    /// The workload as last seen or written.
    pub workload: Option<Arc<WorkloadRecord>>,
    /// Whether that is the answer to an apply of this pass.
    pub applied: bool,
    /// Why the workload is not what it should be.
    pub fault: Option<Fault>,
}

/// What is known of the queue after a pass.
#[derive(Debug, Default)]
pub enum QueueState {
    /// Nothing was asked, nothing is told.
    #[default]
    Untouched,
    /// As wanted, as far as we know.
    Ready,
    /// Somebody else's business (QUE-12).
    Unmanaged,
    /// It cannot be used.
    Fault(Fault),
}

impl QueueState {
    fn is_usable(&self) -> bool {
        matches!(self, Self::Ready | Self::Unmanaged)
    }
}

/// Runs `plan`.
///
/// # Errors
/// When the API server fails in a way that is not the actor's fault.
pub async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Outcome, Error> {
    match plan {
        Plan::Rest => Ok(Outcome::Ensured(Ensured {
            workload: seen_workload(observed),
            ..Ensured::default()
        })),
        Plan::Ensure(plan) => ensure(context, observed, plan).await.map(Outcome::Ensured),
        Plan::Delete(plan) => delete(context, observed, plan).await,
    }
}

fn seen_workload(observed: &Observed) -> Option<Arc<WorkloadRecord>> {
    match &observed.workload {
        Child::Ours(workload) => Some(Arc::clone(workload)),
        Child::Absent | Child::Foreign(_) => None,
    }
}

async fn ensure(context: &Context, observed: &Observed, plan: Ensure) -> Result<Ensured, Error> {
    if plan.add_finalizer {
        add_finalizer(context, &observed.actor).await?;
    }
    let mut ensured = Ensured {
        workload: seen_workload(observed),
        ..Ensured::default()
    };
    let Ok(desired) = &observed.desired else {
        return Ok(ensured);
    };
    ensured.queue = ensure_queue(context, observed, desired, plan.queue).await;
    match plan.workload {
        WorkloadStep::Keep => {}
        WorkloadStep::Refuse(fault) => ensured.fault = Some(fault),
        WorkloadStep::Create if !ensured.queue.is_usable() => {}
        WorkloadStep::Create | WorkloadStep::Update => {
            match apply_workload(context, observed, desired).await? {
                Ok(workload) => {
                    ensured.workload = Some(workload);
                    ensured.applied = true;
                }
                Err(fault) => ensured.fault = Some(fault),
            }
        }
    }
    Ok(ensured)
}

async fn ensure_queue(
    context: &Context,
    observed: &Observed,
    desired: &Desired,
    step: QueueStep,
) -> QueueState {
    let creates = step == QueueStep::Create;
    match step {
        QueueStep::Keep => return QueueState::Ready,
        QueueStep::Unmanaged => return QueueState::Unmanaged,
        QueueStep::Refuse(fault) => return QueueState::Fault(fault),
        QueueStep::Create | QueueStep::Route => {}
    }
    let made = async {
        let client = context
            .brokers
            .client(&desired.transport, &observed.key().namespace)
            .await?;
        if creates {
            client.create(&desired.names).await?;
        }
        client.route(&desired.names).await
    };
    match made.await {
        Ok(()) => {
            if creates {
                let text = format!(
                    "created queue {} on transport {}",
                    desired.names.queue, desired.transport.name
                );
                context
                    .events
                    .tell(&observed.actor, Note::QueueCreated, text);
            }
            QueueState::Ready
        }
        Err(error) => QueueState::Fault(error.fault()),
    }
}

/// The script comes first: pods mount it.
async fn apply_workload(
    context: &Context,
    observed: &Observed,
    desired: &Desired,
) -> Result<Result<Arc<WorkloadRecord>, Fault>, Error> {
    let key = observed.key();
    if let Err(fault) = context
        .runtime
        .ensure(&context.stores.config_maps, &key.namespace)
        .await?
    {
        return Ok(Err(fault));
    }
    let api: Api<Seen<WorkloadRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = PatchParams::apply(manager::WORKLOAD).force();
    match api
        .patch(&key.name, &params, &Patch::Apply(&desired.workload.object))
        .await
    {
        Ok(seen) => {
            context.stores.workloads.wrote(&seen);
            Ok(Ok(seen.record))
        }
        Err(error) => Ok(Err(refused(&format!("Deployment {key}"), error)?)),
    }
}

async fn delete(context: &Context, observed: &Observed, plan: Delete) -> Result<Outcome, Error> {
    match &plan.workload {
        Some(WorkloadRemoval::Delete(uid)) => delete_workload(context, observed, uid).await?,
        Some(WorkloadRemoval::Orphan(uid)) => orphan_workload(context, observed, uid).await?,
        None => {}
    }
    let queue = match plan.then {
        Then::Gone => return Ok(Outcome::Gone),
        Then::Wait(wait) => {
            let retry = wait.map_or(Retry::OnChange, Retry::After);
            return Ok(Outcome::Deleting { fault: None, retry });
        }
        Then::Finish { queue } => queue,
    };
    confirm_deletion(context, observed).await?;
    if let Some(queue) = queue
        && let Err(fault) = delete_queue(context, observed, &queue).await
    {
        context.events.tell(
            &observed.actor,
            Note::QueueDeletionFailed,
            fault.message.clone(),
        );
        return Ok(Outcome::Deleting {
            retry: fault.retry,
            fault: Some(fault),
        });
    }
    release_namespace(context, observed).await?;
    remove_finalizer(context, &observed.actor).await?;
    Ok(Outcome::Gone)
}

async fn delete_workload(context: &Context, observed: &Observed, uid: &str) -> Result<(), Error> {
    let api: Api<Seen<WorkloadRecord>> =
        Api::namespaced(context.client.clone(), &observed.key().namespace);
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&observed.key().name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(Error::Stale("the workload")),
        Err(error) => Err(Error::Api(error)),
    }
}

async fn orphan_workload(context: &Context, observed: &Observed, uid: &str) -> Result<(), Error> {
    let api: Api<Seen<WorkloadRecord>> =
        Api::namespaced(context.client.clone(), &observed.key().namespace);
    let patch = json!({"metadata": {"uid": uid, "ownerReferences": [
        {"$patch": "delete", "uid": observed.actor.metadata.uid},
    ]}});
    match api
        .patch(
            &observed.key().name,
            &PatchParams::default(),
            &Patch::Strategic(patch),
        )
        .await
    {
        Ok(seen) => {
            context.stores.workloads.wrote(&seen);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(Error::Stale("the workload")),
        Err(error) => Err(Error::Api(error)),
    }
}

/// A queue cannot be brought back: that its actor still goes is read from the API server itself, not
/// from a store which may be behind.
async fn confirm_deletion(context: &Context, observed: &Observed) -> Result<(), Error> {
    let live = actors(context, observed)
        .get_opt(&observed.key().name)
        .await
        .map_err(Error::Api)?;
    let confirmed = live.is_some_and(|seen| {
        let metadata = seen.record.metadata();
        metadata.deleting && metadata.uid == observed.actor.metadata.uid
    });
    if confirmed {
        Ok(())
    } else {
        Err(Error::Stale("the actor"))
    }
}

async fn delete_queue(
    context: &Context,
    observed: &Observed,
    queue: &QueueStatus,
) -> Result<(), Fault> {
    let failed = |message: String, retry| Fault {
        reason: Reason::QueueDeletionFailed,
        message: format!("queue {} cannot be deleted: {message}", queue.name),
        retry,
    };
    let transport = context.installation.transports.usable(&queue.transport).map_err(|unusable| {
        let hint = "configure it again, or set annotation asya.sh/skip-queue-deletion: \"true\" to leave the queue behind";
        failed(format!("{unusable}; {hint}"), Retry::Slowly)
    })?;
    let known = observed.previous.queue.is_some();
    let removal = async {
        let client = context
            .brokers
            .client(transport, &observed.key().namespace)
            .await?;
        // A queue that status does not name was ours only if it is what we would have made.
        if !known && let Ok(desired) = &observed.desired {
            match client.observe(&desired.names).await? {
                Standing::Absent | Standing::Differs { .. } => return Ok(()),
                Standing::Serves => {}
            }
        }
        client.delete(&queue.name).await
    };
    removal.await.map_err(|error: BrokerError| {
        if matches!(error, BrokerError::AuthFailed(_)) {
            context.brokers.forget_credentials(transport);
        }
        failed(error.to_string(), Retry::Soon)
    })
}

/// The runtime script goes with the last actor of its namespace (RUN-2).
async fn release_namespace(context: &Context, observed: &Observed) -> Result<(), Error> {
    let namespace = &observed.key().namespace;
    let others = context
        .stores
        .actors
        .keys_in(namespace)
        .iter()
        .any(|key| key != observed.key());
    if observed.deletion.orphans {
        context
            .runtime
            .orphan(&context.stores.config_maps, namespace)
            .await
    } else if others {
        Ok(())
    } else {
        context
            .runtime
            .remove(&context.stores.config_maps, namespace)
            .await
    }
}

fn actors(context: &Context, observed: &Observed) -> Api<Seen<ActorRecord>> {
    Api::namespaced(context.client.clone(), &observed.key().namespace)
}

/// JSON patch with a test on the list: a merge would drop what another adds at the same time.
async fn add_finalizer(context: &Context, actor: &ActorRecord) -> Result<(), Error> {
    let change = if actor.finalizers.is_empty() {
        vec![
            test(&["metadata", "finalizers"], Value::Null),
            add(&["metadata", "finalizers"], json!([FINALIZER])),
        ]
    } else {
        vec![
            test(&["metadata", "finalizers"], json!(actor.finalizers)),
            add(&["metadata", "finalizers", "-"], json!(FINALIZER)),
        ]
    };
    patch_finalizers(context, actor, change).await
}

async fn remove_finalizer(context: &Context, actor: &ActorRecord) -> Result<(), Error> {
    let Some(index) = actor
        .finalizers
        .iter()
        .position(|finalizer| &**finalizer == FINALIZER)
    else {
        return Ok(());
    };
    let change = vec![
        test(&["metadata", "finalizers"], json!(actor.finalizers)),
        PatchOperation::Remove(RemoveOperation {
            path: pointer(&["metadata", "finalizers", &index.to_string()]),
        }),
    ];
    patch_finalizers(context, actor, change).await
}

async fn patch_finalizers(
    context: &Context,
    actor: &ActorRecord,
    change: Vec<PatchOperation>,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let mut operations = vec![test(&["metadata", "uid"], json!(actor.metadata.uid))];
    operations.extend(change);
    let api: Api<Seen<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch = Patch::<()>::Json(JsonPatch(operations));
    match api.patch(&key.name, &PatchParams::default(), &patch).await {
        Ok(seen) => {
            context.stores.actors.wrote(&seen);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        // A failed test is 422: the list changed, or the actor is another one.
        Err(kube::Error::Api(status)) if status.code == 422 => Err(Error::Stale("the actor")),
        Err(error) => Err(Error::Api(error)),
    }
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: pointer(path),
        value,
    })
}

fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: pointer(path),
        value,
    })
}
