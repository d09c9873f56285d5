//! Fixtures for the tests of plan and report.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::{Settings, TransportsConfig};
use asya_shared::resolve::{Related, Resolution, Target, resolver};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::broker::Brokers;
use crate::broker::depths::ReportedDepth;
use crate::broker::http_client::over_network;
use crate::broker::rechecks::RecheckSequence;
use crate::cluster::fence::Fence;
use crate::cluster::impersonation::Impersonation;
use crate::context::{Context, ContextParts, Deadlines, Installation};
use crate::reconcile::desired::desired;
use crate::reconcile::model::availability::{Availability, AvailabilitySource};
use crate::reconcile::model::child::{Child, ChildOwnership};
use crate::reconcile::model::known_queues::{KnownQueues, UnlistedQueues};
use crate::reconcile::model::observed::{
    DeletionSettings, MemoryUpdates, Observed, ObservedQueue, ObservedScaling,
};
use crate::reconcile::model::target_pods::actor_hash;
use crate::record::{PodRecord, Projected, Record, TypedWorkload, WorkloadRecord};
use crate::runtime_script::config_map::RuntimeScript;
use crate::telemetry::events::Events;
use crate::telemetry::metrics::Metrics;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};

const DEADLINES: Deadlines = Deadlines {
    unready: Some(Duration::from_mins(5)),
    hpa_metrics: Some(Duration::from_mins(2)),
    conflict_backoff: Duration::from_secs(5),
};

pub(crate) fn record<R: Record>(object: &Value) -> Arc<R> {
    let projected: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
    projected.record
}

/// A context whose API server does not answer and whose stores are empty.
pub(crate) fn context() -> Context {
    context_with(|_| None)
}

/// When a rollout slot that was just acquired expires.
pub(crate) fn slot_end() -> Timestamp {
    Timestamp::now() + Duration::from_mins(10)
}

/// A context whose API server answers some requests, given as `METHOD /path`, with a status and an object.
pub(crate) fn context_with(responses: fn(&str) -> Option<(u16, Value)>) -> Context {
    let server = tower::service_fn(
        move |request: http::Request<kube::client::Body>| async move {
            let request_line = format!("{} {}", request.method(), request.uri().path());
            let (status, object) = responses(&request_line).ok_or("no API server")?;
            let response = http::Response::builder()
                .status(status)
                .body(kube::client::Body::from(object.to_string().into_bytes()));
            response.map_err(tower::BoxError::from)
        },
    );
    context_of(kube::Client::new(server, "default"))
}

/// The bodies of the writes that an API server received.
pub(crate) type Bodies = Arc<Mutex<Vec<Value>>>;

/// A context whose API server has no pods and answers every other request with `object`, and the bodies of its writes.
pub(crate) fn recording_context(object: Value) -> (Context, Bodies) {
    let bodies = Bodies::default();
    let sink = Arc::clone(&bodies);
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let sink = Arc::clone(&sink);
        let object = object.clone();
        async move {
            let is_write = request.method() != http::Method::GET;
            let lists_pods = !is_write && request.uri().path().ends_with("/pods");
            let body = request.into_body().collect_bytes().await?;
            if is_write {
                sink.lock().push(serde_json::from_slice(&body)?);
            }
            let answer = if lists_pods {
                json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []})
            } else {
                object
            };
            let response = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, tower::BoxError>(http::Response::new(response))
        }
    });
    (context_of(kube::Client::new(server, "default")), bodies)
}

/// A context with this API server and empty stores.
pub(crate) fn context_of(client: kube::Client) -> Context {
    let installation = installation();
    let metrics = Arc::new(Metrics::new());
    Context::new(ContextParts {
        impersonation: Impersonation::new(client.clone(), None),
        brokers: Brokers::new(
            client.clone(),
            &installation.namespace,
            Fence::unrestricted(),
            Arc::clone(&metrics),
            1,
            over_network(),
        ),
        runtime_script: RuntimeScript::new("script".into(), &installation.namespace),
        installation,
        events: Events::new(client.clone(), "test"),
        metrics,
        max_rollouts: 1,
        max_workload_rollouts: 1,
        retired_queue_interval: Duration::ZERO,
        client,
    })
}

/// An installation with the transports `mq`, `twin` (the same broker) and `other` (RabbitMQ), `aws` (SQS), `fixed`
/// (without autoCreate), `off` (disabled) and `dead` (with a dead letter queue, although its classic queues have no
/// delivery limit).
pub(crate) fn installation() -> Installation {
    let config = json!({"transports": {
        "mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "broker"}},
        "fixed": {"type": "rabbitmq", "enabled": true, "config": {"host": "theirs", "queues": {"autoCreate": false}}},
        "twin": {"type": "rabbitmq", "enabled": true, "config": {"host": "broker"}},
        "other": {"type": "rabbitmq", "enabled": true, "config": {"host": "elsewhere"}},
        "dead": {"type": "rabbitmq", "enabled": true, "config": {"host": "graveyard", "queues": {"dlq": {"enabled": true}}}},
        "aws": {"type": "sqs", "enabled": true, "config": {"region": "eu-west-1", "accountId": "1"}},
        "sealed": {"type": "rabbitmq", "enabled": true, "config": {"host": "sealed", "queues": {"autoCreate": false}, "passwordSecretRef": {"name": "mq-password", "key": "password"}}},
        "off": {"type": "rabbitmq", "enabled": false},
    }});
    Installation {
        transports: TransportsConfig::parse(&config.to_string()).unwrap(),
        settings: Settings::parse(None, None, None).unwrap(),
        runtime_hash: "script".to_owned(),
        scripts_hash: "scripts".to_owned(),
        namespace: "asya-system".to_owned(),
        webhook: true,
        queues_managed: true,
        deadlines: DEADLINES,
    }
}

pub(crate) fn spec(extra: &Value) -> Value {
    let mut spec = json!({
        "transport": "mq",
        "workload": {"template": {"spec": {"containers": [{"name": "asya-runtime", "image": "me/handler:1"}]}}},
    });
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    spec
}

/// Actor `ns/a` with our finalizer, as the API server returns it.
pub(crate) fn actor(metadata: &Value, spec: &Value, status: &Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "actor-uid", "resourceVersion": "5", "generation": 2, "finalizers": ["asya.sh/finalizer"]},
        "spec": spec,
        "status": status,
    });
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    object
}

/// Status of a binding to Deployment `web` without pods, whose dry run passed.
pub(crate) fn verified_status() -> Value {
    let spec = json!({
        "transport": "mq",
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let unverified = observed(&actor(&json!({}), &spec, &json!({})));
    let hash = unverified
        .desired_binding()
        .unwrap()
        .injected_hash
        .as_deref();
    json!({
        "boundSince": "1970-01-01T00:00:00Z", "observedGeneration": 2,
        "injection": {"proved": actor_hash(hash)},
    })
}

/// The observed state of that actor when nothing else exists.
pub(crate) fn observed(actor: &Value) -> Observed {
    let actor = record(actor);
    let previous = actor_status(&actor);
    let desired = desired(&installation(), &actor, &previous, &[]);
    let transports = installation().transports;
    Observed {
        queues: KnownQueues::from_status(
            &previous,
            UnlistedQueues::default(),
            desired.as_deref(),
            &transports,
            |_| None,
        ),
        desired,
        queue_name_taken: None,
        deletion: DeletionSettings::of(&actor),
        drain: None,
        recheck_sequence: RecheckSequence::default(),
        leading_since: Timestamp::UNIX_EPOCH,
        previous,
        workload: Child::NotFound,
        previous_workload: None,
        creation_failure: None,
        service_account: Child::NotFound,
        scaling: ObservedScaling {
            installed: true,
            scaled_object: Child::NotFound,
            trigger_authentication: Child::NotFound,
            scaled_objects: Vec::new(),
            hpas: Vec::new(),
            lost_for: None,
        },
        known_pods: Vec::new(),
        pods: Vec::new(),
        predecessor_pods: Vec::new(),
        unmanaged_pods: Vec::new(),
        binding: None,
        queue: ObservedQueue::Unmanaged,
        depth: ReportedDepth::Unchanged,
        ownership: ChildOwnership {
            actor: Arc::clone(&actor),
            adopts: false,
        },
        queues_managed: true,
        webhook: true,
        deadlines: DEADLINES,
        memory_updates: MemoryUpdates::default(),
        actor,
    }
}

fn actor_status(actor: &crate::record::ActorRecord) -> asya_shared::api::AsyncActorStatus {
    actor
        .status
        .as_ref()
        .map(|raw| serde_json::from_str(raw.get()).unwrap())
        .unwrap_or_default()
}

/// The actor's Deployment as the API server returns it after our apply.
pub(crate) fn deployment(observed: &Observed) -> Value {
    let hash = observed
        .standalone()
        .map(|standalone| standalone.workload.applied.hash.clone())
        .unwrap_or_default();
    let template = observed
        .standalone()
        .map(|standalone| standalone.workload.template_hash.clone())
        .unwrap_or_default();
    json!({
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "workload-uid", "resourceVersion": "9", "generation": 1,
            "labels": {"app.kubernetes.io/managed-by": "asya-operator"},
            "annotations": {"asya.sh/applied-hash": hash},
            "ownerReferences": [{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "actor-uid", "controller": true}],
            "managedFields": [{"manager": "asya-operator/workload", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
        },
        "spec": {
            "replicas": 1,
            "template": {"metadata": {"annotations": {"asya.sh/template-hash": template}}},
        },
        "status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1},
    })
}

pub(crate) fn workload(object: &Value) -> Arc<WorkloadRecord> {
    Arc::clone(&record::<TypedWorkload<Deployment>>(object).record)
}

/// The same object as a `StatefulSet`.
pub(crate) fn stateful_set(object: &Value) -> Arc<WorkloadRecord> {
    Arc::clone(&record::<TypedWorkload<StatefulSet>>(object).record)
}

/// A pod of that Deployment.
pub(crate) fn pod(name: &str, template_hash: &str) -> Arc<PodRecord> {
    record(&json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "3",
            "labels": {"asya.sh/asya": "a"},
            "annotations": {"asya.sh/template-hash": template_hash},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-7d9f", "uid": "rs", "controller": true}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

/// The resolved target `Deployment/web` in namespace `ns`.
pub fn target() -> Target {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    match resolver("apps", "Deployment").resolve(&object, &Related::default()) {
        Resolution::Found(target) => *target,
        other => panic!("{other:?}"),
    }
}

/// The availability of a target with `active` ready pods, read just now.
pub(crate) fn just_read(active: i32) -> Availability {
    Availability {
        active,
        source: Some(AvailabilitySource {
            pods: resolver("ray.io", "RayCluster").unresolved_pods("rc"),
            replicas: Vec::new(),
            read_at: Instant::now(),
        }),
        ..Availability::default()
    }
}
