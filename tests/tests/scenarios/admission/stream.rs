//! Creates pods continuously while other things change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use asya_tests::eventually::{check, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// 50 pods a second.
const PACE: Duration = Duration::from_millis(20);
/// Number of the first pod.
const FIRST: usize = 1000;
/// Maximum number of creations in flight.
const AT_ONCE: usize = 100;

/// A pod that was created or rejected.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    /// Whether it has the sidecar, or why it was rejected.
    pub(super) injected: Result<bool, String>,
}

/// Creates pods of a `StatefulSet` until dropped.
pub(super) struct Stream {
    made: Arc<Mutex<Vec<Made>>>,
    task: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream {
    /// The first pod of `owner` never runs, so its controller creates no more pods and ignores these.
    pub(super) async fn start(scenario: &Scenario, owner: &str) -> Result<Self> {
        let sets = scenario.api::<StatefulSet>();
        let uid = sets.get(owner).await?.metadata.uid;
        let pod = json!({
            "metadata": {
                "labels": {"app": owner},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "uid": uid, "controller": true,
                }],
            },
            "spec": {"schedulerName": "nobody", "containers": [
                {"name": "model", "image": "model:1", "ports": [{"containerPort": 8000}]},
            ]},
        });
        let pod: Pod = serde_json::from_value(pod)?;
        let made = Arc::default();
        let task = tokio::spawn(run(
            scenario.api(),
            owner.to_owned(),
            pod,
            Arc::clone(&made),
        ));
        Ok(Self { made, task })
    }

    /// The pods created so far.
    pub(super) fn made(&self) -> Vec<Made> {
        lock(&self.made).clone()
    }

    /// Waits until this many more pods have been created.
    pub(super) async fn continues(&self, more: usize) -> Result<()> {
        let before = lock(&self.made).len();
        eventually("pods are created", Duration::from_secs(30), async || {
            let now = lock(&self.made).len();
            check(now >= before + more, now)
        })
        .await
    }

    /// Stops, and waits for the creations in flight.
    pub(super) async fn end(self) -> Result<Vec<Made>> {
        self.task.abort();
        eventually(
            "the last are created",
            Duration::from_secs(30),
            async || {
                let under_way = Arc::strong_count(&self.made) - 1;
                check(under_way == 0, under_way)
            },
        )
        .await?;
        Ok(self.made())
    }
}

async fn run(pods: Api<Pod>, owner: String, pod: Pod, made: Arc<Mutex<Vec<Made>>>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut pace = tokio::time::interval(PACE);
    for number in 0_usize.. {
        pace.tick().await;
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let (pods, mut pod, made) = (pods.clone(), pod.clone(), Arc::clone(&made));
        pod.metadata.name = Some(format!("{owner}-{}", FIRST + number));
        tokio::spawn(async move {
            let sent = Instant::now();
            let answer = pods.create(&PostParams::default(), &pod).await;
            let injected = answer.map(|pod| {
                let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                containers.filter(|it| it.name.starts_with("asya-")).count() == 2
            });
            lock(&made).push(Made {
                sent,
                answered: Instant::now(),
                injected: injected.map_err(|error| error.to_string()),
            });
            drop(permit);
        });
    }
}

fn lock(made: &Mutex<Vec<Made>>) -> MutexGuard<'_, Vec<Made>> {
    made.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails if a pod was rejected or lacks the sidecar.
pub(super) fn all_injected(made: &[Made]) -> Result<()> {
    let bad: Vec<_> = made.iter().filter(|it| it.injected != Ok(true)).collect();
    if bad.is_empty() {
        return Ok(());
    }
    let begun = made.iter().map(|it| it.sent).min();
    let after = |made: &Made| begun.map(|begun| made.sent - begun);
    Err(Error::Other(format!(
        "{} of {} pods are without the sidecar; the first: {:?} after {:?}, the last after {:?}",
        bad.len(),
        made.len(),
        bad[0].injected,
        after(bad[0]),
        after(bad[bad.len() - 1]),
    )))
}
