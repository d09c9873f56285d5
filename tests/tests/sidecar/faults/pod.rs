//! Pods, each with a sidecar and a runtime that are restarted when they exit, as the kubelet would.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asya_tests::error::{Error, Result};
use asya_tests::eventually::{check, eventually};
use asya_tests::process::{Process, Signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::broker::Broker;
use super::proxy::Proxy;
use super::setup::Setup;
use crate::rig::{Actor, SOON};

/// All pods: half of them run the first actor, half the second.
pub const COUNT: usize = 4;
pub const FIRST: &str = "first";
pub const SECOND: &str = "second";

/// A handler that takes longer is considered stuck.
pub const RUNTIME_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before an exited container is restarted.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
enum Program {
    Sidecar,
    Runtime,
}

/// A process that is restarted when it exits; killed when dropped.
pub struct Container {
    current: watch::Receiver<Option<Arc<Process>>>,
    exits: Arc<Mutex<Vec<ExitStatus>>>,
    task: JoinHandle<()>,
}

impl Container {
    async fn start(actor: Arc<Actor>, program: Program) -> Result<Self> {
        let (sender, mut current) = watch::channel(None);
        let exits = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(keep_running(actor, program, sender, exits.clone()));
        current
            .wait_for(Option::is_some)
            .await
            .map_err(|_| Error::other(format!("the {program:?} does not start")))?;
        Ok(Self {
            current,
            exits,
            task,
        })
    }

    /// The current process, or the last one if it has exited.
    pub fn process(&self) -> Option<Arc<Process>> {
        self.current.borrow().clone()
    }

    /// Signals the current process.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = self.process() {
            process.signal(signal);
        }
    }

    pub fn exits(&self) -> Vec<ExitStatus> {
        self.exits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until the container has exited more than this many times and runs again.
    pub async fn runs_again(&self, exits: usize, within: Duration) -> Result<()> {
        eventually("a container runs again", within, async || {
            let running = self.process().is_some_and(|it| it.exited().is_none());
            check(self.exits().len() > exits && running, "not yet")
        })
        .await
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.task.abort();
        self.signal(Signal::KILL);
    }
}

async fn keep_running(
    actor: Arc<Actor>,
    program: Program,
    current: watch::Sender<Option<Arc<Process>>>,
    exits: Arc<Mutex<Vec<ExitStatus>>>,
) {
    loop {
        let started = match program {
            Program::Sidecar => actor.sidecar().await,
            Program::Runtime => actor.runtime("campaign").await,
        };
        // Wake the tasks that wait for the container.
        let Ok(process) = started else { return };
        let process = Arc::new(process);
        current.send_replace(Some(process.clone()));
        let status = process.wait().await;
        exits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(status);
        sleep(RESTART_PAUSE).await;
    }
}

/// A pod, and the proxy between its sidecar and the broker.
pub struct Pod {
    pub actor: Arc<Actor>,
    pub proxy: Proxy,
    pub sidecar: Container,
    pub runtime: Container,
}

impl Pod {
    /// Starts a pod whose sidecar reaches broker and gateway through proxies.
    async fn start(broker: &Broker, setup: Setup, name: &str, gateway: u16) -> Result<Self> {
        let proxy = Proxy::start(broker.port()).await?;
        let actor = broker.actor(name, proxy.port)?.with(&[
            ("ASYA_CONCURRENCY", &setup.slots.to_string()),
            (
                "ASYA_RUNTIME_TIMEOUT",
                &format!("{}s", RUNTIME_TIMEOUT.as_secs()),
            ),
            ("ASYA_RUNTIME_READY_TIMEOUT", "0"),
            ("ASYA_SQS_VISIBILITY_TIMEOUT", "10"),
            ("ASYA_GATEWAY_URL", &format!("http://127.0.0.1:{gateway}")),
            ("ASYA_LOG_LEVEL", "info"),
        ]);
        let actor = Arc::new(actor);
        let sidecar = Container::start(actor.clone(), Program::Sidecar).await?;
        let runtime = Container::start(actor.clone(), Program::Runtime).await?;
        Ok(Self {
            actor,
            proxy,
            sidecar,
            runtime,
        })
    }

    /// Whether every connection of the sidecar to its broker is established.
    async fn is_connected(&self) -> bool {
        let Ok(metrics) = self.actor.metrics().await else {
            return false;
        };
        let mut gauges = metrics
            .samples("asya_actor_broker_connected", &[])
            .map(|it| it.value >= 1.0)
            .peekable();
        gauges.peek().is_some() && gauges.all(|connected| connected)
    }

    /// Length of the handler's call log, in bytes.
    pub fn calls_length(&self) -> u64 {
        std::fs::metadata(self.actor.calls_file()).map_or(0, |file| file.len())
    }

    /// The ids of the handler's calls since its call log had this length.
    pub fn calls_since(&self, length: u64) -> Vec<String> {
        let all = std::fs::read(self.actor.calls_file()).unwrap_or_default();
        let new = usize::try_from(length)
            .ok()
            .and_then(|start| all.get(start..));
        String::from_utf8_lossy(new.unwrap_or_default())
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// All pods.
pub struct Pods(pub Vec<Pod>);

impl Pods {
    pub async fn start(broker: &Broker, setup: Setup, gateway: u16) -> Result<Self> {
        let mut pods = Vec::new();
        for number in 0..COUNT {
            pods.push(Pod::start(broker, setup, actor_of(number), gateway).await?);
        }
        for pod in &pods {
            pod.actor.is_ready().await?;
        }
        Ok(Self(pods))
    }

    pub async fn are_connected(&self) -> bool {
        for pod in &self.0 {
            if !pod.is_connected().await {
                return false;
            }
        }
        true
    }

    pub fn calls_lengths(&self) -> Vec<u64> {
        self.0.iter().map(Pod::calls_length).collect()
    }

    /// Waits until a pod calls its handler with this message; returns the pod's index.
    pub async fn caller(&self, id: &str, since: &[u64]) -> Result<usize> {
        eventually(format!("a handler gets {id}"), SOON, async || {
            let called = |pod: &Pod, since| pod.calls_since(since).iter().any(|call| call == id);
            let mut pods = self.0.iter().zip(since);
            let found = pods.position(|(pod, since)| called(pod, *since));
            found.ok_or_else(|| asya_tests::eventually::NotYet::new("not yet"))
        })
        .await
    }

    /// Exits of sidecars that no fault caused: the kinds of exit, with their counts.
    pub fn unexpected_exits(&self) -> BTreeMap<String, usize> {
        use std::os::unix::process::ExitStatusExt;
        let mut unexpected = BTreeMap::new();
        for status in self.0.iter().flat_map(|pod| pod.sidecar.exits()) {
            if status.signal() != Some(Signal::KILL.as_raw()) && status.code() != Some(0) {
                *unexpected.entry(format!("sidecar: {status}")).or_default() += 1;
            }
        }
        unexpected
    }
}

/// The actor of a pod.
pub fn actor_of(pod: usize) -> &'static str {
    if pod < COUNT / 2 { FIRST } else { SECOND }
}
