//! Test bench of the scheduler: an in-memory sidecar.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::broker::memory::Memory;
use crate::config::{self, Lookahead};
use crate::decide::{self, Rules};
use crate::gateway::Gateway;
use crate::intake::Intake;
use crate::message_task::Context;
use crate::metrics::Metrics;
use crate::probes::Health;
use crate::runtime::{CallError, Identity, Readiness, Runtime};
use crate::scheduler::{Exit, Scheduler, SchedulerSettings};

/// Default duration of a call.
const CALL: Duration = Duration::from_millis(5);
/// Default restart time of a runtime that crashed or exited after a timeout.
const RESTART: Duration = Duration::from_millis(300);
/// How long a test waits for its messages.
const PATIENCE: Duration = Duration::from_hours(1);

/// A message for actor foo.
pub(super) fn message(number: usize) -> String {
    json!({"id": number.to_string(), "route": {"actors": ["foo", "bar"], "current": 0}, "payload": number}).to_string()
}

/// How the runtime handles a message.
#[derive(Clone, Debug)]
pub(super) enum Script {
    Takes(Duration),
    Reply(Value),
    Fails(CallError),
    FailsAfter(Duration, CallError),
    Panics,
}

/// An in-memory runtime.
#[derive(Clone)]
pub(super) struct FakeRuntime {
    state: Arc<Mutex<State>>,
    readiness: Arc<watch::Sender<Readiness>>,
    /// How often the runtime has crashed, which ends all open calls.
    crashes: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    scripts: BTreeMap<String, Script>,
    once: BTreeMap<String, Script>,
    next: Option<Script>,
    calls: Vec<String>,
    open: usize,
    most_open: usize,
    timed_out_calls: usize,
    broken_off: usize,
    restart: Option<Duration>,
    /// When a crashed runtime is back. It refuses calls until a check has found it up.
    back_at: Option<Instant>,
    /// The runtime ends, so it has removed its ready file.
    ends: bool,
    /// How many runtimes came after it.
    successors: u64,
}

impl FakeRuntime {
    fn new() -> Self {
        let (readiness, _) = watch::channel(Readiness::Ready { concurrency: 1 });
        Self {
            state: Arc::default(),
            readiness: Arc::new(readiness),
            crashes: Arc::default(),
        }
    }

    pub(super) fn set(&self, readiness: Readiness) {
        self.readiness.send_replace(readiness);
    }

    /// It ends: removes its ready file, and takes no more calls.
    pub(super) fn ends(&self) {
        self.state.lock().ends = true;
        self.set(Readiness::Waiting);
    }

    /// The next one is ready.
    pub(super) fn starts(&self) {
        let mut state = self.state.lock();
        (state.ends, state.successors) = (false, state.successors + 1);
        drop(state);
        self.set(Readiness::Ready { concurrency: 1 });
    }

    /// Sets the default behavior for a message.
    pub(super) fn script(&self, id: &str, script: Script) {
        self.state.lock().scripts.insert(id.to_owned(), script);
    }

    pub(super) fn script_once(&self, id: &str, script: Script) {
        self.state.lock().once.insert(id.to_owned(), script);
    }

    /// Sets the behavior for the next message, or the current one.
    pub(super) fn script_next(&self, script: Script) {
        self.state.lock().next = Some(script);
    }

    pub(super) fn calls(&self) -> usize {
        self.state.lock().calls.len()
    }

    pub(super) fn calls_of(&self, id: &str) -> usize {
        self.state
            .lock()
            .calls
            .iter()
            .filter(|call| *call == id)
            .count()
    }

    pub(super) fn most_open(&self) -> usize {
        self.state.lock().most_open
    }

    pub(super) fn timed_out_calls(&self) -> usize {
        self.state.lock().timed_out_calls
    }

    /// Number of calls that the sidecar abandoned before the reply.
    pub(super) fn broken_off(&self) -> usize {
        self.state.lock().broken_off
    }

    /// Sets how long a restart takes.
    pub(super) fn restarts_in(&self, time: Duration) {
        self.state.lock().restart = Some(time);
    }

    fn begin(&self, id: &str) -> Script {
        let mut state = self.state.lock();
        state.calls.push(id.to_owned());
        state.open += 1;
        state.most_open = state.most_open.max(state.open);
        state
            .once
            .remove(id)
            .or_else(|| state.scripts.get(id).cloned())
            .unwrap_or(Script::Takes(CALL))
    }

    fn crash(&self) {
        let mut state = self.state.lock();
        state.back_at = Some(Instant::now() + state.restart.unwrap_or(RESTART));
        self.crashes.send_modify(|count| *count += 1);
    }

    /// How often the runtime has crashed.
    pub(super) fn crashes(&self) -> u64 {
        *self.crashes.borrow()
    }

    fn is_down(&self) -> bool {
        let back_at = self.state.lock().back_at;
        back_at.is_some_and(|back| Instant::now() < back)
    }

    /// Checks the runtime, and finds it up, or back, once its restart time has passed.
    fn check(&self) {
        let now = *self.readiness.borrow();
        if let Readiness::Ready { .. } = now {
            self.set(Readiness::Waiting);
            let this = self.clone();
            let restart = this.state.lock().restart.unwrap_or(RESTART);
            tokio::spawn(async move {
                sleep(restart).await;
                this.set(now);
            });
        }
    }
}

/// A call in progress.
struct Open<'a> {
    runtime: &'a FakeRuntime,
    answered: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.runtime.state.lock();
        state.open -= 1;
        state.broken_off += usize::from(!self.answered);
    }
}

impl Runtime for FakeRuntime {
    async fn call(&self, request: Bytes) -> Result<Bytes, CallError> {
        if self.is_down() {
            return Err(CallError::NotRead);
        }
        let message: Value = serde_json::from_slice(&request).unwrap_or_default();
        let script = self.begin(message["id"].as_str().unwrap_or_default());
        let mut open = Open {
            runtime: self,
            answered: false,
        };
        let routed = |payload: &Value| json!([{"route": {"actors": ["foo", "bar"], "current": 1}, "payload": payload}]);
        let (time, result) = match script {
            Script::Takes(time) => (time, Ok(routed(&message["payload"]))),
            Script::Reply(reply) => (CALL, Ok(reply)),
            Script::Fails(error) => (CALL, Err(error)),
            Script::FailsAfter(time, error) => (time, Err(error)),
            Script::Panics => panic!("as the test wants it"),
        };
        let mut crashes = self.crashes.subscribe();
        tokio::select! {
            biased;
            () = sleep(time) => open.answered = true,
            _ = crashes.changed() => {
                open.answered = true;
                return Err(CallError::Ended);
            }
        }
        let result = match self.state.lock().next.take() {
            Some(Script::Fails(error)) => Err(error),
            _ => result,
        };
        if result == Err(CallError::Ended) {
            self.crash();
        }
        result.map(|reply| reply.to_string().into())
    }

    fn is_available(&self) -> bool {
        matches!(*self.readiness.borrow(), Readiness::Ready { .. })
    }

    fn ready_file(&self) -> Option<Identity> {
        let state = self.state.lock();
        let file = Identity {
            inode: state.successors,
            changed: (0, 0),
        };
        (!state.ends).then_some(file)
    }

    fn recheck(&self) {
        self.check();
    }

    fn call_timed_out(&self) {
        self.state.lock().timed_out_calls += 1;
        self.check();
    }
}

/// An in-memory sidecar.
pub(super) struct Bench {
    pub(super) broker: Memory,
    pub(super) runtime: FakeRuntime,
    pub(super) settings: SchedulerSettings,
    pub(super) rules: Rules,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    /// The URL of a gateway that must accept final reports.
    pub(super) gateway: Option<String>,
    stopping: CancellationToken,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            broker: Memory::new("asya-foo"),
            runtime: FakeRuntime::new(),
            settings: SchedulerSettings {
                concurrency: 1,
                lookahead: Lookahead::Fixed(0),
                grace_period: Duration::from_secs(30),
            },
            rules: Rules {
                max_message_size: 1 << 20,
                ..decide::testing::rules()
            },
            health: Arc::default(),
            metrics: Metrics::new("asya_actor", "foo", "memory"),
            gateway: None,
            stopping: CancellationToken::new(),
        }
    }

    /// Starts a sidecar.
    pub(super) fn start(&self) -> JoinHandle<Exit> {
        let (events, told) = mpsc::unbounded_channel();
        self.broker.connect(events);
        let metrics = self.metrics.clone();
        let gateway = self.gateway.clone().map(|url| {
            let settings = config::GatewayConfig {
                url: url.trim_end_matches('/').to_owned(),
                required: true,
            };
            Gateway::start(&settings, metrics.clone()).expect("a gateway")
        });
        let context = Context {
            intake: Intake::new(&self.broker),
            broker: self.broker.clone(),
            runtime: self.runtime.clone(),
            rules: self.rules.clone(),
            queue_backoff: Duration::from_secs(1),
            metrics,
            gateway,
            tracer: None,
            readiness: self.runtime.readiness.subscribe(),
            // Stopping this sidecar must not stop the next one.
            stopping: self.stopping.child_token(),
            timed_out_calls: AtomicU64::new(0),
            calls: Arc::default(),
        };
        let scheduler = Scheduler::new(Arc::new(context), self.settings, self.health.clone(), told);
        tokio::spawn(scheduler.run())
    }

    /// Sends SIGTERM, and waits for the exit.
    pub(super) async fn stop(&self, scheduler: JoinHandle<Exit>) -> Exit {
        self.stopping.cancel();
        scheduler.await.expect("an end")
    }

    /// Kills the sidecar and starts another.
    pub(super) fn kill(&self, scheduler: &JoinHandle<Exit>) -> JoinHandle<Exit> {
        scheduler.abort();
        self.broker.disconnect();
        self.start()
    }

    /// Waits until the queue is drained and nothing is in flight.
    pub(super) async fn emptied(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.broker.left() > 0 {
            assert!(
                Instant::now() < deadline,
                "{} messages are left",
                self.broker.left()
            );
            sleep(Duration::from_millis(7)).await;
        }
    }

    pub(super) fn ids_in(&self, queue: &str) -> Vec<String> {
        self.fields_in(queue, "id")
            .iter()
            .map(|id| id.as_str().unwrap_or_default().to_owned())
            .collect()
    }

    pub(super) fn payloads_in(&self, queue: &str) -> Vec<Value> {
        self.fields_in(queue, "payload")
    }

    fn fields_in(&self, queue: &str, field: &str) -> Vec<Value> {
        let field =
            |body: &[u8]| serde_json::from_slice::<Value>(body).expect("JSON")[field].clone();
        self.broker
            .messages(queue)
            .iter()
            .map(|message| field(&message.body))
            .collect()
    }
}
