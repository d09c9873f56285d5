//! The webhook stops in the middle of a rollout.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asya_tests::Result;
use asya_tests::audit::{Mark, Write};
use asya_tests::cluster::MODE;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::unready::HeldTarget;
use crate::admission::Stage;
use crate::binding::{bound_actor, condition, model, status_is};
use crate::own_cluster;

const WAIT: Duration = Duration::from_mins(2);
const PODS: usize = 4;

fn target() -> Result<StatefulSet> {
    let mut target = serde_json::to_value(model("web", 4)?)?;
    target["kind"] = json!("StatefulSet");
    target["spec"]["serviceName"] = json!("web");
    target["spec"]["podManagementPolicy"] = json!("Parallel");
    target["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    target["spec"]["template"]["metadata"]["labels"][MODE] = json!("hold");
    Ok(serde_json::from_value(target)?)
}

/// The pods and whether they serve, and the lowest number that ever served.
struct Serving {
    pods: BTreeMap<String, bool>,
    least: usize,
}

/// Follows the target's pods with a watch, so that no change is missed.
struct Follower {
    serving: Arc<Mutex<Serving>>,
    task: JoinHandle<kube::Result<()>>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn serves(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|it| it.conditions.iter().flatten());
    let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
    pod.metadata.deletion_timestamp.is_none() && ready.next().is_some()
}

impl Follower {
    /// Starts when all pods serve.
    async fn start(pods: Api<Pod>) -> Result<Self> {
        let selector = "app=web";
        let all = pods
            .list(&kube::api::ListParams::default().labels(selector))
            .await?;
        let version = all.metadata.resource_version.unwrap_or_default();
        let pods_now = all.items.iter().map(|pod| (pod.name_any(), serves(pod)));
        let serving = Arc::new(Mutex::new(Serving {
            pods: pods_now.collect(),
            least: PODS,
        }));
        let seen = Arc::clone(&serving);
        let task = tokio::spawn(async move {
            let parameters = WatchParams::default().labels(selector).timeout(290);
            let mut events = pin!(pods.watch(&parameters, &version).await?);
            while let Some(event) = events.try_next().await? {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        seen.pods.insert(pod.name_any(), serves(&pod));
                    }
                    WatchEvent::Deleted(pod) => {
                        seen.pods.remove(&pod.name_any());
                    }
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
                }
                let now = seen.pods.values().filter(|serves| **serves).count();
                seen.least = seen.least.min(now);
            }
            Ok(())
        });
        Ok(Self { serving, task })
    }

    fn least(&self) -> usize {
        assert!(!self.task.is_finished(), "the watch of the pods has ended");
        let seen = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        seen.least
    }
}

/// Waits until this many pods have the sidecar, and this many of them are ready.
async fn replaced(held: &HeldTarget<'_>, sidecars: usize, ready: usize) -> Result<()> {
    let what = format!("{sidecars} pods are replaced, {ready} of them ready");
    eventually(what, WAIT, async || {
        let pods = held.pods().await?;
        let replaced = pods.iter().filter(|pod| pod.sidecar);
        let serve = replaced.clone().filter(|pod| pod.ready).count();
        check(
            (replaced.count(), serve) == (sidecars, ready),
            format_args!("{pods:?}"),
        )
    })
    .await
}

async fn requests(scenario: &Scenario, mark: Mark, what: (&str, bool)) -> Result<Vec<Write>> {
    let audit = scenario.cluster().audit();
    let mut all = audit.requests_in(mark, scenario.namespace()).await?;
    all.retain(|it| it.resource == "pods" && (&*it.subresource, it.dry_run) == what);
    Ok(all)
}

/// Waits until the rollout is stalled and says why, and has been retried meanwhile.
async fn stops(scenario: &Scenario, name: &str, mark: Mark) -> Result<()> {
    let waits = |status: &Value| {
        condition(status, "Injected") == ("False", "ProbeFailed") && status["pods"]["injected"] == 2
    };
    let status = status_is(scenario, name, "it says why it waits", WAIT, waits).await?;
    let conditions = status["conditions"].to_string();
    assert!(conditions.contains("webhook"), "{conditions}");
    eventually("it was tried again three times", WAIT, async || {
        let probes = requests(scenario, mark, ("", true)).await;
        let probes = probes.map_err(NotYet::new)?.len();
        check(probes >= 4, probes)
    })
    .await?;
    status_is(scenario, name, "it still waits", WAIT, waits).await?;
    let evictions = requests(scenario, mark, ("eviction", false)).await?;
    assert_eq!(evictions, Vec::new());
    Ok(())
}

/// SAFE-5, SAFE-11, ROLL-2 (i): a stopped webhook stops the rollout, which continues once the webhook is back.
#[tokio::test]
async fn outage_of_the_webhook_stops_a_rollout_after_two_of_four_pods() {
    let _turn = own_cluster().await;
    let mut stage = Stage::set(&[]).await.unwrap();
    Scenario::run_on(
        Ok(stage.cluster.clone()),
        "rollout-outage",
        async |scenario| {
            let sets = scenario.api::<StatefulSet>();
            sets.create(&PostParams::default(), &target()?).await?;
            let held = HeldTarget::new(scenario, "app=web");
            held.ready(PODS).await?;
            let follower = Follower::start(scenario.api()).await?;
            let name = scenario.name("stops");
            let mut actor = bound_actor(&name, "web");
            actor["spec"]["workloadRef"]["kind"] = json!("StatefulSet");
            scenario.apply(&actor).await?;
            replaced(&held, 1, 0).await?;
            held.release().await?;
            replaced(&held, 2, 1).await?;

            stage.webhook.kill().await?;
            let mark = scenario.cluster().audit().mark().await?;
            held.release().await?;
            replaced(&held, 2, 2).await?;
            stops(scenario, &name, mark).await?;
            replaced(&held, 2, 2).await?;
            held.ready(PODS).await?;

            stage.webhook.fill().await?;
            replaced(&held, 3, 2).await?;
            held.release().await?;
            replaced(&held, 4, 3).await?;
            held.release().await?;
            status_is(scenario, &name, "all are replaced", WAIT, |status| {
                condition(status, "Injected") == ("True", "AllPodsInjected")
            })
            .await?;
            held.ready(PODS).await?;
            let evictions = requests(scenario, mark, ("eviction", false)).await?;
            assert_eq!(evictions.len(), 2, "{evictions:?}");
            assert_eq!(follower.least(), PODS - 1);
            Ok(())
        },
    )
    .await;
}
