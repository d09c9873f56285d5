//! Reports to the gateway: beside the messages, never in their way (SC-86 to SC-90).

pub mod http;
mod queue;
mod reports;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use asya_wire::percent;
use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::http::{Client, Endpoint};
use self::queue::Queue;
use crate::config;
use crate::decide::{End, Rules};
use crate::envelope::{Element, Message, Reply, Routes, Routing};
use crate::metrics::Metrics;

/// How often a report is sent, if the gateway cannot be reached or fails.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// How long a final report is tried (SC-90), and the pause between attempts.
const FINAL: Duration = Duration::from_mins(10);
const PAUSE_OF_FINALS: Duration = Duration::from_secs(5);
/// How long reports may hold up the end of the process.
const AT_END: Duration = Duration::from_secs(1);

/// Who reports.
pub struct Gateway {
    endpoint: Endpoint,
    required: bool,
    progress: Arc<Queue>,
    finals: Arc<Queue>,
    metrics: Arc<Metrics>,
    idle: CancellationToken,
}

/// A report on its way.
#[derive(Debug)]
pub struct Report {
    kind: Kind,
    path: String,
    body: Bytes,
}

/// Which report: the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Progress,
    Child,
    Final,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Accepted,
    /// The gateway does not want it; another attempt makes no sense.
    Refused,
    /// It could not be reached, or failed.
    Failed,
}

impl Gateway {
    /// Starts to report.
    ///
    /// # Errors
    /// When the URL cannot be used.
    pub fn start(settings: &config::Gateway, metrics: Arc<Metrics>) -> std::io::Result<Self> {
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

    /// A message came, and goes to the runtime.
    pub fn received(&self, rules: &Rules, body: &[u8]) {
        let Some((message, id)) = identified(body) else {
            return;
        };
        let Routing::Route(route) = &message.routing else {
            return;
        };
        let path = path(&id, "progress");
        self.push(
            Kind::Progress,
            path.clone(),
            reports::received(route, body.len()),
        );
        self.push(
            Kind::Progress,
            path,
            reports::processing(route, &rules.actor),
        );
    }

    /// The runtime has answered.
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
            Kind::Progress,
            path(&id, "progress"),
            reports::completed(routing, took),
        );
    }

    /// Another message came of it.
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
        self.push(Kind::Child, "/envelopes".to_owned(), report);
    }

    /// A message has come to its end. Whether the message may be acknowledged.
    pub async fn ended(&self, rules: &Rules, body: &[u8], reply: &[u8]) -> bool {
        let Some((message, id)) = identified(body) else {
            return true;
        };
        let now = SystemTime::now();
        let report = match rules.end {
            Some(End::Happy) => reports::succeeded(&id, &message, reply, now),
            Some(End::Error) => reports::failed(&id, &message, now),
            Some(End::Other) | None => return true,
        };
        let path = path(&id, "final");
        if !self.required {
            self.push(Kind::Final, path, report);
            return true;
        }
        let mut client = Client::new(self.endpoint.clone());
        let report = Report {
            kind: Kind::Final,
            path,
            body: report.into(),
        };
        let sent = send(&mut client, &report, TRIES).await;
        self.count(&report, sent);
        sent == Sent::Accepted
    }

    /// Waits until all is reported, for no longer than a second (SC-89).
    pub async fn finish(&self) {
        self.progress.close();
        self.finals.close();
        let _ = tokio::time::timeout(AT_END, self.idle.cancelled()).await;
    }

    fn push(&self, kind: Kind, path: String, body: Vec<u8>) {
        let report = Report {
            kind,
            path,
            body: body.into(),
        };
        let queue = if kind == Kind::Final {
            &self.finals
        } else {
            &self.progress
        };
        if let Some(dropped) = queue.push(report) {
            self.metrics.reported(dropped.kind.label(), "dropped");
        }
    }

    fn count(&self, report: &Report, sent: Sent) {
        self.metrics.reported(report.kind.label(), sent.label());
    }
}

/// A message that has an id.
fn identified(body: &[u8]) -> Option<(Message<'_>, String)> {
    let message = Message::read(body).ok()?;
    let id = message.id_text()?;
    Some((message, id))
}

fn path(id: &str, what: &str) -> String {
    format!("/envelopes/{}/{what}", percent::encode(id))
}

async fn send(client: &mut Client, report: &Report, tries: usize) -> Sent {
    let mut result = Sent::Failed;
    for attempt in 0..tries {
        if attempt > 0 {
            sleep(PAUSE).await;
        }
        result = match client.post(&report.path, &[], report.body.clone()).await {
            Ok(200..=299) => Sent::Accepted,
            Ok(500..) | Err(_) => Sent::Failed,
            Ok(_) => Sent::Refused,
        };
        if result != Sent::Failed {
            break;
        }
    }
    result
}

/// Sends what a queue holds, on one connection.
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
            let sent = send(&mut self.client, &report, TRIES).await;
            self.done(&report, sent);
        }
        self.finish();
    }

    async fn send_finals(mut self) {
        while let Some(report) = self.queue.next().await {
            let until = Instant::now() + FINAL;
            let sent = loop {
                let sent = send(&mut self.client, &report, TRIES).await;
                if sent != Sent::Failed || Instant::now() >= until || self.queue.is_closed() {
                    break sent;
                }
                sleep(PAUSE_OF_FINALS).await;
            };
            if sent != Sent::Accepted {
                tracing::warn!(
                    result = sent.label(),
                    "the gateway did not take a final report"
                );
            }
            self.done(&report, sent);
        }
        self.finish();
    }

    fn done(&self, report: &Report, sent: Sent) {
        self.queue.done();
        self.metrics.reported(report.kind.label(), sent.label());
    }

    fn finish(&self) {
        if self.other.is_done() {
            self.idle.cancel();
        }
    }
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::Progress => "progress",
            Self::Child => "child",
            Self::Final => "final",
        }
    }
}

impl Sent {
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
        self.kind == Kind::Progress
    }
}
