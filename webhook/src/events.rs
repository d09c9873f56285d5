//! Events about pods that were injected, left alone or refused (OBS-2): best effort, told after the answer, and at
//! most one per object, reason and minute.

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

/// What waits to be told; more is dropped, since no review may wait for it.
const WAITING: usize = 1024;
/// An object is told of one reason as often as this.
const GAP: Duration = Duration::from_mins(1);
/// Objects and reasons that are remembered; a crowd beyond that is told again sooner.
const REMEMBERED: usize = 8192;
/// Of an object's name, with room for what follows within the 253 characters of an Event's.
const LONGEST_NAME: usize = 220;
/// An Event that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(5);

/// Who tells.
const REPORTER: &str = "asya-webhook";

/// What an Event says in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// A pod gets the sidecar.
    Injected,
    /// A pod starts without it.
    InjectionSkipped,
    /// A pod does not start, since it cannot get it.
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

/// An object that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct About {
    /// API group and version.
    pub api_version: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// Uid.
    pub uid: Box<str>,
}

impl About {
    /// An actor.
    pub fn actor(name: &str, uid: &str) -> Self {
        Self {
            api_version: format!("{GROUP}/v1alpha1").into(),
            kind: "AsyncActor".into(),
            name: name.into(),
            uid: uid.into(),
        }
    }
}

/// What came of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Namespace of all of them.
    pub namespace: Box<str>,
    /// The actor.
    pub actor: About,
    /// Who makes the pod.
    pub owner: Option<About>,
    /// What came of it.
    pub note: Note,
    /// Why.
    pub reason: &'static str,
    /// What users read.
    pub text: String,
}

/// Where Events are left to be written.
#[derive(Clone, Debug)]
pub struct Events {
    waiting: mpsc::Sender<Told>,
}

impl Events {
    /// Leaves it to the writer, or drops it when that is too far behind.
    pub fn tell(&self, told: Told) {
        if self.waiting.try_send(told).is_err() {
            debug!("an Event was dropped: too many wait");
        }
    }
}

/// Writes Events.
pub struct Writer {
    client: Client,
    instance: String,
    waiting: mpsc::Receiver<Told>,
    last: HashMap<(About, Note, &'static str), Instant>,
}

/// A place for Events, and who writes them by `client`, in the name of this instance.
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
    /// Writes until there is nobody left who tells.
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
            Ok(Err(error)) => debug!(%error, "an Event was not written"),
            Err(_) => debug!("an Event was not written in time"),
        }
    }
}

/// As other reporters name theirs. A prefix for the API server to complete may not end in a dot.
fn name_of(object: &str, now: Timestamp) -> String {
    let object: String = object.chars().take(LONGEST_NAME).collect();
    format!("{object}.{:x}", now.as_nanosecond())
}

#[cfg(test)]
mod tests;
