//! Meaning of HTTP 400 from RabbitMQ: it returns the same status for a queue that holds messages, a list that has
//! shrunk, and a node that is down. The bodies come from a real server (QUE-38).

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::IntoResponse;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::broker::{Count, DeleteIfEmptyOutcome, Depth, QueueCheck};

pub type Reply = (u16, Value);

/// A client of a server that gives this response to `METHOD path?query`.
pub async fn client_of_server(
    respond: impl Fn(&str) -> Reply + Clone + Send + Sync + 'static,
) -> (Transport, Arc<dyn QueueClient>) {
    let handler = move |method: Method, uri: Uri| {
        let (status, body) = respond(&format!("{method} {uri}"));
        let status = StatusCode::from_u16(status).unwrap();
        std::future::ready(
            (
                status,
                [("content-type", "application/json")],
                body.to_string(),
            )
                .into_response(),
        )
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let routes = Router::new().fallback(handler);
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let config = json!({"host": "127.0.0.1", "management": {"port": port}});
    let transport = transport("rabbitmq", &config);
    let client = client(&transport).await.unwrap();
    (transport, client)
}

fn absent() -> Reply {
    (
        404,
        json!({"error": "Object Not Found", "reason": "Not Found"}),
    )
}

fn mark_of(queue: &ActorQueue) -> Value {
    json!({
        "source": "asya", "destination": queue.names.queue, "destination_type": "queue", "properties_key": "x",
        "arguments": {"asya.sh/cluster": HERE, "asya.sh/namespace": "ns", "asya.sh/actor": queue.actor},
    })
}

/// QUE-38, RMQ-6
#[tokio::test]
async fn only_unmet_delete_conditions_keep_the_queue_without_an_error() {
    for (reason, kept) in [
        (
            "406 PRECONDITION_FAILED - queue 'asya-q' in vhost '/' not empty",
            true,
        ),
        (
            "406 PRECONDITION_FAILED - queue 'asya-q' in vhost '/' in use",
            true,
        ),
        (
            "404 NOT_FOUND - home node 'rabbit@one' of durable queue 'asya-q' is down",
            false,
        ),
    ] {
        let (transport, client) = client_of_server(move |request| {
            let (method, path) = request.split_once(' ').unwrap();
            match (method, path) {
                ("DELETE", _) => (400, json!({"error": "bad_request", "reason": reason})),
                (_, path) if path.ends_with("/bindings") => {
                    let transport = super::transport("rabbitmq", &json!({"host": "h"}));
                    (200, json!([mark_of(&queue_of(&transport, "q"))]))
                }
                _ => (
                    200,
                    json!({"type": "classic", "messages_ready": 0, "messages_unacknowledged": 0}),
                ),
            }
        })
        .await;
        let queue = queue_of(&transport, "q");
        let result = client
            .delete_if_empty(
                &queue.names.queue,
                &owner(&queue),
                Untagged::Keep,
                1,
                &Confirmed,
            )
            .await;
        match result {
            Ok(DeleteIfEmptyOutcome::InUse) => assert!(kept, "{reason}"),
            Err(BrokerError::PrerequisiteMissing(text)) => {
                assert!(!kept && text.contains(reason), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// QUE-38, RMQ-6
#[tokio::test]
async fn list_that_shrinks_during_paging_fails_no_actor() {
    let (transport, client) = client_of_server(|request| {
        let item = |number: usize| json!({"name": format!("asya-q{number}"), "messages_ready": 1, "messages_unacknowledged": 0});
        if request.contains("page=1&") {
            let items: Vec<Value> = (0..20).map(item).collect();
            (200, json!({"page_count": 2, "items": items}))
        } else if request.contains("page=2&") {
            let reason = "page: 2 size: 500 total_count: 500";
            (400, json!({"error": "page_out_of_range", "reason": reason}))
        } else {
            absent()
        }
    })
    .await;
    let names: Vec<String> = (0..21)
        .map(|number| queue_of(&transport, &format!("q{number}")).names.queue)
        .collect();
    let one = Depth {
        queued: 1,
        processing: 0,
    };
    let counted = client.depths(&names).await;
    assert!(
        counted[..20]
            .iter()
            .all(|count| *count == Ok(Count::Messages(one))),
        "{counted:?}"
    );
    assert_eq!(counted[20], Ok(Count::NotFound), "it was read individually");
}

/// RMQ-6: 25 of 100,000 queues are read singly, after a first page that shows how many there are.
#[tokio::test]
async fn few_queues_in_a_large_virtual_host_do_not_cost_all_its_pages() {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let (transport, client) = client_of_server(move |request| {
        seen.lock().push(request.to_owned());
        if request.contains("page=") {
            (200, json!({"page_count": 200, "items": []}))
        } else {
            (
                200,
                json!({"messages_ready": 1, "messages_unacknowledged": 0}),
            )
        }
    })
    .await;
    let queue = |number| queue_of(&transport, &format!("q{number}"));
    let names: Vec<String> = (0..25).map(|number| queue(number).names.queue).collect();
    let one = Depth {
        queued: 1,
        processing: 0,
    };
    let counted = client.depths(&names).await;
    assert_eq!(counted, vec![Ok(Count::Messages(one)); 25]);
    assert_eq!(requests.lock().len(), 1 + 25);
    assert!(requests.lock()[0].ends_with("&name=asya-q"));
}

/// RMQ-6: queues and bindings of other clients are not kept.
#[tokio::test]
async fn lists_observe_only_the_queues_that_are_asked_for() {
    let (transport, client) = client_of_server(|request| {
        let transport = super::transport("rabbitmq", &json!({"host": "h"}));
        let names = (0..30).map(|number| queue_of(&transport, &format!("q{number}")));
        if request.contains("page=") {
            let item = |queue: ActorQueue| json!({"name": queue.names.queue, "durable": true, "type": "classic"});
            let items: Vec<Value> = names.map(item).collect();
            (200, json!({"page_count": 1, "items": items}))
        } else if request.ends_with("/bindings/source") {
            let keys = |queue: &ActorQueue| [queue.actor.clone(), queue.names.queue.clone()];
            let of = |queue: ActorQueue| {
                keys(&queue).map(|key| {
                    let mut binding = mark_of(&queue);
                    binding["routing_key"] = json!(key);
                    binding
                })
            };
            (200, json!(names.flat_map(of).collect::<Vec<_>>()))
        } else {
            (500, json!({"error": "nothing else is asked"}))
        }
    })
    .await;
    let queues: Vec<_> = (0..25)
        .map(|number| queue_of(&transport, &format!("q{number}")))
        .collect();
    for observation in client.observe_many(&queues).await {
        let check = observation.unwrap().check;
        assert!(matches!(check, QueueCheck::Ready(_)), "{check:?}");
    }
}
