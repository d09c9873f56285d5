//! The fields of an `AsyncActor` that reviews need, extracted while the API server's response is decoded. Decoding
//! must not fail: one bad object would fail every list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::{AsyncActor, InjectionStatus, QueueDeletionPolicy, ResolvedTarget, WorkloadRef};
use crate::key::Key;
use crate::names::annotation;
use crate::queue_claims::StatusQueue;
use crate::validate::kept_spec;

/// An actor as received from a list or a watch.
#[derive(Clone, Debug)]
pub struct ProjectedActor {
    meta: ObjectMeta,
    /// Its fields that reviews need.
    pub actor: Arc<Actor>,
}

/// The fields of an actor that reviews need.
#[derive(Debug)]
pub struct Actor {
    /// Namespace and name.
    pub key: Key,
    /// Distinguishes the actor from an earlier one with the same name.
    pub uid: Box<str>,
    /// When the actor was created.
    pub created: Option<Time>,
    /// Whether the actor is being deleted and does not wait for its queue to drain; while it does, its pods keep
    /// consuming.
    pub deleting: bool,
    /// `spec.transport`.
    pub transport: Option<Box<str>>,
    /// The target that the spec binds.
    pub target: Option<WorkloadRef>,
    /// The whole spec as raw JSON; only for bindings, and only if it is not too large to be kept (VAL-22).
    pub spec: Option<Box<RawValue>>,
    /// The annotation `eks.amazonaws.com/role-arn`; only for bindings.
    pub role_arn: Option<Box<str>>,
    /// The fields of its status that reviews need.
    pub status: ActorStatus,
}

/// The status fields that reviews need; empty if the status cannot be decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActorStatus {
    /// The last verified queue.
    pub queue: Option<StatusQueue>,
    /// Whether the broker marks the queue as another's.
    pub queue_marked_for_other: bool,
    /// Queues that the actor has moved away from.
    pub retired_queues: Box<[StatusQueue]>,
    /// Since when pods of the actor are injected.
    pub bound_since: Option<Time>,
    /// Results of dry runs of the actor's pods.
    pub injection: Option<InjectionStatus>,
    /// The resolved target.
    pub resolved_target: Option<ResolvedTarget>,
    /// Since when deletion no longer waits for the queue to drain.
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

impl<'de> Deserialize<'de> for ProjectedActor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RawActor {
            metadata,
            spec: raw,
            status,
        } = RawActor::deserialize(deserializer)?;
        let spec: Option<Spec> = read(raw);
        let queue = spec.as_ref().and_then(|spec| spec.queue.as_ref());
        let waits_until_empty = QueueDeletionPolicy::from_raw(queue).waits_until_empty();
        let (transport, target) =
            spec.map_or((None, None), |spec| (spec.transport, spec.workload_ref));
        let actor_status: ActorStatus = read(status).unwrap_or_default();
        let still_consuming = waits_until_empty && actor_status.queue_released_since.is_none();
        let role_arn = metadata.annotations.as_ref().and_then(|annotations| {
            let role = annotations.get(annotation::ROLE_ARN)?;
            target.as_ref().map(|_| role.as_ref().into())
        });
        let (spec, transport) = kept_spec(raw, transport);
        let actor = Actor {
            role_arn,
            key: Key::new(&metadata.namespace, &metadata.name),
            uid: metadata.uid.as_ref().into(),
            created: metadata.creation_timestamp,
            deleting: metadata.deletion_timestamp.is_some() && !still_consuming,
            transport,
            spec: spec.filter(|_| target.is_some()).map(ToOwned::to_owned),
            target,
            status: actor_status,
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

impl Resource for ProjectedActor {
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
