//! Events on actors (OPS-7): best effort, told beside a pass and never holding it up.

mod series;

use std::sync::{Arc, Mutex, PoisonError};

use asya_shared::names::{GROUP, MANAGED_BY};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::debug;

use crate::record::ActorRecord;
use series::{Series, Telling, Topic};

/// What an Event tells; the name is its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// The actor's queue was made.
    QueueCreated,
    /// The actor's queue was lost, and was made again.
    QueueRecreated,
    /// The actor has another queue now.
    QueueRetired,
    /// Nothing ends the retries of a failing message.
    DeliveryLimitInactive,
    /// The actor's queue could not be deleted.
    QueueDeletionFailed,
    /// The actor is not deleted as long as its queue holds messages.
    QueueNotEmpty,
    /// The actor is deleted when its pods have worked its queue off.
    QueueDraining,
    /// The actor's queue was deleted with messages in it.
    MessagesDeleted,
    /// The actor's queue outlives its namespace, because it holds messages.
    QueueKept,
    /// A queue outlives its actor, because it is not that actor's.
    QueueLeft,
    /// A dead letter queue outlives its actor, because it holds messages.
    DeadLettersKept,
    /// The spec breaks a rule.
    ValidationFailed,
    /// The workload gets no pods: they would take another actor's messages.
    WorkloadStopped,
    /// An object of a needed name is somebody else's.
    NotOwned,
    /// The actor goes, and what was made for it stays.
    Orphaned,
    /// Pods that use GPUs are replaced.
    RollsGpuPods,
    /// No further pod of a binding is replaced.
    RolloutHalted,
    /// What we wrote to a bound target was taken back.
    BindingConflict,
    /// Somebody changes an object of ours again and again.
    FieldConflict,
    /// Another had changed or deleted a webhook configuration of ours.
    WebhookConfigurationRestored,
    /// A pod of a required binding's target does not come back with the sidecar.
    InjectionNotProved,
    /// A binding is required, and its webhook entry fails open all the same.
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

/// Longest note and longest name of an instance that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;

/// As much of an actor's name as leaves room for a time in the name of an Event, in bytes.
const LONGEST_PREFIX: usize = 200;

/// Writes Events; repeated ones are counted up, not written anew.
#[derive(Clone)]
pub struct Events {
    client: Client,
    instance: Arc<str>,
    series: Arc<Mutex<Series>>,
}

impl Events {
    /// Events by `client`, in the name of this instance.
    pub fn new(client: Client, instance: &str) -> Self {
        Self {
            client,
            instance: clipped(instance, LONGEST_INSTANCE).into(),
            series: Arc::default(),
        }
    }

    /// Tells users of `actor`.
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

    /// Tells users of any object; what is told of one without a namespace stands in `default`.
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
                debug!(reason = ?note, text, "event was not written: its object causes too many");
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
                debug!(%error, reason = ?topic.note, "event was not written");
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
                // People delete Events.
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
        look(&mut self.series.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

enum Write {
    Create,
    CountUp { name: String, count: i32 },
}

fn name(actor: &str, now: Timestamp) -> String {
    // What is cut may end where no name may.
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

/// The beginning of `text`, of at most so many bytes.
fn clipped(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::{LONGEST_NOTE, name, shortened};

    /// OPS-7
    #[test]
    fn texts_and_names_of_any_length_make_events_that_the_api_server_takes() {
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
