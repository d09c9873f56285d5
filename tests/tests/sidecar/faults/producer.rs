//! Publishes messages continuously, and records them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asya_tests::error::Result;
use asya_tests::eventually::{NotYet, eventually};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio::time::sleep;

use super::broker::Broker;
use super::ledger::{End, Sent, Task};
use super::pod::{FIRST, SECOND};
use super::setup::Setup;

pub const OUT: &str = "out";
pub const HAPPY_END: &str = "happy-end";
pub const ERROR_END: &str = "error-end";

/// Interval between two messages. Much longer than a pod needs for one, so that the end of a fault shows at once.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum time from the broker's death until all its queues accept messages again.
const BACK: Duration = Duration::from_mins(3);

/// A message to publish.
pub struct NewMessage<'a> {
    pub task: Task,
    /// The remaining actors of the route; the first one receives the message.
    pub route: &'a [&'a str],
    /// How long the first handler takes.
    pub seconds: f64,
    pub large: bool,
}

impl<'a> NewMessage<'a> {
    pub fn new(task: Task, route: &'a [&'a str]) -> Self {
        Self {
            task,
            route,
            seconds: 0.0,
            large: false,
        }
    }
}

/// The route of an ordinary message.
pub const WAY: [&str; 3] = [FIRST, SECOND, OUT];

pub struct Producer {
    sent: Mutex<Vec<Sent>>,
    random: Mutex<Rng>,
    gate: RwLock<()>,
    /// Size of a large message in bytes.
    large: usize,
}

impl Producer {
    pub fn new(setup: Setup, seed: u64) -> Self {
        Self {
            large: if setup.is_rabbitmq() {
                2 << 20
            } else {
                200_000
            },
            sent: Mutex::default(),
            random: Mutex::new(Rng::with_seed(seed)),
            gate: RwLock::default(),
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The messages that were sent.
    pub fn sent(&self) -> Vec<Sent> {
        self.all().clone()
    }

    pub fn count(&self) -> usize {
        self.all().len()
    }

    /// Publishes until cancelled. Errors are expected, because faults make the broker fail.
    pub async fn run(&self, broker: &Broker) {
        loop {
            {
                let _open = self.gate.read().await;
                let (task, seconds) = self.draw();
                let new = NewMessage {
                    seconds,
                    ..NewMessage::new(task, &WAY)
                };
                let _ = self.send(broker, &new).await;
            }
            sleep(PAUSE).await;
        }
    }

    fn draw(&self) -> (Task, f64) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let task = match random.u32(..100) {
            0..75 => Task::Pass,
            75..87 => Task::Split,
            87..93 => Task::Consume,
            _ => Task::Fail,
        };
        let seconds = if random.u32(..100) < 20 {
            random.f64() * 0.2
        } else {
            0.0
        };
        (task, seconds)
    }

    /// Pauses [`Self::run`] until this is dropped.
    pub async fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    /// Publishes a message; returns its id.
    pub async fn send(&self, broker: &Broker, new: &NewMessage<'_>) -> Result<String> {
        let (number, message) = self.write_down(new);
        broker.publish(new.route[0], &message.to_string()).await?;
        let mut all = self.all();
        all[number].certain = true;
        Ok(all[number].id.clone())
    }

    /// Publishes a message until the broker confirms it; returns its id. Unconfirmed attempts may also have been
    /// stored.
    pub async fn deliver(&self, broker: &Broker, new: &NewMessage<'_>) -> Result<String> {
        let what = format!("{} takes messages", new.route[0]);
        eventually(what, BACK, async || {
            self.send(broker, new).await.map_err(NotYet::new)
        })
        .await
    }

    /// Records a message as possibly stored; returns its number and body.
    fn write_down(&self, new: &NewMessage<'_>) -> (usize, Value) {
        let mut all = self.all();
        let number = all.len();
        let id = format!("m{number}");
        let mut payload =
            json!({"id": id, "text": "<&>ü\u{2028}\"\\", "number": 12_345_678_901_234_567_890_u64});
        if new.large {
            payload["data"] = "x".repeat(self.large).into();
        }
        let mut asking = payload.clone();
        let task = match new.task {
            Task::Pass | Task::Hang => Some("pass"),
            Task::Split => Some("split"),
            Task::Consume => Some("consume"),
            Task::Fail => Some("fail"),
            Task::Direct(_) => None,
        };
        if let Some(task) = task {
            asking["task"] = task.into();
            asking["seconds"] = new.seconds.into();
        }
        let message =
            json!({"id": id, "route": {"actors": new.route, "current": 0}, "payload": asking});
        all.push(Sent {
            id,
            task: new.task,
            payload,
            certain: false,
        });
        (number, message)
    }

    /// Waits until every queue accepts a message.
    pub async fn reaches_all_queues(&self, broker: &Broker) -> Result<()> {
        let direct = |end, route| NewMessage::new(Task::Direct(end), route);
        let all = [
            NewMessage::new(Task::Pass, &WAY),
            NewMessage::new(Task::Pass, &WAY[1..]),
            direct(End::Out, &[OUT]),
            direct(End::Happy, &[HAPPY_END]),
            direct(End::Error, &[ERROR_END]),
        ];
        for new in &all {
            self.deliver(broker, new).await?;
        }
        Ok(())
    }
}
