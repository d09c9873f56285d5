//! Message spans, exported to an OpenTelemetry collector (SC-96).

mod context;
mod export;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::context::{TraceContext, random_id};
use self::export::{Finished, SpanKind};
use crate::config::Traces;

/// Capacity of the export queue; spans beyond it are dropped.
const CAPACITY: usize = 2048;
/// How long exporting the remaining spans may delay the exit.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Tracer {
    spans: mpsc::Sender<Finished>,
    ratio: f64,
    parent_based: bool,
    finishing: CancellationToken,
    exporter: TaskTracker,
}

/// The span of one message, and the parent of the spans of its phases.
pub struct Span {
    context: TraceContext,
    parent: Option<String>,
    since: (Instant, SystemTime),
    spans: Option<mpsc::Sender<Finished>>,
}

impl Tracer {
    /// Starts the exporter.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn start(settings: &Traces) -> std::io::Result<Self> {
        let (spans, to_send) = mpsc::channel(CAPACITY);
        let (finishing, exporter) = (CancellationToken::new(), TaskTracker::new());
        exporter.spawn(export::Exporter::new(settings, finishing.clone())?.run(to_send));
        exporter.close();
        Ok(Self {
            spans,
            ratio: settings.ratio,
            parent_based: settings.parent_based,
            finishing,
            exporter,
        })
    }

    /// Exports the spans that have ended. No more may be created.
    pub async fn finish(&self) {
        self.finishing.cancel();
        // The collector may be unavailable.
        let _ = timeout(FLUSH_TIMEOUT, self.exporter.wait()).await;
    }

    /// The span of a delivered message: a child of the span in its headers, or the root of a new trace.
    #[must_use]
    pub fn consume(&self, body: &[u8]) -> Span {
        let parent = TraceContext::of(body);
        let trace = parent
            .as_ref()
            .map_or_else(|| random_id(32), |parent| parent.trace.clone());
        let sampled = match &parent {
            Some(parent) if self.parent_based => parent.sampled,
            _ => is_sampled(&trace, self.ratio),
        };
        let context = TraceContext {
            trace,
            span: random_id(16),
            sampled,
        };
        Span {
            context,
            parent: parent.map(|parent| parent.span),
            since: (Instant::now(), SystemTime::now()),
            spans: sampled.then(|| self.spans.clone()),
        }
    }
}

/// Whether a trace is sampled. Decided by its id, so that all actors decide alike. The lower half of an id is random.
fn is_sampled(trace: &str, ratio: f64) -> bool {
    let random = trace.get(16..24);
    let random = random.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    f64::from(random.unwrap_or_default()) < ratio * (f64::from(u32::MAX) + 1.0)
}

impl Span {
    /// The message with this span as the trace context in its headers.
    #[must_use]
    pub fn continued(&self, body: &Bytes) -> Bytes {
        self.context
            .spliced_into(body)
            .map_or_else(|| body.clone(), Bytes::from)
    }

    /// Records the runtime call.
    pub fn called(&mut self, started: Instant, succeeded: bool) {
        self.part("runtime", SpanKind::Client, started, succeeded);
    }

    /// Records the publication of the results.
    pub fn published(&mut self, started: Instant, succeeded: bool) {
        self.part("publish", SpanKind::Producer, started, succeeded);
    }

    /// Ends the span when the message is settled.
    pub fn end(self, succeeded: bool) {
        let finished = Finished {
            trace: self.context.trace.clone(),
            span: self.context.span.clone(),
            parent: self.parent.clone(),
            name: "consume",
            kind: SpanKind::Consumer,
            started: self.since.1,
            ended: SystemTime::now(),
            succeeded,
        };
        self.export(finished);
    }

    fn part(&self, name: &'static str, kind: SpanKind, started: Instant, succeeded: bool) {
        let (since, at) = self.since;
        self.export(Finished {
            trace: self.context.trace.clone(),
            span: random_id(16),
            parent: Some(self.context.span.clone()),
            name,
            kind,
            started: at + started.saturating_duration_since(since),
            ended: SystemTime::now(),
            succeeded,
        });
    }

    fn export(&self, finished: Finished) {
        if let Some(spans) = &self.spans {
            // If the collector is slow, drop spans rather than delay messages.
            let _ = spans.try_send(finished);
        }
    }
}
