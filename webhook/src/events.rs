//! Events for pods that were injected, skipped or denied: best effort, written after the response, and at most one per
//! object, reason and minute (OBS-2).

use std::collections::HashMap;
use std::time::Duration;

use asya_process::clock;
use asya_shared::event;
use asya_shared::names::GROUP;
pub use asya_shared::reason::PodEventReason;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

/// Queue capacity; further Events are dropped, because no review may wait for them.
const QUEUE_CAPACITY: usize = 1024;
/// Minimum interval between Events of the same reason for an object.
const MIN_INTERVAL: Duration = Duration::from_mins(1);
/// Number of remembered objects and reasons; beyond it, Events may repeat sooner.
const MAX_REMEMBERED: usize = 8192;
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

const REPORTER: &str = "asya-webhook";

/// The object that an Event regards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InvolvedObject {
    /// API group and version.
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

impl InvolvedObject {
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
pub struct PodEvent {
    /// Namespace of the pod, the actor and the owner.
    pub namespace: Box<str>,
    pub actor: InvolvedObject,
    /// The pod's controller.
    pub owner: Option<InvolvedObject>,
    pub event_reason: PodEventReason,
    /// The cause in one word; Events are rate-limited by it.
    pub cause: &'static str,
    /// The message for users.
    pub text: String,
}

/// The queue of Events to write.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<PodEvent>,
}

impl Events {
    /// Queues the Event, or drops it if the queue is full.
    pub fn publish(&self, event: PodEvent) {
        if self.sender.try_send(event).is_err() {
            debug!("Event dropped: the queue is full");
        }
    }
}

/// Writes the queued Events.
pub struct Writer {
    client: Client,
    instance: String,
    receiver: mpsc::Receiver<PodEvent>,
    last: HashMap<(InvolvedObject, PodEventReason, &'static str), Instant>,
}

/// Creates the queue and its writer, which writes with `client` and reports as `instance`.
pub fn channel(client: Client, instance: &str) -> (Events, Writer) {
    let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let writer = Writer {
        client,
        instance: event::instance(instance).to_owned(),
        receiver,
        last: HashMap::new(),
    };
    (Events { sender }, writer)
}

impl Writer {
    /// Writes Events until all senders are dropped.
    pub async fn run(mut self) {
        while let Some(event) = self.receiver.recv().await {
            let regarding = [Some(event.actor.clone()), event.owner.clone()];
            for regarding in regarding.into_iter().flatten() {
                if self.is_due(&regarding, &event) {
                    self.write(regarding, &event).await;
                }
            }
        }
    }

    fn is_due(&mut self, regarding: &InvolvedObject, event: &PodEvent) -> bool {
        let now = Instant::now();
        let key = (regarding.clone(), event.event_reason, event.cause);
        if self
            .last
            .get(&key)
            .is_some_and(|last| now - *last < MIN_INTERVAL)
        {
            return false;
        }
        if self.last.len() >= MAX_REMEMBERED {
            self.last.retain(|_, last| now - *last < MIN_INTERVAL);
        }
        if self.last.len() >= MAX_REMEMBERED {
            self.last.clear();
        }
        self.last.insert(key, now);
        true
    }

    async fn write(&self, regarding: InvolvedObject, pod_event: &PodEvent) {
        let (namespace, now) = (pod_event.namespace.to_string(), clock::now());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(event::name(&regarding.name, now.as_nanosecond())),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some("Inject".to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(event::note(&pod_event.text)),
            reason: Some(pod_event.event_reason.as_str().to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(regarding.api_version.into()),
                kind: Some(regarding.kind.into()),
                name: Some(regarding.name.into()),
                namespace: Some(namespace.clone()),
                uid: Some(regarding.uid.into()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(pod_event.event_reason.type_().as_str().to_owned()),
            ..Event::default()
        };
        let events = Api::<Event>::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        let written = timeout(WRITE_TIMEOUT, events.create(&params, &event)).await;
        match written {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "Event not written"),
            Err(_) => debug!("Event not written in time"),
        }
    }
}

#[cfg(test)]
mod tests;
