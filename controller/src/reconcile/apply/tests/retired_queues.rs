//! Retired queues at the broker.

use std::sync::Arc;

use asya_shared::api::QueueStatus;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{ACTOR, check};
use crate::broker::Brokers;
use crate::broker::http_client::{
    BuildHttpClients, HttpClient, HttpRequest, HttpResponse, NoResponse, over_network,
};
use crate::cluster::fence::Fence;
use crate::context::Context;
use crate::reconcile::apply::retired;
use crate::reconcile::model::outcome::RetiredQueues;
use crate::reconcile::plan::retired::RetiredCheck;
use crate::reconcile::plan::retired::tests::queue;
use crate::reconcile::tests::fixtures::{actor, context_with, observed, record, spec};

type Location = fn(&str) -> [Value; 2];

/// A broker with classic queue `asya-a`, and the writes that it received.
struct Broker {
    writes: Mutex<Vec<String>>,
    messages: u64,
    /// The cluster and the node that the broker at a host names.
    location: Location,
    /// The actor that the owner tag names.
    tagged_for: Option<&'static str>,
    status: StatusCode,
    overview_status: StatusCode,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            writes: Mutex::default(),
            messages: 0,
            location: |host| [json!(host), json!(format!("rabbit@{host}"))],
            tagged_for: Some("a"),
            status: StatusCode::OK,
            overview_status: StatusCode::OK,
        }
    }
}

impl HttpClient for Broker {
    fn send<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> BoxFuture<'a, Result<HttpResponse, NoResponse>> {
        let path = request.url.path();
        let [cluster, node] = (self.location)(request.url.host_str().unwrap_or_default());
        let answer = if request.method != Method::GET {
            let write = format!("{} {path}", request.method);
            self.writes.lock().push(write);
            json!({})
        } else if path.ends_with("/bindings") {
            let bindings = self.tagged_for.into_iter().map(|actor| {
                let arguments = json!({
                    "asya.sh/cluster": "cluster-uid", "asya.sh/namespace": "ns", "asya.sh/actor": actor,
                });
                json!({
                    "source": "asya", "destination": "asya-a", "routing_key": "asya-a", "arguments": arguments,
                    "properties_key": "asya-a~x", "vhost": "/", "destination_type": "queue",
                })
            });
            bindings.collect()
        } else if path.ends_with("/overview") {
            json!({"cluster_name": cluster})
        } else {
            json!({
                "name": "asya-a", "node": node, "type": "classic", "durable": true, "arguments": {}, "consumers": 0,
                "messages": self.messages, "messages_ready": self.messages, "messages_unacknowledged": 0,
            })
        };
        let response = HttpResponse {
            status: if path.ends_with("/overview") {
                self.overview_status
            } else {
                self.status
            },
            body: answer.to_string().into_bytes(),
            retry_after: None,
        };
        ready(Ok(response)).boxed()
    }
}

/// A context whose API server has the actor and its pod, and all of whose transports lead to `broker`.
fn context_of(broker: &Arc<Broker>) -> Context {
    let mut context = context_with(|request| {
        let answer: Value = match request {
            "GET /api/v1/namespaces/kube-system" => {
                json!({"metadata": {"name": "kube-system", "uid": "cluster-uid"}})
            }
            "GET /api/v1/namespaces/ns/pods" => json!({"metadata": {}, "items": [pod()]}),
            _ if request == format!("GET {ACTOR}") => {
                actor(&json!({}), &spec(&json!({})), &json!({}))
            }
            _ => return None,
        };
        Some((200, answer))
    });
    let reached = Arc::clone(broker);
    let clients = BuildHttpClients {
        management_api: Arc::new(move |_| Ok(reached.clone())),
        ..over_network()
    };
    context.brokers = Brokers::new(
        context.client.clone(),
        "asya-system",
        Fence::unrestricted(),
        Arc::default(),
        1,
        clients,
    );
    context
}

/// The actor's pod, as the API server has it.
fn pod() -> Value {
    json!({
        "metadata": {
            "name": "a-1", "namespace": "ns", "uid": "new", "resourceVersion": "9",
            "labels": {"asya.sh/asya": "a"},
        },
        "status": {"phase": "Running"},
    })
}

/// QUE-13, QUE-30: a pod that the watch has not reported yet may consume from the queue.
#[tokio::test]
async fn retired_queue_is_deleted_only_if_the_actor_has_no_pod_that_the_plan_did_not_know() {
    for (known_pods, expected) in [
        (vec![], vec![]),
        (
            vec![record(&pod())],
            vec!["DELETE /api/queues/%2F/asya-a".to_owned()],
        ),
    ] {
        let broker = Arc::new(Broker::default());
        let context = context_of(&broker);
        let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
        let queue = QueueStatus {
            transport: "other".to_owned(),
            name: "asya-a".to_owned(),
            ..QueueStatus::default()
        };
        let planned = RetiredCheck {
            known_pods,
            ..check(queue)
        };
        let checked = retired::check(&context, &observed.actor, planned)
            .await
            .unwrap();
        assert_eq!(*broker.writes.lock(), expected, "{checked:?}");
        assert_eq!(checked.forgettable.len(), expected.len());
    }
}

/// QUE-13, QUE-34: such a queue may be someone else's, so nothing is written to it. It is the actor's only once it was
/// found with its tag.
#[tokio::test]
async fn queue_that_may_exist_is_changed_by_nothing_but_its_deletion() {
    let deleted = "DELETE /api/queues/%2F/asya-a";
    for (tagged_for, messages, status, writes, [forgotten, confirmed]) in [
        (None, 0, StatusCode::OK, vec![deleted], [true, false]),
        (None, 1, StatusCode::OK, vec![], [true, false]),
        (Some("b"), 0, StatusCode::OK, vec![], [true, false]),
        (Some("a"), 0, StatusCode::OK, vec![deleted], [true, false]),
        (Some("a"), 1, StatusCode::OK, vec![], [false, true]),
        (
            Some("a"),
            0,
            StatusCode::SERVICE_UNAVAILABLE,
            vec![],
            [false; 2],
        ),
    ] {
        let broker = Arc::new(Broker {
            messages,
            tagged_for,
            status,
            ..Broker::default()
        });
        let context = context_of(&broker);
        let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
        let desired = observed.desired.as_ref().unwrap();
        let transports = &context.installation.transports;
        let elsewhere = desired.queues_elsewhere(&observed.actor, transports);
        let possible = elsewhere
            .into_iter()
            .filter(|(it, _)| it.transport == "other");
        let possible: Vec<_> = possible.collect();
        let queue = possible[0].0.clone();
        let unrecorded = &context.unrecorded_queues;
        let key = observed.key();
        unrecorded.add_maybe_created(key, || Some(possible));
        let planned = RetiredCheck {
            maybe_created: vec![queue.clone()],
            current: Some(desired.queue()),
            known_pods: vec![record(&pod())],
            ..RetiredCheck::default()
        };
        let checked = retired::check(&context, &observed.actor, planned)
            .await
            .unwrap();
        let case = format!("{tagged_for:?}, {messages} messages, {status}");
        assert_eq!(*broker.writes.lock(), writes, "{case}");
        assert_eq!(checked.forgettable == [queue.clone()], forgotten, "{case}");
        assert_eq!(checked.confirmed == [queue.clone()], confirmed, "{case}");
        assert_eq!(
            unrecorded.confirmed(key) == [queue.clone()],
            confirmed,
            "{case}"
        );
        let is_kept = !forgotten && !confirmed;
        assert_eq!(
            unrecorded.maybe_created_by(key) == [queue],
            is_kept,
            "{case}"
        );
    }
}

/// Checks the retired queue of transport `other` for an actor that uses `mq`, both of which lead to `broker`.
async fn checked_at(broker: Broker) -> (Arc<Broker>, RetiredQueues) {
    let broker = Arc::new(broker);
    let context = context_of(&broker);
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let planned = RetiredCheck {
        current: Some(queue("mq")),
        known_pods: vec![record(&pod())],
        ..check(queue("other"))
    };
    let checked = retired::check(&context, &observed.actor, planned);
    (broker, checked.await.unwrap())
}

/// QUE-36: two transports may lead to one broker by different hosts. Deleting the queue of a napping actor would lose
/// the messages that arrive until it is created again.
#[tokio::test]
async fn queue_that_nothing_tells_apart_from_the_present_one_is_not_deleted() {
    let deleted = vec!["DELETE /api/queues/%2F/asya-a".to_owned()];
    let cases: [(_, Location, _, _, _); 6] = [
        (
            "one broker",
            |_| [json!("one"), json!("rabbit@a")],
            0,
            vec![],
            true,
        ),
        (
            "one broker, with messages",
            |_| [json!("one"), json!("rabbit@a")],
            1,
            vec![],
            false,
        ),
        (
            "no cluster named",
            |_| [Value::Null, json!("rabbit@a")],
            0,
            vec![],
            true,
        ),
        (
            "nothing named",
            |_| [Value::Null, Value::Null],
            0,
            vec![],
            true,
        ),
        (
            "two clusters",
            |host| [json!(host), json!("rabbit@a")],
            0,
            deleted.clone(),
            true,
        ),
        (
            "two nodes",
            |host| [Value::Null, json!(host)],
            0,
            deleted,
            true,
        ),
    ];
    for (case, location, messages, writes, is_forgotten) in cases {
        let (broker, checked) = checked_at(Broker {
            messages,
            location,
            ..Broker::default()
        })
        .await;
        assert_eq!(*broker.writes.lock(), writes, "{case}");
        assert_eq!(
            checked.forgettable == [queue("other")],
            is_forgotten,
            "{case}"
        );
    }
}

/// QUE-36: a broker that fails to name its cluster is asked again, so the empty queue at another broker is not left
/// behind. One that does not reveal the name to this user says all it ever will.
#[tokio::test]
async fn retired_queue_is_kept_for_another_try_while_a_broker_cannot_name_its_cluster() {
    for (status, is_forgotten) in [
        (StatusCode::INTERNAL_SERVER_ERROR, false),
        (StatusCode::SERVICE_UNAVAILABLE, false),
        (StatusCode::TOO_MANY_REQUESTS, false),
        (StatusCode::UNAUTHORIZED, true),
        (StatusCode::NOT_FOUND, true),
    ] {
        let (broker, checked) = checked_at(Broker {
            location: |host| [json!(host), json!("rabbit@a")],
            overview_status: status,
            ..Broker::default()
        })
        .await;
        assert!(broker.writes.lock().is_empty(), "{status}");
        assert_eq!(!checked.forgettable.is_empty(), is_forgotten, "{status}");
        let is_tried_again = checked.recheck_after.is_some_and(|wait| !wait.is_zero());
        assert_eq!(is_tried_again, !is_forgotten, "{status}");
    }
}
