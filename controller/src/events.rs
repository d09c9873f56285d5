//! Events on actors (OPS-7): best effort, told beside a pass and never holding it up.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tracing::debug;

use asya_shared::names::{GROUP, MANAGED_BY};

use crate::record::ActorRecord;

/// What an Event tells; the name is its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
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
    /// The spec breaks a rule.
    ValidationFailed,
    /// An object of a needed name is somebody else's.
    NotOwned,
    /// The actor goes, and what was made for it stays.
    Orphaned,
}

impl Note {
    fn type_(self) -> EventType {
        match self {
            Self::QueueCreated | Self::QueueRetired | Self::Orphaned => EventType::Normal,
            Self::QueueRecreated
            | Self::DeliveryLimitInactive
            | Self::QueueDeletionFailed
            | Self::ValidationFailed
            | Self::NotOwned => EventType::Warning,
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::QueueCreated | Self::QueueRecreated => "CreateQueue",
            Self::QueueRetired => "RetireQueue",
            Self::DeliveryLimitInactive => "VerifyQueue",
            Self::QueueDeletionFailed => "DeleteQueue",
            Self::ValidationFailed => "Validate",
            Self::NotOwned => "ApplyWorkload",
            Self::Orphaned => "Orphan",
        }
    }
}

/// Writes Events; repeated ones are counted up, not written anew.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Events by `client`, in the name of this instance.
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter {
            controller: MANAGED_BY.to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            recorder: Recorder::new(client, reporter),
        }
    }

    /// Tells users of `actor`.
    pub fn tell(&self, actor: &ActorRecord, note: Note, text: String) {
        let key = &actor.metadata.key;
        let about = ObjectReference {
            api_version: Some(format!("{GROUP}/v1alpha1")),
            kind: Some("AsyncActor".to_owned()),
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            uid: Some(actor.metadata.uid.to_string()),
            ..ObjectReference::default()
        };
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            let event = Event {
                type_: note.type_(),
                reason: format!("{note:?}"),
                note: Some(text),
                action: note.action().to_owned(),
                secondary: None,
            };
            if let Err(error) = recorder.publish(&event, &about).await {
                debug!(%error, reason = event.reason, "event was not written");
            }
        });
    }
}
