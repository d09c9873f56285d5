//! The fields of an `AsyncActor` that the index needs, extracted while the API server's response is decoded. Decoding
//! must not fail: one bad object would fail every list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use asya_shared::api::{
    AsyncActor, InjectionStatus, QueueDeletionPolicy, ResolvedTarget, WorkloadRef,
};
use asya_shared::claims::QueueName;
use asya_shared::key::Key;
use asya_shared::names::annotation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An actor as received from a list or a watch.
#[derive(Clone, Debug)]
pub struct Seen {
    meta: ObjectMeta,
    pub actor: Arc<Actor>,
}

/// The fields of an actor that the index needs.
#[derive(Debug)]
pub struct Actor {
    pub key: Key,
    /// Distinguishes it from an earlier actor of the same name.
    pub uid: Box<str>,
    pub created: Option<Time>,
    /// Whether it is being deleted without waiting for its queue to become empty; while it waits, its pods keep
    /// working.
    pub deleting: bool,
    pub transport: Option<Box<str>>,
    /// The target that its spec binds.
    pub target: Option<WorkloadRef>,
    /// The whole spec as raw JSON; only for bindings.
    pub spec: Option<Box<RawValue>>,
    /// Its annotation `eks.amazonaws.com/role-arn`; only for bindings.
    pub role_arn: Option<Box<str>>,
    pub told: Told,
}

/// The status fields that the index needs; empty if the status cannot be decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Told {
    /// The queue that was verified last.
    pub queue: Option<QueueName>,
    /// Queues that the actor has moved away from.
    pub retired_queues: Box<[QueueName]>,
    /// Since when its pods get the sidecar.
    pub bound_since: Option<Time>,
    /// What dry runs have shown about its pods.
    pub injection: Option<InjectionStatus>,
    /// What its target resolved to.
    pub resolved_target: Option<ResolvedTarget>,
    /// Since when its deletion no longer waits for its queue.
    pub queue_released_since: Option<Time>,
}

#[derive(Deserialize)]
struct RawActor<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    creation_timestamp: Option<Time>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    transport: Option<Box<str>>,
    workload_ref: Option<WorkloadRef>,
    queue: Option<Value>,
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RawActor {
            metadata,
            spec: raw,
            status,
        } = RawActor::deserialize(deserializer)?;
        let spec: Option<Spec> = read(raw);
        let queue = spec.as_ref().and_then(|spec| spec.queue.as_ref());
        let waits = QueueDeletionPolicy::of_raw(queue).waits_until_empty();
        let (transport, target) =
            spec.map_or((None, None), |spec| (spec.transport, spec.workload_ref));
        let told: Told = read(status).unwrap_or_default();
        let works = waits && told.queue_released_since.is_none();
        let role_arn = metadata.annotations.as_ref().and_then(|annotations| {
            let role = annotations.get(annotation::ROLE_ARN)?;
            target.as_ref().map(|_| role.as_ref().into())
        });
        let actor = Actor {
            role_arn,
            key: Key::new(&metadata.namespace, &metadata.name),
            uid: metadata.uid.as_ref().into(),
            created: metadata.creation_timestamp,
            deleting: metadata.deletion_timestamp.is_some() && !works,
            transport,
            spec: raw.filter(|_| target.is_some()).map(ToOwned::to_owned),
            target,
            told,
        };
        let meta = ObjectMeta {
            name: Some(metadata.name.into_owned()),
            namespace: Some(metadata.namespace.into_owned()),
            resource_version: Some(metadata.resource_version.into_owned()),
            ..ObjectMeta::default()
        };
        Ok(Self {
            meta,
            actor: Arc::new(actor),
        })
    }
}

impl Resource for Seen {
    type DynamicType = ();
    type Scope = <AsyncActor as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        AsyncActor::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        AsyncActor::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        AsyncActor::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        AsyncActor::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
