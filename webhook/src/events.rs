//! Events for pods that were injected, skipped or denied: best effort, written after the response, and at most one per
//! object, reason and minute (OBS-2).

use std::collections::HashMap;
use std::time::Duration;

use asya_shared::names::GROUP;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

/// Queue capacity; further Events are dropped, because no review may wait for them.
const WAITING: usize = 1024;
/// Minimum interval between Events of the same reason for an object.
const GAP: Duration = Duration::from_mins(1);
/// Number of objects and reasons remembered; beyond it, Events may repeat sooner.
const REMEMBERED: usize = 8192;
/// Maximum length of the object's name in an Event's name, which leaves room for the suffix within 253 characters.
const LONGEST_NAME: usize = 220;
/// Timeout for writing an Event.
const LONGEST: Duration = Duration::from_secs(5);

const REPORTER: &str = "asya-webhook";

/// The kind of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The pod gets the sidecar.
    Injected,
    /// The pod starts without the sidecar.
    InjectionSkipped,
    /// The pod is denied, because it cannot get the sidecar.
    InjectionDenied,
}

impl Note {
    fn reason(self) -> &'static str {
        match self {
            Self::Injected => "Injected",
            Self::InjectionSkipped => "InjectionSkipped",
            Self::InjectionDenied => "InjectionDenied",
        }
    }

    fn type_(self) -> &'static str {
        match self {
            Self::Injected => "Normal",
            Self::InjectionSkipped | Self::InjectionDenied => "Warning",
        }
    }
}

/// The object that an Event regards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct About {
    /// API group and version.
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

impl About {
    pub fn actor(name: &str, uid: &str) -> Self {
        Self {
            api_version: format!("{GROUP}/v1alpha1").into(),
            kind: "AsyncActor".into(),
            name: name.into(),
            uid: uid.into(),
        }
    }
}

/// The outcome for a pod, to be written as Events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Namespace of the pod, the actor and the owner.
    pub namespace: Box<str>,
    pub actor: About,
    /// The pod's controller.
    pub owner: Option<About>,
    pub note: Note,
    /// Why, in one word; Events are rate-limited by it.
    pub reason: &'static str,
    /// The message for users.
    pub text: String,
}

/// The queue of Events to write.
#[derive(Clone, Debug)]
pub struct Events {
    waiting: mpsc::Sender<Told>,
}

impl Events {
    /// Queues the Event, or drops it if the queue is full.
    pub fn tell(&self, told: Told) {
        if self.waiting.try_send(told).is_err() {
            debug!("Event dropped: the queue is full");
        }
    }
}

/// Writes the queued Events.
pub struct Writer {
    client: Client,
    instance: String,
    waiting: mpsc::Receiver<Told>,
    last: HashMap<(About, Note, &'static str), Instant>,
}

/// Creates the queue and its writer, which writes with `client` and reports as `instance`.
pub fn events(client: Client, instance: &str) -> (Events, Writer) {
    let (sender, waiting) = mpsc::channel(WAITING);
    let writer = Writer {
        client,
        instance: instance.to_owned(),
        waiting,
        last: HashMap::new(),
    };
    (Events { waiting: sender }, writer)
}

impl Writer {
    /// Writes Events until all senders are dropped.
    pub async fn run(mut self) {
        while let Some(told) = self.waiting.recv().await {
            let about = [Some(told.actor.clone()), told.owner.clone()];
            for about in about.into_iter().flatten() {
                if self.is_due(&about, &told) {
                    self.write(about, &told).await;
                }
            }
        }
    }

    fn is_due(&mut self, about: &About, told: &Told) -> bool {
        let now = Instant::now();
        let key = (about.clone(), told.note, told.reason);
        if self.last.get(&key).is_some_and(|last| now - *last < GAP) {
            return false;
        }
        if self.last.len() >= REMEMBERED {
            self.last.retain(|_, last| now - *last < GAP);
        }
        if self.last.len() >= REMEMBERED {
            self.last.clear();
        }
        self.last.insert(key, now);
        true
    }

    async fn write(&self, about: About, told: &Told) {
        let (namespace, now) = (told.namespace.to_string(), Timestamp::now());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name_of(&about.name, now)),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some("Inject".to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(told.text.clone()),
            reason: Some(told.note.reason().to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(about.api_version.into()),
                kind: Some(about.kind.into()),
                name: Some(about.name.into()),
                namespace: Some(namespace.clone()),
                uid: Some(about.uid.into()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(told.note.type_().to_owned()),
            ..Event::default()
        };
        let events = Api::<Event>::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        let written = timeout(LONGEST, events.create(&params, &event)).await;
        match written {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "Event not written"),
            Err(_) => debug!("Event not written in time"),
        }
    }
}

/// Names Events as other reporters do. Not by `generateName`, whose prefix may not end in a dot.
fn name_of(object: &str, now: Timestamp) -> String {
    let object: String = object.chars().take(LONGEST_NAME).collect();
    format!("{object}.{:x}", now.as_nanosecond())
}

#[cfg(test)]
mod tests;
