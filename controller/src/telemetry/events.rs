//! Events on actors (OPS-7). Best effort: writing one never delays a reconcile.

mod series;

use std::sync::Arc;

use asya_process::clock;
use asya_shared::event;
use asya_shared::names::{GROUP, MANAGED_BY};
pub use asya_shared::reason::EventReason;
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

use crate::record::ActorRecord;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub reason: EventReason,
    pub message: String,
}

impl NewEvent {
    pub fn new(reason: EventReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
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
            type_: Some(series_key.reason.type_().as_str().to_owned()),
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
