//! Watches a namespace's actors, and records when each status was observed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use asya_tests::eventually::{NotYet, eventually};
use asya_tests::{Error, Result};
use futures::StreamExt;
use kube::Api;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::Reported;

/// Stops watching when dropped.
pub(super) struct StatusRecorder {
    seen: Arc<Mutex<Vec<Observation>>>,
    watch: JoinHandle<()>,
}

struct Observation {
    at: Instant,
    actor: String,
    status: Value,
}

impl StatusRecorder {
    /// Starts watching.
    pub(super) async fn start(actors: &Api<DynamicObject>) -> Result<Self> {
        let events = actors.watch(&WatchParams::default(), "0").await?;
        let seen: Arc<Mutex<Vec<Observation>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(actor) | WatchEvent::Modified(actor)) = event else {
                    continue;
                };
                let observation = Observation {
                    at: Instant::now(),
                    actor: actor.metadata.name.unwrap_or_default(),
                    status: actor.data["status"].clone(),
                };
                let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
                seen.push(observation);
            }
        });
        Ok(Self { seen, watch })
    }

    /// Marks the end of what has been observed so far.
    pub(super) fn mark(&self) -> usize {
        self.with(Vec::len)
    }

    /// When an actor first had this status, after a mark.
    pub(super) async fn first(
        &self,
        mark: usize,
        actor: &str,
        reported: Reported,
        timeout: Duration,
    ) -> Result<Instant> {
        let what = format!("{actor} is {reported:?}");
        eventually(what, timeout, async || {
            if self.watch.is_finished() {
                return Err(NotYet::new("the watch has ended"));
            }
            self.with(|seen| {
                let mut of_actor = seen[mark..].iter().filter(|seen| seen.actor == actor);
                let found = of_actor
                    .by_ref()
                    .find(|seen| matches(&seen.status, reported));
                let last = seen.iter().rfind(|seen| seen.actor == actor);
                found.map(|seen| seen.at).ok_or_else(|| {
                    NotYet::new(format_args!(
                        "{}",
                        last.map_or(&Value::Null, |last| &last.status)
                    ))
                })
            })
        })
        .await
    }

    /// The last observed message of an actor's condition.
    pub(super) fn message(&self, actor: &str, condition: &str) -> Result<String> {
        self.with(|seen| {
            let last = seen.iter().rfind(|seen| seen.actor == actor)?;
            let found = conditions(&last.status).find(|each| each["type"] == condition)?;
            Some(found["message"].as_str()?.to_owned())
        })
        .ok_or_else(|| Error::Other(format!("{actor} has no condition {condition}")))
    }

    /// The sequence of an actor's observed states after a mark.
    pub(super) fn states(&self, mark: usize, actor: &str) -> Vec<String> {
        let mut states = self.with(|seen| -> Vec<String> {
            let of_actor = seen.iter().skip(mark).filter(|seen| seen.actor == actor);
            let states = of_actor.filter_map(|seen| seen.status["status"].as_str());
            states.map(str::to_owned).collect()
        });
        states.dedup();
        states
    }

    fn with<T>(&self, look: impl FnOnce(&Vec<Observation>) -> T) -> T {
        look(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for StatusRecorder {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status["conditions"].as_array().into_iter().flatten()
}

fn matches(status: &Value, reported: Reported) -> bool {
    status["status"] == reported.state
        && conditions(status)
            .any(|each| each["type"] == reported.condition && each["reason"] == reported.reason)
}
