//! Spans received by a collector on a loopback port.

use std::sync::{Arc, Mutex, PoisonError};

use asya_tests::error::{Error, Result};
use asya_tests::eventually::{check, eventually};
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::rig::{Actor, SOON, declare, put, shared_rabbitmq, take};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// An OTLP collector over HTTP.
struct Collector {
    url: String,
    seen: Seen,
}

/// The received requests: their `authorization` header and body.
type Seen = Arc<Mutex<Vec<(String, Value)>>>;

impl Collector {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(Error::other)?;
        let url = format!("http://{}", listener.local_addr().map_err(Error::other)?);
        let seen = Seen::default();
        let routes = Router::new()
            .route("/v1/traces", post(collect))
            .with_state(seen.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, seen })
    }

    fn requests(&self) -> Vec<(String, Value)> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn spans(&self) -> Vec<Value> {
        let requests = self.requests();
        let spans = requests
            .iter()
            .filter_map(|(_, body)| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array());
        spans.flatten().cloned().collect()
    }
}

async fn collect(State(seen): State<Seen>, headers: HeaderMap, body: String) {
    let authorization = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let body = serde_json::from_str(&body).unwrap_or_default();
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.push((authorization.unwrap_or_default().to_owned(), body));
}

/// SC-9, SC-96
#[tokio::test]
async fn a_message_makes_a_span_in_its_trace_with_children_for_call_and_publication() -> Result<()>
{
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let collector = Collector::start().await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20marked-token",
        ),
        ("OTEL_SERVICE_NAME", "shop"),
    ]);
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    let message = json!({
        "id": "1", "route": {"actors": ["foo", "bar"], "current": 0}, "payload": 1,
        "headers": {"tracestate": "x=1", "traceparent": format!("00-{TRACE}-{PARENT}-01"), "other": {"a": 1}},
    });
    put(&broker, "foo", [message.to_string()]).await?;
    let headers = take(&broker, "bar", 1).await?[0]["headers"].clone();
    eventually("the spans are there", SOON, async || {
        let spans = collector.spans();
        check(spans.len() == 3, format!("{spans:?}"))
    })
    .await?;
    let spans = collector.spans();
    let of = |name: &str| {
        spans
            .iter()
            .find(|span| span["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    let (consume, runtime, publish) = (of("consume"), of("runtime"), of("publish"));
    assert_eq!(consume["parentSpanId"], PARENT);
    let own = consume["spanId"].as_str().unwrap_or_default();
    assert_eq!(
        (&runtime["parentSpanId"], &publish["parentSpanId"]),
        (&json!(own), &json!(own))
    );
    for span in &spans {
        assert_eq!(
            (&span["traceId"], &span["status"]["code"]),
            (&json!(TRACE), &json!(1))
        );
        let time = |key: &str| span[key].as_str().and_then(|time| time.parse::<u64>().ok());
        assert!(
            time("startTimeUnixNano") <= time("endTimeUnixNano"),
            "{span}"
        );
    }
    let expected = json!({"tracestate": "x=1", "traceparent": format!("00-{TRACE}-{own}-01"), "other": {"a": 1}});
    assert_eq!(headers, expected);
    let (authorization, body) = collector.requests().remove(0);
    assert_eq!(authorization, "Bearer marked-token");
    let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(service["value"]["stringValue"], "shop");
    assert!(!actor.logs()?.contains("marked-token"), "{}", actor.logs()?);
    actor.logs_no_secret()
}
