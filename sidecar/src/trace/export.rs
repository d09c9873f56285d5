//! Exports finished spans in batches: OTLP over HTTP with JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::config::{Secret, Traces};
use crate::http::{Client, Endpoint};

/// Maximum number of spans in a batch.
const MAX_BATCH: usize = 256;
/// How long the first span of a batch waits for others.
const BATCH_WINDOW: Duration = Duration::from_secs(2);

/// A finished span.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) trace: String,
    pub(super) span: String,
    pub(super) parent: Option<String>,
    pub(super) name: &'static str,
    pub(super) kind: SpanKind,
    pub(super) started: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) succeeded: bool,
}

/// Span kinds, as numbered by OTLP.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpanKind {
    Client = 3,
    Producer = 4,
    Consumer = 5,
}

pub(super) struct Exporter {
    client: Client,
    headers: Vec<(String, Secret)>,
    service: String,
    /// Cancelled on shutdown, after the last span.
    finishing: CancellationToken,
}

impl Exporter {
    pub(super) fn new(settings: &Traces, finishing: CancellationToken) -> std::io::Result<Self> {
        Ok(Self {
            client: Client::new(Endpoint::parse(&settings.url)?),
            headers: settings.headers.clone(),
            service: settings.service.clone(),
            finishing,
        })
    }

    /// Runs until there are no more spans. Drops spans if the collector is unavailable.
    pub(super) async fn run(mut self, mut spans: mpsc::Receiver<Finished>) {
        while let Some(first) = self.next(&mut spans).await {
            let mut batch = vec![first];
            let until = Instant::now() + BATCH_WINDOW;
            while batch.len() < MAX_BATCH {
                let Ok(Some(next)) = timeout_at(until, self.next(&mut spans)).await else {
                    break;
                };
                batch.push(next);
            }
            let body = body(&self.service, &batch).to_string().into_bytes();
            match self.client.post("", &self.headers, body.into()).await {
                Ok(200..=299) => {}
                Ok(status) => tracing::debug!(status, "the collector rejected spans"),
                Err(error) => tracing::debug!("cannot reach the collector: {error}"),
            }
        }
    }
}

impl Exporter {
    /// The next span; `None` if there are no more.
    async fn next(&self, spans: &mut mpsc::Receiver<Finished>) -> Option<Finished> {
        tokio::select! {
            biased;
            span = spans.recv() => return span,
            () = self.finishing.cancelled() => spans.close(),
        }
        spans.recv().await
    }
}

pub(super) fn body(service: &str, spans: &[Finished]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let service = json!([{"key": "service.name", "value": {"stringValue": service}}]);
    json!({"resourceSpans": [{
        "resource": {"attributes": service},
        "scopeSpans": [{"scope": {"name": "asya-sidecar"}, "spans": spans}],
    }]})
}

fn span(span: &Finished) -> Value {
    const OK: u8 = 1;
    const ERROR: u8 = 2;
    let nanoseconds = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos()
            .to_string()
    };
    let mut value = json!({
        "traceId": span.trace,
        "spanId": span.span,
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": nanoseconds(span.started),
        "endTimeUnixNano": nanoseconds(span.ended),
        "status": {"code": if span.succeeded { OK } else { ERROR }},
    });
    if let Some(parent) = &span.parent {
        value["parentSpanId"] = Value::from(parent.as_str());
    }
    value
}
