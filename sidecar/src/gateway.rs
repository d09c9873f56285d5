//! Reports to the gateway, sent in the background so that they never delay messages (SC-86 to SC-90).

mod queue;
mod reports;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use asya_wire::percent;
use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::queue::Queue;
use crate::config::{self, FINAL_RETRY_PERIOD};
use crate::decide::{EndActor, Rules};
use crate::envelope::{Element, Message, Reply, Routes, Routing};
use crate::http::{Client, Endpoint};
use crate::metrics::Metrics;

/// Attempts per report if the gateway is unreachable or fails.
const ATTEMPTS: usize = 5;
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Delay before a final report is sent again in the background (SC-90).
const FINAL_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Statuses after which the gateway may accept the report later.
const REQUEST_TIMEOUT: u16 = 408;
const TOO_MANY_REQUESTS: u16 = 429;
/// How long pending reports may delay the exit.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends reports to the gateway.
pub struct Gateway {
    endpoint: Endpoint,
    required: bool,
    progress: Arc<Queue>,
    finals: Arc<Queue>,
    metrics: Arc<Metrics>,
    idle: CancellationToken,
}

/// A queued report.
#[derive(Debug)]
pub struct Report {
    kind: ReportKind,
    path: String,
    body: Bytes,
    /// `None` before the first attempt.
    retry: Option<Retry>,
}

/// When to send a final report again, and until when.
#[derive(Clone, Copy, Debug)]
struct Retry {
    due: Instant,
    until: Instant,
}

/// The kind of report; the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportKind {
    Progress,
    Child,
    Final,
}

/// The result of sending a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    Accepted,
    /// Rejected by the gateway, or impossible to send; not retryable.
    Refused,
    /// The gateway was unreachable, busy or failed.
    Failed,
}

/// A final report that the gateway must accept before the message is acknowledged (SC-90).
pub struct RequiredReport {
    client: Client,
    report: Report,
    metrics: Arc<Metrics>,
}

impl Gateway {
    /// Starts the background senders.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn start(settings: &config::GatewayConfig, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let endpoint = Endpoint::parse(&settings.url)?;
        let gateway = Self {
            endpoint,
            required: settings.required,
            progress: Arc::default(),
            finals: Arc::default(),
            metrics,
            idle: CancellationToken::new(),
        };
        tokio::spawn(Worker::of(&gateway, &gateway.progress).send_progress());
        tokio::spawn(Worker::of(&gateway, &gateway.finals).send_finals());
        Ok(gateway)
    }

    /// Reports that a message was received and sent to the runtime.
    pub fn received(&self, rules: &Rules, body: &[u8]) {
        let Some((message, id)) = identified(body) else {
            return;
        };
        let Routing::Route(route) = &message.routing else {
            return;
        };
        let path = path(&id, "progress");
        self.push(
            ReportKind::Progress,
            path.clone(),
            reports::received(route, body.len()),
        );
        self.push(
            ReportKind::Progress,
            path,
            reports::processing(route, &rules.actor),
        );
    }

    /// Reports the runtime's reply.
    pub fn completed(&self, body: &[u8], reply: &[u8], took: Duration) {
        let Some((_, id)) = identified(body) else {
            return;
        };
        let Ok(Reply::Results(elements)) = Reply::read(reply, Routes::Required) else {
            return;
        };
        let Some(Element { routing, .. }) = elements.first() else {
            return;
        };
        self.push(
            ReportKind::Progress,
            path(&id, "progress"),
            reports::completed(routing, took),
        );
    }

    /// Reports an additional message of a fan-out.
    pub fn child(&self, body: &[u8]) {
        let Some((message, id)) = identified(body) else {
            return;
        };
        let Routing::Route(route) = &message.routing else {
            return;
        };
        let parent = message
            .parent_id
            .and_then(|parent| serde_json::from_str(parent).ok());
        let report = reports::child(&id, parent.unwrap_or_default(), route);
        self.push(ReportKind::Child, "/envelopes".to_owned(), report);
    }

    /// Queues the final report, if there is one; returns it instead if the message must not be acknowledged before it
    /// is accepted.
    pub fn ended(&self, rules: &Rules, body: &[u8], reply: &[u8]) -> Option<RequiredReport> {
        let (message, id) = identified(body)?;
        let now = SystemTime::now();
        let report = match rules.end {
            Some(EndActor::Happy) => reports::succeeded(&id, &message, reply, now),
            Some(EndActor::Error) => reports::failed(&id, &message, now),
            Some(EndActor::Other) | None => return None,
        };
        let path = path(&id, "final");
        if !self.required {
            self.push(ReportKind::Final, path, report);
            return None;
        }
        let report = Report {
            kind: ReportKind::Final,
            path,
            body: report.into(),
            retry: None,
        };
        Some(RequiredReport {
            client: Client::new(self.endpoint.clone()),
            report,
            metrics: self.metrics.clone(),
        })
    }

    /// Flushes pending reports for up to a second (SC-89).
    pub async fn finish(&self) {
        self.progress.close();
        self.finals.close();
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.idle.cancelled()).await;
    }

    fn push(&self, kind: ReportKind, path: String, body: Vec<u8>) {
        let report = Report {
            kind,
            path,
            body: body.into(),
            retry: None,
        };
        let queue = if kind == ReportKind::Final {
            &self.finals
        } else {
            &self.progress
        };
        for dropped in queue.push(report) {
            self.metrics.reported(dropped.kind.label(), "dropped");
        }
    }
}

impl RequiredReport {
    /// Makes one attempt to send the report.
    pub async fn attempt(&mut self) -> SendResult {
        send(&mut self.client, &self.report, 1).await
    }

    /// Counts the report by the result of its last attempt.
    pub fn end(self, sent: SendResult) {
        self.metrics
            .reported(self.report.kind.label(), sent.label());
    }
}

/// The message and its id, if it has one.
fn identified(body: &[u8]) -> Option<(Message<'_>, String)> {
    let message = Message::read(body).ok()?;
    let id = message.id_text()?;
    Some((message, id))
}

fn path(id: &str, what: &str) -> String {
    format!("/envelopes/{}/{what}", percent::encode(id))
}

async fn send(client: &mut Client, report: &Report, tries: usize) -> SendResult {
    let mut result = SendResult::Failed;
    for attempt in 0..tries {
        if attempt > 0 {
            sleep(RETRY_DELAY).await;
        }
        result = match client.post(&report.path, &[], report.body.clone()).await {
            Ok(200..=299) => SendResult::Accepted,
            Err(error) if error.kind() == ErrorKind::InvalidInput => SendResult::Refused,
            Ok(REQUEST_TIMEOUT | TOO_MANY_REQUESTS | 500..) | Err(_) => SendResult::Failed,
            Ok(_) => SendResult::Refused,
        };
        if result != SendResult::Failed {
            break;
        }
    }
    result
}

/// Sends the reports of a queue over one connection.
struct Worker {
    client: Client,
    queue: Arc<Queue>,
    other: Arc<Queue>,
    metrics: Arc<Metrics>,
    idle: CancellationToken,
}

impl Worker {
    fn of(gateway: &Gateway, queue: &Arc<Queue>) -> Self {
        let other = if Arc::ptr_eq(queue, &gateway.progress) {
            &gateway.finals
        } else {
            &gateway.progress
        };
        Self {
            client: Client::new(gateway.endpoint.clone()),
            queue: queue.clone(),
            other: other.clone(),
            metrics: gateway.metrics.clone(),
            idle: gateway.idle.clone(),
        }
    }

    async fn send_progress(mut self) {
        while let Some(report) = self.queue.next().await {
            let sent = send(&mut self.client, &report, ATTEMPTS).await;
            self.done(&report, sent);
        }
        self.finish();
    }

    /// A report that failed waits for its next attempt behind the others, which may succeed.
    async fn send_finals(mut self) {
        while let Some(mut report) = self.queue.next().await {
            let started = Instant::now();
            let until = report
                .retry
                .map_or(started + FINAL_RETRY_PERIOD, |retry| retry.until);
            let sent = send(&mut self.client, &report, ATTEMPTS).await;
            let now = Instant::now();
            if sent == SendResult::Failed && now < until && !self.queue.is_closed() {
                let due = now + FINAL_RETRY_DELAY;
                report.retry = Some(Retry { due, until });
                for dropped in self.queue.push(report) {
                    self.metrics.reported(dropped.kind.label(), "dropped");
                }
                self.queue.done();
                continue;
            }
            if sent != SendResult::Accepted {
                tracing::warn!(
                    result = sent.label(),
                    "the gateway did not accept a final report"
                );
            }
            self.done(&report, sent);
        }
        self.finish();
    }

    fn done(&self, report: &Report, sent: SendResult) {
        self.queue.done();
        self.metrics.reported(report.kind.label(), sent.label());
    }

    fn finish(&self) {
        if self.other.is_done() {
            self.idle.cancel();
        }
    }
}

impl ReportKind {
    fn label(self) -> &'static str {
        match self {
            Self::Progress => "progress",
            Self::Child => "child",
            Self::Final => "final",
        }
    }
}

impl SendResult {
    fn label(self) -> &'static str {
        match self {
            Self::Accepted => "success",
            Self::Refused => "refused",
            Self::Failed => "error",
        }
    }
}

impl Report {
    fn is_progress(&self) -> bool {
        self.kind == ReportKind::Progress
    }

    /// When to send the report again; `None`: now.
    fn due(&self) -> Option<Instant> {
        self.retry.map(|retry| retry.due)
    }
}
