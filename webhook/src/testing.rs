//! Fixtures shared by tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asya_shared::config::{Settings, TransportsConfig};
use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tower::{Layer, service_fn};

use crate::index::{Index, Installation, LastResponse, ProjectedActor};

/// A fake API server with one list. The test writes the events of its watches; created objects are recorded.
#[derive(Clone, Default)]
pub struct Fake {
    request_count: Arc<AtomicUsize>,
    pub down: Arc<Mutex<Option<StatusCode>>>,
    pub listed: Arc<Mutex<Vec<Value>>>,
    pub posted: Arc<Mutex<Vec<Value>>>,
    watches: Arc<Mutex<Vec<mpsc::UnboundedSender<String>>>>,
    /// The query of the newest watch.
    pub watch_query: Arc<Mutex<String>>,
}

impl Fake {
    async fn respond(self, request: Request<kube::client::Body>) -> Response<Body> {
        self.request_count.fetch_add(1, Ordering::SeqCst);
        if let Some(code) = *self.down.lock().await {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "unavailable", "reason": "x", "code": code.as_u16(),
            });
            let response = Response::builder().status(code);
            return response.body(Body::from(status.to_string())).unwrap();
        }
        if request.method() == Method::POST {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let object: Value = serde_json::from_slice(&body).unwrap();
            self.posted.lock().await.push(object);
            return Response::new(Body::from(body));
        }
        let query = request.uri().query().unwrap_or_default();
        if !query.contains("watch=") {
            let list = json!({
                "kind": "List", "apiVersion": "v1",
                "metadata": {"resourceVersion": "5"}, "items": *self.listed.lock().await,
            });
            return Response::new(Body::from(list.to_string()));
        }
        query.clone_into(&mut *self.watch_query.lock().await);
        let (sender, receiver) = mpsc::unbounded_channel();
        self.watches.lock().await.push(sender);
        let lines = futures::stream::unfold(receiver, async |mut receiver| {
            Some((Ok::<_, std::io::Error>(receiver.recv().await?), receiver))
        });
        Response::new(Body::from_stream(lines.boxed()))
    }

    /// A client of this server that reports every response to `last_response`.
    pub fn client(&self, last_response: &LastResponse) -> Client {
        let fake = self.clone();
        let service = service_fn(move |request| {
            let fake = fake.clone();
            async move { Ok::<_, tower::BoxError>(fake.respond(request).await) }
        });
        Client::new(last_response.layer(service), "default")
    }

    /// Number of requests so far.
    pub fn requests(&self) -> usize {
        self.request_count.load(Ordering::SeqCst)
    }

    /// Ends all watches, as the server does when they time out.
    pub async fn cut(&self) {
        self.watches.lock().await.clear();
    }

    /// Sends an event on the newest watch.
    pub async fn send_event(&self, type_: &str, object: &Value) {
        // Write the type first, as the API server does: otherwise the object could not be borrowed from the text.
        let event = format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n");
        let watches = self.watches.lock().await;
        watches.last().expect("a watch").send(event).unwrap();
    }
}

/// Transports of three kinds: with a dead letter queue, without one, and disabled.
pub fn installation() -> Installation {
    let config = json!({"transports": {
        "mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "b", "queues": {"dlq": {"enabled": true}}}},
        "other": {"type": "rabbitmq", "enabled": true, "config": {"host": "c"}},
        "twin": {"type": "rabbitmq", "enabled": true, "config": {"host": "b"}},
        "off": {"type": "rabbitmq", "enabled": false, "config": {"host": "b"}},
    }});
    Installation {
        transports: TransportsConfig::parse(&config.to_string()).unwrap(),
        settings: Settings::parse(None, None, None).unwrap(),
    }
}

/// An actor as the API server stores it.
pub fn actor(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor",
        "metadata": {
            "namespace": namespace, "name": name, "uid": format!("uid-of-{name}"),
            "resourceVersion": "1", "creationTimestamp": "2026-05-04T10:00:00Z",
        },
        "spec": spec,
    })
}

/// A spec that binds an object.
pub fn binding(kind: &str, name: &str) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": kind, "name": name});
    json!({"transport": "other", "workloadRef": target})
}

/// A bound actor, into whose pods the sidecar is injected.
pub fn bound(namespace: &str, name: &str, deployment: &str) -> Value {
    let mut actor = actor(namespace, name, &binding("Deployment", deployment));
    actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
    actor["status"] = json!({"boundSince": "2026-05-04T10:00:01Z"});
    actor
}

pub fn index_actor(index: &Index, actor: &Value) {
    let projected: ProjectedActor = serde_json::from_str(&actor.to_string()).unwrap();
    index.apply(&projected.actor);
}

/// A pod of a Deployment, as a review carries it: without name and namespace.
pub fn pod(deployment: &str) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-7d9f"),
        "uid": "uid-of-replica-set", "controller": true, "blockOwnerDeletion": true,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{deployment}-7d9f-"),
            "labels": {"app": deployment, "pod-template-hash": "7d9f"},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "model", "image": "vllm"}], "restartPolicy": "Always"},
    })
}

/// A CREATE review of an object.
pub fn review(kind: &Value, namespace: &str, object: &Value, dry_run: bool) -> String {
    let resource = match kind["kind"].as_str().unwrap() {
        "Pod" => json!({"group": "", "version": "v1", "resource": "pods"}),
        _ => json!({"group": "asya.sh", "version": "v1alpha1", "resource": "asyncactors"}),
    };
    let request = json!({
        "uid": "u", "kind": kind, "resource": resource, "namespace": namespace,
        "operation": "CREATE", "object": object, "dryRun": dry_run,
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
    });
    review.to_string()
}

/// A CREATE review of a pod.
pub fn pod_review(namespace: &str, pod: &Value, dry_run: bool) -> String {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    review(&kind, namespace, pod, dry_run)
}

/// A CREATE review of an actor.
pub fn actor_review(namespace: &str, actor: &Value, dry_run: bool) -> String {
    let kind = json!({"group": "asya.sh", "version": "v1alpha1", "kind": "AsyncActor"});
    review(&kind, namespace, actor, dry_run)
}
