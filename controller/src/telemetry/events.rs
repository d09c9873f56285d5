//! Events on actors (OPS-7). Best effort: writing one never delays a reconcile.

mod series;

use std::sync::Arc;

use asya_shared::event;
use asya_shared::names::{GROUP, MANAGED_BY};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use series::{EventSeries, SeriesKey, WriteDecision};
use tracing::debug;

use crate::clock;
use crate::record::ActorRecord;

/// Reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// The actor's queue has been created.
    QueueCreated,
    /// The actor's queue was missing and has been recreated.
    QueueRecreated,
    /// The actor now uses another queue.
    QueueRetired,
    /// Nothing limits the redeliveries of a failing message.
    DeliveryLimitInactive,
    /// The actor is being deleted, but its queue cannot be deleted.
    QueueDeletionFailed,
    /// Deletion of the actor is blocked while its queue holds messages.
    QueueNotEmpty,
    /// Deletion of the actor is blocked until its pods have drained the queue.
    QueueDraining,
    /// The actor's queue was deleted with messages in it.
    MessagesDeleted,
    /// The actor's queue outlives its namespace, because it holds messages.
    QueueKept,
    /// A queue outlives its actor: it is not the actor's, or pods of an earlier actor receive from it.
    QueueLeft,
    /// A dead letter queue outlives its actor, because it holds messages.
    DeadLettersKept,
    /// The spec is invalid.
    ValidationFailed,
    /// The workload is scaled to 0, because its pods would consume another actor's messages.
    WorkloadStopped,
    /// The name of a child is taken by an object that the actor does not own.
    NotOwned,
    /// The actor is deleted, but its children are kept.
    Orphaned,
    /// A rollout replaces pods that use GPUs.
    RollsGpuPods,
    /// The rollout of a binding is halted or stalled: no further pod is replaced for now.
    RolloutHalted,
    /// Another client reverted a change of the operator's to a bound target.
    BindingConflict,
    /// Another client keeps changing one of the operator's objects.
    FieldConflict,
    /// One of the operator's webhook configurations was changed or deleted, and has been restored.
    WebhookConfigurationRestored,
    /// Dry-run pods of a required binding's target are not injected.
    InjectionNotProved,
    /// The webhook entry of a required binding still fails open.
    RequiredNotEnforced,
}

impl EventReason {
    /// The name that users see.
    fn as_str(self) -> &'static str {
        match self {
            Self::QueueCreated => "QueueCreated",
            Self::QueueRecreated => "QueueRecreated",
            Self::QueueRetired => "QueueRetired",
            Self::DeliveryLimitInactive => "DeliveryLimitInactive",
            Self::QueueDeletionFailed => "QueueDeletionFailed",
            Self::QueueNotEmpty => "QueueNotEmpty",
            Self::QueueDraining => "QueueDraining",
            Self::MessagesDeleted => "MessagesDeleted",
            Self::QueueKept => "QueueKept",
            Self::QueueLeft => "QueueLeft",
            Self::DeadLettersKept => "DeadLettersKept",
            Self::ValidationFailed => "ValidationFailed",
            Self::WorkloadStopped => "WorkloadStopped",
            Self::NotOwned => "NotOwned",
            Self::Orphaned => "Orphaned",
            Self::RollsGpuPods => "RollsGpuPods",
            Self::RolloutHalted => "RolloutHalted",
            Self::BindingConflict => "BindingConflict",
            Self::FieldConflict => "FieldConflict",
            Self::WebhookConfigurationRestored => "WebhookConfigurationRestored",
            Self::InjectionNotProved => "InjectionNotProved",
            Self::RequiredNotEnforced => "RequiredNotEnforced",
        }
    }

    fn type_(self) -> &'static str {
        match self {
            Self::QueueCreated
            | Self::QueueRetired
            | Self::QueueDraining
            | Self::Orphaned
            | Self::RollsGpuPods => "Normal",
            Self::QueueRecreated
            | Self::DeliveryLimitInactive
            | Self::QueueDeletionFailed
            | Self::QueueNotEmpty
            | Self::MessagesDeleted
            | Self::QueueKept
            | Self::QueueLeft
            | Self::DeadLettersKept
            | Self::ValidationFailed
            | Self::WorkloadStopped
            | Self::NotOwned
            | Self::RolloutHalted
            | Self::BindingConflict
            | Self::FieldConflict
            | Self::WebhookConfigurationRestored
            | Self::InjectionNotProved
            | Self::RequiredNotEnforced => "Warning",
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::QueueCreated | Self::QueueRecreated => "CreateQueue",
            Self::QueueRetired => "RetireQueue",
            Self::DeliveryLimitInactive => "VerifyQueue",
            Self::QueueDeletionFailed
            | Self::QueueNotEmpty
            | Self::QueueDraining
            | Self::MessagesDeleted
            | Self::QueueKept
            | Self::QueueLeft
            | Self::DeadLettersKept => "DeleteQueue",
            Self::ValidationFailed => "Validate",
            Self::NotOwned => "ApplyWorkload",
            Self::WorkloadStopped => "StopWorkload",
            Self::Orphaned => "Orphan",
            Self::RollsGpuPods | Self::RolloutHalted => "ReplacePods",
            Self::BindingConflict => "WriteTarget",
            Self::FieldConflict | Self::WebhookConfigurationRestored => "Restore",
            Self::InjectionNotProved | Self::RequiredNotEnforced => "Prove",
        }
    }
}

/// Writes Events; a repeated one increments the count of its series.
#[derive(Clone)]
pub struct Events {
    client: Client,
    instance: Arc<str>,
    series: Arc<Mutex<EventSeries>>,
}

impl Events {
    /// Writes Events with `client`, reported by `instance`.
    pub fn new(client: Client, instance: &str) -> Self {
        Self {
            client,
            instance: event::instance(instance).into(),
            series: Arc::default(),
        }
    }

    /// Writes an Event about `actor`.
    pub fn publish(&self, actor: &ActorRecord, reason: EventReason, note: &str) {
        let key = &actor.metadata.key;
        let regarding = ObjectReference {
            api_version: Some(format!("{GROUP}/v1alpha1")),
            kind: Some("AsyncActor".to_owned()),
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            uid: Some(actor.metadata.uid.to_string()),
            ..ObjectReference::default()
        };
        self.publish_about(regarding, reason, note);
    }

    /// Writes an Event about any object; if that is cluster-scoped, in the namespace `default`.
    pub fn publish_about(&self, regarding: ObjectReference, reason: EventReason, note: &str) {
        let now = clock::now();
        let series_key = SeriesKey {
            actor: regarding.uid.as_deref().unwrap_or_default().into(),
            reason,
            text: event::note(note).into(),
        };
        let object = regarding.name.as_deref().unwrap_or_default();
        let name = event::name(object, now.as_nanosecond());
        let decision = self.with(|series| series.next(&series_key, &name, now));
        let write = match decision {
            WriteDecision::Drop => {
                debug!(
                    reason = reason.as_str(),
                    note, "Event not written: too many Events about its object"
                );
                return;
            }
            WriteDecision::Create => Write::Create,
            WriteDecision::Increment { name, count } => Write::Increment { name, count },
        };
        let event = self.event(regarding, &series_key, name, now);
        let events = self.clone();
        tokio::spawn(async move {
            if let Err(error) = events.write(&series_key, &event, write).await {
                events.with(|series| series.forget(&series_key));
                debug!(%error, reason = series_key.reason.as_str(), "Event not written");
            }
        });
    }

    fn event(
        &self,
        regarding: ObjectReference,
        series_key: &SeriesKey,
        name: String,
        now: Timestamp,
    ) -> Event {
        let namespace = regarding.namespace.clone();
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(series_key.reason.type_().to_owned()),
            reason: Some(series_key.reason.as_str().to_owned()),
            action: Some(series_key.reason.action().to_owned()),
            note: Some(series_key.text.to_string()),
            regarding: Some(regarding),
            reporting_controller: Some(MANAGED_BY.to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            ..Event::default()
        }
    }

    async fn write(
        &self,
        series_key: &SeriesKey,
        event: &Event,
        write: Write,
    ) -> Result<(), kube::Error> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Write::Increment { name, count } = write {
            let series = json!({"series": {"count": count, "lastObservedTime": event.event_time}});
            let params = PatchParams::default();
            match api.patch(&name, &params, &Patch::Merge(&series)).await {
                // The Event was deleted in the meantime: start a new series.
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    let new_name = event.metadata.name.as_deref().unwrap_or_default();
                    self.with(|series| series.restart(series_key, new_name));
                }
                written => return written.map(drop),
            }
        }
        api.create(&PostParams::default(), event).await.map(drop)
    }

    fn with<T>(&self, access: impl FnOnce(&mut EventSeries) -> T) -> T {
        access(&mut self.series.lock())
    }
}

enum Write {
    Create,
    Increment { name: String, count: i32 },
}
