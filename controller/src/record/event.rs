//! Event records: failed volume mounts of pods, and pod creation failures of `StatefulSet`s and other controllers
//! (STA-2).

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use super::{Key, Metadata, Problem, ProblemClass, RawMetadata, Record};

/// Message fragments of a kubelet that is still syncing its caches; the next attempt succeeds.
const TRANSIENT_MESSAGES: [&str; 3] = [
    "failed to sync configmap cache",
    "failed to sync secret cache",
    "not registered",
];

/// Event about a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEventRecord {
    metadata: Metadata,
    pub pod: Key,
    /// Distinguishes the pod from an earlier one with the same name.
    pub pod_uid: Box<str>,
    /// The volume that cannot be mounted; `None` for any other Event.
    pub problem: Option<Problem>,
    /// When the Event was last observed.
    pub last: Timestamp,
}

/// Event about a `StatefulSet` that failed to create a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct StatefulSetFailureRecord {
    metadata: Metadata,
    pub set: Key,
    /// Distinguishes the `StatefulSet` from an earlier one with the same name.
    pub set_uid: Box<str>,
    /// Error message of the API server.
    pub message: Box<str>,
    /// When the Event was last observed.
    pub last: Timestamp,
}

/// Event about a controller object that may have failed to create a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct CreationFailureRecord {
    metadata: Metadata,
    /// The object that failed to create a pod; `None` if the Event reports something else.
    pub creator: Option<PodCreator>,
    pub namespace: Arc<str>,
    /// When the Event was last observed.
    pub last: Timestamp,
}

/// Object whose controller creates pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCreator {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// Decoded fields of an Event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawEvent<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(borrow, default)]
    involved_object: RawObject<'a>,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    last_timestamp: Option<Time>,
    event_time: Option<MicroTime>,
    series: Option<RawSeries>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawObject<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSeries {
    last_observed_time: Option<MicroTime>,
}

impl RawEvent<'_> {
    /// The latest timestamp, because the Event API that the reporter uses decides which fields are set.
    fn last(&self) -> Timestamp {
        let series = self.series.as_ref();
        let times = [
            self.last_timestamp.as_ref().map(|time| time.0),
            self.event_time.as_ref().map(|time| time.0),
            series.and_then(|series| Some(series.last_observed_time.as_ref()?.0)),
            self.metadata.creation_timestamp.as_ref().map(|time| time.0),
        ];
        times.into_iter().flatten().max().unwrap_or_default()
    }
}

impl Record for PodEventRecord {
    type Kind = Event;
    type Raw<'de> = RawEvent<'de>;

    fn project(raw: RawEvent<'_>) -> Self {
        let involved = &raw.involved_object;
        Self {
            metadata: raw.metadata.to_metadata(),
            pod: Key::new(&involved.namespace, &involved.name),
            pod_uid: involved.uid.as_ref().into(),
            problem: problem(&raw.reason, &raw.message),
            last: raw.last(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Record for StatefulSetFailureRecord {
    type Kind = Event;
    type Raw<'de> = RawEvent<'de>;

    fn kind_name() -> Cow<'static, str> {
        "StatefulSet Event".into()
    }

    fn project(raw: RawEvent<'_>) -> Self {
        let involved = &raw.involved_object;
        let message = raw.message.split_once(" failed error: ");
        Self {
            metadata: raw.metadata.to_metadata(),
            set: Key::new(&involved.namespace, &involved.name),
            set_uid: involved.uid.as_ref().into(),
            message: message.map_or(&*raw.message, |(_, message)| message).into(),
            last: raw.last(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Record for CreationFailureRecord {
    type Kind = Event;
    type Raw<'de> = RawEvent<'de>;

    fn kind_name() -> Cow<'static, str> {
        "pod creation Event".into()
    }

    fn project(raw: RawEvent<'_>) -> Self {
        let involved = &raw.involved_object;
        // `FailedCreate`, `FailedToCreateWorkerPod`
        let is_creation_failure = raw.reason.starts_with("Failed") && raw.reason.contains("Create");
        Self {
            metadata: raw.metadata.to_metadata(),
            creator: is_creation_failure.then(|| PodCreator {
                api_version: involved.api_version.as_ref().into(),
                kind: involved.kind.as_ref().into(),
                name: involved.name.as_ref().into(),
            }),
            namespace: involved.namespace.as_ref().into(),
            last: raw.last(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Classifies a mount failure. Only the message names a missing object.
fn problem(reason: &str, message: &str) -> Option<Problem> {
    if !matches!(
        reason,
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume"
    ) || TRANSIENT_MESSAGES
        .iter()
        .any(|transient| message.contains(transient))
    {
        return None;
    }
    let missing = missing(message).filter(|_| reason == "FailedMount");
    let volume = message
        .split_once("for volume \"")
        .and_then(|(_, rest)| Some(rest.split_once('"')?.0));
    let mut text = reason.to_owned();
    if let Some(volume) = volume {
        text = format!("{text} for volume {volume}");
    }
    if let Some(missing) = &missing {
        text = format!("{text}: {missing}");
    }
    Some(Problem {
        class: if missing.is_some() {
            ProblemClass::ConfigError
        } else {
            ProblemClass::VolumeError
        },
        container: None,
        reason: text.into(),
    })
}

/// Returns the `ConfigMap` or Secret, or the key of one, that the message reports as missing.
fn missing(message: &str) -> Option<String> {
    [("ConfigMap", "configmap"), ("Secret", "secret")]
        .into_iter()
        .find_map(|(kind, word)| {
            let name = message.match_indices(word).find_map(|(at, _)| {
                let rest = &message[at + word.len()..];
                let rest = rest.strip_prefix('s').unwrap_or(rest);
                let (name, rest) = rest.strip_prefix(" \"")?.split_once('"')?;
                rest.starts_with(" not found").then_some(name)
            });
            if let Some(name) = name {
                return Some(format!("{kind} {name} not found"));
            }
            let key = word.strip_suffix("map").unwrap_or(word);
            let (_, rest) = message.split_once(&format!("references non-existent {key} key: "))?;
            let end = rest.find([',', ']', ' ']).unwrap_or(rest.len());
            Some(format!("{kind} has no key {}", &rest[..end]))
        })
}

#[cfg(test)]
mod tests;
