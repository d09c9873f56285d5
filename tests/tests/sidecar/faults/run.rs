//! One run: a broker, pods, a producer, and faults one after the other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asya_tests::error::{Error, Result};
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::process::Folder;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::broker::Broker;
use super::footprint::Footprint;
use super::ledger::{self, End, PARTS};
use super::pod::{COUNT, FIRST, Pods, SECOND};
use super::producer::{ERROR_END, HAPPY_END, OUT, Producer};
use super::report::Report;
use super::schedule::{AtRisk, Fault};
use super::servers::Servers;
use super::setup::Setup;

/// SC-20, SC-108: from the end of a fault until every pod is connected: a delay of at most 5 s, plus time for a busy
/// machine.
const RECONNECTED: Duration = Duration::from_secs(8);
/// SC-108: from then until the next message of every pod.
const RESUMED: Duration = Duration::from_secs(6);
/// How long to wait for consumption to resume before the run fails.
const NEVER: Duration = Duration::from_secs(90);
/// Time for the last messages to be processed.
const SETTLED: Duration = Duration::from_mins(3);
/// The maximum of lookahead `auto` (SC-44).
const LOOKAHEAD: usize = 16;
/// Additional lookahead for messages that wait to publish their results again (SC-31).
const STALLED: usize = 8;
const PROGRESS: Duration = Duration::from_secs(5);

pub struct Run {
    setup: Setup,
    pub(super) broker: Arc<Broker>,
    pub(super) servers: Servers,
    pub(super) pods: Pods,
    pub(super) producer: Arc<Producer>,
    /// Actors whose queues collect results.
    pub(super) outs: Vec<String>,
    producing: JoinHandle<()>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.producing.abort();
    }
}

impl Run {
    pub async fn start(setup: Setup, seed: u64) -> Result<Self> {
        let broker = Arc::new(Broker::start(setup).await?);
        for actor in [FIRST, SECOND, OUT, HAPPY_END, ERROR_END] {
            broker.create_queue(actor).await?;
        }
        let servers = Servers::start().await?;
        let pods = Pods::start(&broker, setup, servers.gateway.port).await?;
        let producer = Arc::new(Producer::new(setup, seed));
        let producing = tokio::spawn({
            let (producer, broker) = (producer.clone(), broker.clone());
            async move { producer.run(&broker).await }
        });
        Ok(Self {
            setup,
            broker,
            servers,
            pods,
            producer,
            outs: vec![OUT.to_owned()],
            producing,
        })
    }

    /// Injects faults, waits for the last messages, and checks the invariants.
    pub async fn faults(
        &mut self,
        faults: impl Iterator<Item = (Duration, Fault)>,
    ) -> Result<Report> {
        let mut report = Report::new(self.setup);
        self.resumes().await?;
        let before = self.footprint()?;
        let mut told = Instant::now();
        for (number, (pause, fault)) in faults.enumerate() {
            sleep(pause).await;
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                println!(
                    "{}: fault {number}, {} messages; next: {fault:?}",
                    self.setup,
                    self.producer.count()
                );
            }
            let what = |error| Error::other(format!("fault {number}, {fault:?}: {error}"));
            self.inject(&fault).await.map_err(what)?;
            let (reconnected, resumed) = self.resumes().await.map_err(what)?;
            report.injected(&fault, reconnected + resumed);
            if reconnected > RECONNECTED || resumed > RESUMED {
                report.violated(format!(
                    "fault {number}, {fault:?}: connected after {reconnected:?}, consuming {resumed:?} later"
                ));
            }
            report.duplicates_bound += self.at_risk(&fault);
            if fault.kills_runtime() {
                report.crashes_bound += self.setup.slots;
            }
        }
        self.settle(&mut report).await?;
        let after = self.footprint()?;
        report.footprints(before, after);
        for (what, times) in self.pods.unexpected_exits() {
            report.violated(format!("{what}, {times} times"));
        }
        Ok(report)
    }

    /// Copies the logs of pods and broker to a folder that is kept.
    pub fn keep_logs(&self) -> Result<()> {
        let mut kept = Folder::create("faults-logs")?;
        kept.keep();
        let pods = self.pods.0.iter().enumerate();
        let pods = pods.map(|(number, pod)| (format!("pod-{number}"), pod.actor.folder()));
        for (prefix, folder) in pods.chain([("broker".to_owned(), self.broker.folder())]) {
            for entry in std::fs::read_dir(folder).map_err(Error::other)? {
                let entry = entry.map_err(Error::other)?;
                let name = entry.file_name().into_string().unwrap_or_default();
                if name == "calls" || Path::new(&name).extension().is_some_and(|it| it == "log") {
                    let copy = kept.path().join(format!("{prefix}-{name}"));
                    std::fs::copy(entry.path(), copy).map_err(Error::other)?;
                }
            }
        }
        Ok(())
    }

    /// How many duplicate results a fault may cause (SC-73).
    fn at_risk(&self, fault: &Fault) -> usize {
        let of_pod = |pod| {
            let in_flight = self.setup.slots + LOOKAHEAD + STALLED;
            if pod < COUNT / 2 {
                in_flight * PARTS
            } else {
                in_flight
            }
        };
        match fault.at_risk() {
            AtRisk::Nothing => 0,
            AtRisk::Pod(pod) => of_pod(pod),
            AtRisk::AllPods => (0..COUNT).map(of_pod).sum(),
        }
    }

    /// Waits until every pod has started to process another message. Returns how long it took until all were connected,
    /// and how long after that.
    async fn resumes(&self) -> Result<(Duration, Duration)> {
        let (since, started) = (self.pods.calls_lengths(), Instant::now());
        let mut connected = started;
        eventually("every pod gets messages", NEVER, async || {
            let now = self.pods.calls_lengths();
            let still: Vec<usize> = (0..COUNT).filter(|pod| now[*pod] <= since[*pod]).collect();
            if still.is_empty() {
                return Ok(());
            }
            if !self.pods.are_connected().await {
                connected = Instant::now();
            }
            Err(NotYet::new(format!("pods {still:?} do not")))
        })
        .await?;
        Ok((connected - started, connected.elapsed()))
    }

    /// Resources of the sidecar that is never killed.
    fn footprint(&self) -> Result<Footprint> {
        let process = self.pods.0.last().and_then(|pod| pod.sidecar.process());
        let process = process.ok_or_else(|| Error::other("there is no pod"))?;
        Footprint::of(process.pid())
    }

    /// Waits until all messages are processed, and compares the results with the sent messages.
    async fn settle(&self, report: &mut Report) -> Result<()> {
        self.producing.abort();
        let sources = [FIRST, SECOND];
        self.broker.are_empty(&sources, SETTLED).await?;
        for actor in sources {
            for message in self.broker.take(actor).await? {
                report.violated(format!("{actor} still has {message}"));
            }
        }
        let mut found = self.take(End::Happy, HAPPY_END).await?;
        found.extend(self.take(End::Error, ERROR_END).await?);
        for out in &self.outs {
            found.extend(self.take(End::Out, out).await?);
        }
        report.settled(
            &ledger::judge(&self.producer.sent(), &found),
            self.producer.count(),
        );
        Ok(())
    }

    async fn take(&self, end: End, actor: &str) -> Result<Vec<(End, Value)>> {
        let found = self.broker.take(actor).await?;
        Ok(found.into_iter().map(|message| (end, message)).collect())
    }
}
