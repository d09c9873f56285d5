//! Records of Events: about a pod, as far as they tell of a volume that cannot be mounted, and about a `StatefulSet`
//! whose pods are refused (STA-2).

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use super::{Class, Enqueue, Key, Metadata, Problem, RawMetadata, Record};

/// Parts of messages that tell of a kubelet which is still catching up: the next attempt succeeds.
const PASSING: [&str; 3] = [
    "failed to sync configmap cache",
    "failed to sync secret cache",
    "not registered",
];

/// An Event about a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEventRecord {
    metadata: Metadata,
    /// The pod.
    pub pod: Key,
    /// Tells the pod from an earlier one of its name.
    pub pod_uid: Box<str>,
    /// The volume that cannot be mounted; other Events have none.
    pub problem: Option<Problem>,
    /// When it was told last.
    pub last: Timestamp,
}

/// An Event about a `StatefulSet` that could not make a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusalRecord {
    metadata: Metadata,
    /// The `StatefulSet`.
    pub set: Key,
    /// Tells it from an earlier one of its name.
    pub set_uid: Box<str>,
    /// The API server's words.
    pub message: Box<str>,
    /// When it was told last.
    pub last: Timestamp,
}

/// An Event about something that may make pods, and could not make one.
#[derive(Clone, Debug, PartialEq)]
pub struct CreationFailureRecord {
    metadata: Metadata,
    /// What it is about: `None` where the Event tells of something else.
    pub maker: Option<Maker>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// When it was told last.
    pub last: Timestamp,
}

/// What makes pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// API group and version.
    pub api_version: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
}

/// The decoded fields of an Event.
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
    /// Which of the fields is filled depends on the age of the sender's code.
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
        let of = &raw.involved_object;
        Self {
            metadata: raw.metadata.keep(),
            pod: Key::new(&of.namespace, &of.name),
            pod_uid: of.uid.as_ref().into(),
            problem: problem(&raw.reason, &raw.message),
            last: raw.last(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its pod knows.
    fn concerns(&self) -> Enqueue {
        Enqueue::Nobody
    }
}

impl Record for RefusalRecord {
    type Kind = Event;
    type Raw<'de> = RawEvent<'de>;

    fn what() -> Cow<'static, str> {
        "StatefulSet Event".into()
    }

    fn project(raw: RawEvent<'_>) -> Self {
        let of = &raw.involved_object;
        let words = raw.message.split_once(" failed error: ");
        Self {
            metadata: raw.metadata.keep(),
            set: Key::new(&of.namespace, &of.name),
            set_uid: of.uid.as_ref().into(),
            message: words.map_or(&*raw.message, |(_, words)| words).into(),
            last: raw.last(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its `StatefulSet` knows.
    fn concerns(&self) -> Enqueue {
        Enqueue::Nobody
    }
}

impl Record for CreationFailureRecord {
    type Kind = Event;
    type Raw<'de> = RawEvent<'de>;

    fn what() -> Cow<'static, str> {
        "pod creation Event".into()
    }

    fn project(raw: RawEvent<'_>) -> Self {
        let of = &raw.involved_object;
        // FailedCreate, FailedToCreateWorkerPod
        let tells = raw.reason.starts_with("Failed") && raw.reason.contains("Create");
        Self {
            metadata: raw.metadata.keep(),
            maker: tells.then(|| Maker {
                api_version: of.api_version.as_ref().into(),
                kind: of.kind.as_ref().into(),
                name: of.name.as_ref().into(),
            }),
            namespace: of.namespace.as_ref().into(),
            last: raw.last(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The bindings whose pods it makes know.
    fn concerns(&self) -> Enqueue {
        Enqueue::Nobody
    }
}

/// The reason is a field; what exactly is missing stands in the text alone.
fn problem(reason: &str, message: &str) -> Option<Problem> {
    if !matches!(
        reason,
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume"
    ) || PASSING.iter().any(|passing| message.contains(passing))
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
            Class::ConfigError
        } else {
            Class::VolumeError
        },
        container: None,
        reason: text.into(),
    })
}

/// The `ConfigMap` or Secret, or the key of one, that a message says does not exist.
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
