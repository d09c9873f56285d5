//! Spans of messages, for an OpenTelemetry collector (SC-96).

mod context;
mod export;
#[cfg(test)]
mod tests;

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::mpsc;

use self::context::{TraceContext, random_id};
use self::export::{Finished, SpanKind};
use crate::config::Traces;

/// Spans that wait to be sent; more are dropped.
const CAPACITY: usize = 2048;

/// Begins spans.
#[derive(Clone)]
pub struct Tracer {
    spans: mpsc::Sender<Finished>,
    ratio: f64,
    parent_based: bool,
}

/// The span of one message, with those of its parts.
pub struct Span {
    context: TraceContext,
    parent: Option<String>,
    since: (Instant, SystemTime),
    spans: Option<mpsc::Sender<Finished>>,
}

impl Tracer {
    /// Starts to send spans to the collector.
    ///
    /// # Errors
    /// When the URL cannot be used.
    pub fn start(settings: &Traces) -> std::io::Result<Self> {
        let (spans, to_send) = mpsc::channel(CAPACITY);
        let exporter = export::Exporter::new(settings)?;
        tokio::spawn(exporter.run(to_send));
        Ok(Self {
            spans,
            ratio: settings.ratio,
            parent_based: settings.parent_based,
        })
    }

    /// The span of a message that came: a child of the one that its headers name, or the first of a new trace.
    #[must_use]
    pub fn consume(&self, body: &[u8]) -> Span {
        let parent = TraceContext::of(body);
        let sampled = match &parent {
            Some(parent) if self.parent_based => parent.sampled,
            _ => fastrand::f64() < self.ratio,
        };
        let context = TraceContext {
            trace: parent
                .as_ref()
                .map_or_else(|| random_id(32), |parent| parent.trace.clone()),
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

impl Span {
    /// The message, with this span in its headers instead of the one before.
    #[must_use]
    pub fn continued(&self, body: &Bytes) -> Bytes {
        self.context
            .spliced_into(body)
            .map_or_else(|| body.clone(), Bytes::from)
    }

    /// The runtime was called.
    pub fn called(&mut self, begun: Instant, succeeded: bool) {
        self.part("runtime", SpanKind::Client, begun, succeeded);
    }

    /// What came of the message was published.
    pub fn published(&mut self, begun: Instant, succeeded: bool) {
        self.part("publish", SpanKind::Producer, begun, succeeded);
    }

    /// The message is settled.
    pub fn end(self, succeeded: bool) {
        let finished = Finished {
            trace: self.context.trace.clone(),
            span: self.context.span.clone(),
            parent: self.parent.clone(),
            name: "consume",
            kind: SpanKind::Consumer,
            begun: self.since.1,
            ended: SystemTime::now(),
            succeeded,
        };
        self.tell(finished);
    }

    fn part(&self, name: &'static str, kind: SpanKind, begun: Instant, succeeded: bool) {
        let (since, at) = self.since;
        self.tell(Finished {
            trace: self.context.trace.clone(),
            span: random_id(16),
            parent: Some(self.context.span.clone()),
            name,
            kind,
            begun: at + begun.saturating_duration_since(since),
            ended: SystemTime::now(),
            succeeded,
        });
    }

    fn tell(&self, finished: Finished) {
        if let Some(spans) = &self.spans {
            // When the collector is slow, spans are lost rather than messages held up.
            let _ = spans.try_send(finished);
        }
    }
}
