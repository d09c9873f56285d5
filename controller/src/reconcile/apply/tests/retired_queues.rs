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
use crate::reconcile::apply::retired;
use crate::reconcile::plan::retired::RetiredCheck;
use crate::reconcile::tests::fixtures::{actor, context_with, observed, record, spec};

/// A broker with the actor's empty classic queue, and the deletions that it received.
#[derive(Default)]
struct Broker(Mutex<Vec<String>>);

impl HttpClient for Broker {
    fn send<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> BoxFuture<'a, Result<HttpResponse, NoResponse>> {
        let path = request.url.path();
        let answer = if request.method == Method::DELETE {
            self.0.lock().push(path.to_owned());
            json!({})
        } else if path.ends_with("/bindings") {
            let arguments = json!({
                "asya.sh/cluster": "cluster-uid", "asya.sh/namespace": "ns", "asya.sh/actor": "a",
            });
            json!([{
                "source": "asya", "destination": "asya-a", "routing_key": "asya-a", "arguments": arguments,
                "properties_key": "asya-a~x", "vhost": "/", "destination_type": "queue",
            }])
        } else {
            json!({
                "name": "asya-a", "type": "classic", "durable": true, "arguments": {}, "consumers": 0,
                "messages": 0, "messages_ready": 0, "messages_unacknowledged": 0,
            })
        };
        let response = HttpResponse {
            status: StatusCode::OK,
            body: answer.to_string().into_bytes(),
            retry_after: None,
        };
        ready(Ok(response)).boxed()
    }
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

/// QUE-13, QUE-30: a pod that the watch has not reported yet may receive from the queue.
#[tokio::test]
async fn retired_queue_is_deleted_only_if_the_actor_has_no_pod_that_the_plan_did_not_know() {
    for (known_pods, expected) in [
        (vec![], vec![]),
        (
            vec![record(&pod())],
            vec!["/api/queues/%2F/asya-a".to_owned()],
        ),
    ] {
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
        let broker = Arc::new(Broker::default());
        let reached = Arc::clone(&broker);
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
        assert_eq!(*broker.0.lock(), expected, "{checked:?}");
        assert_eq!(checked.forgettable.len(), expected.len());
    }
}
