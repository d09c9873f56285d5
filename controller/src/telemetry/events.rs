//! Events on actors (OPS-7). Best effort: writing one never delays a reconcile.

mod series;

use std::sync::Arc;

use asya_shared::names::{GROUP, MANAGED_BY};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use series::{Series, Telling, Topic};
use tracing::debug;

use crate::record::ActorRecord;

/// Reason of an Event, named like the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    QueueCreated,
    /// The actor's queue was lost and has been created again.
    QueueRecreated,
    /// The actor now uses another queue.
    QueueRetired,
    /// Nothing limits the redeliveries of a failing message.
    DeliveryLimitInactive,
    QueueDeletionFailed,
    /// Deletion of the actor waits while its queue holds messages.
    QueueNotEmpty,
    /// Deletion of the actor waits until its pods have drained the queue.
    QueueDraining,
    /// The actor's queue was deleted with messages in it.
    MessagesDeleted,
    /// The actor's queue outlives its namespace, because it holds messages.
    QueueKept,
    /// A queue outlives its actor, because the actor does not own it.
    QueueLeft,
    /// A dead letter queue outlives its actor, because it holds messages.
    DeadLettersKept,
    /// The spec is invalid.
    ValidationFailed,
    /// The workload gets no pods, because they would consume another actor's messages.
    WorkloadStopped,
    /// The name of a child is taken by an object that the actor does not own.
    NotOwned,
    /// The actor is deleted, and what was created for it is kept.
    Orphaned,
    /// A rollout replaces pods that use GPUs.
    RollsGpuPods,
    /// The rollout of a binding has stopped: no further pod is replaced.
    RolloutHalted,
    /// Our change to a bound target was reverted.
    BindingConflict,
    /// Another client keeps changing an object of ours.
    FieldConflict,
    /// A webhook configuration of ours was changed or deleted, and has been restored.
    WebhookConfigurationRestored,
    /// Dry-run pods of a required binding's target do not come back with the sidecar.
    InjectionNotProved,
    /// The webhook entry of a required binding still fails open.
    RequiredNotEnforced,
}

impl EventReason {
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

/// Longest note and longest reporting instance that the API server accepts, in bytes.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;

/// Longest part of an object's name in the name of an Event, in bytes; leaves room for a time.
const LONGEST_PREFIX: usize = 200;

/// Writes Events; a repeated one increments the count of its series.
#[derive(Clone)]
pub struct Events {
    client: Client,
    instance: Arc<str>,
    series: Arc<Mutex<Series>>,
}

impl Events {
    /// Writes Events with `client`, reported by `instance`.
    pub fn new(client: Client, instance: &str) -> Self {
        Self {
            client,
            instance: clipped(instance, LONGEST_INSTANCE).into(),
            series: Arc::default(),
        }
    }

    /// Writes an Event about `actor`.
    pub fn tell(&self, actor: &ActorRecord, note: EventReason, text: &str) {
        let key = &actor.metadata.key;
        let about = ObjectReference {
            api_version: Some(format!("{GROUP}/v1alpha1")),
            kind: Some("AsyncActor".to_owned()),
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            uid: Some(actor.metadata.uid.to_string()),
            ..ObjectReference::default()
        };
        self.tell_of(about, note, text);
    }

    /// Writes an Event about any object; if that is cluster-scoped, in the namespace `default`.
    pub fn tell_of(&self, about: ObjectReference, note: EventReason, text: &str) {
        let now = Timestamp::now();
        let topic = Topic {
            actor: about.uid.as_deref().unwrap_or_default().into(),
            note,
            text: shortened(text).into(),
        };
        let name = name(about.name.as_deref().unwrap_or_default(), now);
        let telling = self.with(|series| series.next(&topic, &name, now));
        let write = match telling {
            Telling::Silence => {
                debug!(reason = ?note, text, "Event not written: its object causes too many");
                return;
            }
            Telling::First => Write::Create,
            Telling::Again { name, count } => Write::CountUp { name, count },
        };
        let event = self.event(about, &topic, name, now);
        let events = self.clone();
        tokio::spawn(async move {
            if let Err(error) = events.write(&topic, &event, write).await {
                events.with(|series| series.forget(&topic));
                debug!(%error, reason = ?topic.note, "Event not written");
            }
        });
    }

    fn event(&self, about: ObjectReference, topic: &Topic, name: String, now: Timestamp) -> Event {
        let namespace = about.namespace.clone();
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(topic.note.type_().to_owned()),
            reason: Some(format!("{:?}", topic.note)),
            action: Some(topic.note.action().to_owned()),
            note: Some(topic.text.to_string()),
            regarding: Some(about),
            reporting_controller: Some(MANAGED_BY.to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            ..Event::default()
        }
    }

    async fn write(&self, topic: &Topic, event: &Event, write: Write) -> Result<(), kube::Error> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Write::CountUp { name, count } = write {
            let series = json!({"series": {"count": count, "lastObservedTime": event.event_time}});
            let params = PatchParams::default();
            match api.patch(&name, &params, &Patch::Merge(&series)).await {
                // The Event was deleted meanwhile: start a new series.
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    let anew = event.metadata.name.as_deref().unwrap_or_default();
                    self.with(|series| series.begin_anew(topic, anew));
                }
                written => return written.map(drop),
            }
        }
        api.create(&PostParams::default(), event).await.map(drop)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Series) -> T) -> T {
        look(&mut self.series.lock())
    }
}

enum Write {
    Create,
    CountUp { name: String, count: i32 },
}

fn name(actor: &str, now: Timestamp) -> String {
    // A clipped name may end with a character that a name must not end with.
    let prefix = clipped(actor, LONGEST_PREFIX).trim_end_matches(['.', '-']);
    format!("{prefix}.{:x}", now.as_nanosecond())
}

fn shortened(text: &str) -> String {
    const REST: &str = " …";
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    format!("{}{REST}", clipped(text, LONGEST_NOTE - REST.len()))
}

/// Longest prefix of `text` of at most `most` bytes.
fn clipped(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::{LONGEST_NOTE, name, shortened};

    /// OPS-7
    #[test]
    fn long_texts_and_names_still_make_valid_events() {
        assert_eq!(shortened("short"), "short");
        let exact = "x".repeat(LONGEST_NOTE);
        assert_eq!(shortened(&exact), exact);
        for letter in ["x", "ü", "语", "🦀"] {
            let short = shortened(&letter.repeat(LONGEST_NOTE + 1));
            assert!(short.len() <= LONGEST_NOTE && short.len() > LONGEST_NOTE - 8);
            assert!(short.ends_with(" …"), "what is missing is shown");
        }
        let now = Timestamp::from_second(1).unwrap();
        assert_eq!(name("echo", now), "echo.3b9aca00");
        let long = format!("{}.b{}", "a".repeat(199), "c".repeat(52));
        assert_eq!(
            name(&long, now),
            format!("{}.3b9aca00", "a".repeat(199)),
            "a name never ends with a dot before a dot"
        );
    }
}
