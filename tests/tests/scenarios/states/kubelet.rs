//! Pod statuses as a kubelet would report them, written by the scenario: the pods have mode `hold`, which kwok ignores.

use asya_tests::eventually::{NotYet, SOON, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

/// Waits until an actor has `count` pods that are assigned to nodes; returns them ordered by name.
pub(super) async fn pods(scenario: &Scenario, actor: &str, count: usize) -> Result<Vec<Pod>> {
    let params = ListParams::default().labels(&format!("asya.sh/asya={actor}"));
    eventually(format_args!("{count} pods of {actor}"), SOON, async || {
        let pods = scenario.api::<Pod>().list(&params).await?.items;
        let placed = |pod: &&Pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some())
        };
        if pods.len() == count && pods.iter().filter(placed).count() == count {
            Ok(pods)
        } else {
            Err(NotYet::new(format_args!("{} pods", pods.len())))
        }
    })
    .await
}

pub(super) async fn pod(scenario: &Scenario, actor: &str) -> Result<Pod> {
    let mut pods = pods(scenario, actor, 1).await?;
    Ok(pods.remove(0))
}

/// Patches a pod's status.
pub(super) async fn report_status(scenario: &Scenario, pod: &Pod, status: Value) -> Result<()> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({"status": status}));
    let api = scenario.api::<Pod>();
    api.patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Both containers run, and the pod is Ready.
pub(super) fn ready(pod: &Pod) -> Value {
    let running = |_: &str| json!({"running": {"startedAt": Timestamp::now()}});
    status(
        pod,
        "Running",
        &conditions(true, Some(true), Timestamp::now()),
        running,
    )
}

/// Both containers run, but the pod has been unready since this time.
pub(super) fn unready_since(pod: &Pod, since: Timestamp) -> Value {
    let running = |_: &str| json!({"running": {"startedAt": since}});
    status(
        pod,
        "Running",
        &conditions(true, Some(false), since),
        running,
    )
}

/// Volumes are mounted; one container waits with this reason, and the others wait with it.
pub(super) fn waiting(pod: &Pod, container: &str, reason: &str) -> Value {
    let state = |name: &str| {
        let reason = if name == container {
            reason
        } else {
            "PodInitializing"
        };
        json!({"waiting": {"reason": reason}})
    };
    status(
        pod,
        "Pending",
        &conditions(true, Some(false), Timestamp::now()),
        state,
    )
}

/// The kubelet has started to set up the pod, beginning with volumes.
pub(super) fn creating(pod: &Pod) -> Value {
    let state = |_: &str| json!({"waiting": {"reason": "ContainerCreating"}});
    status(
        pod,
        "Pending",
        &conditions(false, Some(false), Timestamp::now()),
        state,
    )
}

fn status(pod: &Pod, phase: &str, conditions: &Value, state: impl Fn(&str) -> Value) -> Value {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses = containers.map(|container| {
        let state = state(&container.name);
        json!({
            "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
            "ready": state.get("running").is_some(), "state": state,
        })
    });
    json!({"phase": phase, "conditions": conditions, "containerStatuses": statuses.collect::<Vec<_>>()})
}

fn conditions(mounted: bool, ready: Option<bool>, since: Timestamp) -> Value {
    let condition = |kind: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": since})
    };
    let mut all = vec![
        condition("PodScheduled", true),
        condition("Initialized", true),
        condition("PodReadyToStartContainers", mounted),
    ];
    all.extend(ready.map(|ready| condition("ContainersReady", ready)));
    all.extend(ready.map(|ready| condition("Ready", ready)));
    all.into()
}

/// Creates an Event that reports a volume of a pod that cannot be mounted.
pub(super) async fn report_event(
    scenario: &Scenario,
    pod: &Pod,
    reason: &str,
    message: &str,
) -> Result<()> {
    let (name, now) = (
        pod.metadata.name.as_deref().unwrap_or_default(),
        Timestamp::now(),
    );
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": format!("{name}.{:x}", now.as_nanosecond()), "namespace": scenario.namespace()},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": scenario.namespace(), "name": name, "uid": pod.metadata.uid,
        },
        "type": "Warning", "reason": reason, "message": message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": "kubelet", "host": "node-0"}, "reportingComponent": "kubelet", "reportingInstance": "node-0",
    }))?;
    scenario
        .api::<Event>()
        .create(&PostParams::default(), &event)
        .await?;
    Ok(())
}

/// Returns a future that completes when the last of the actor's current pods is deleted.
pub(super) async fn last_goes(
    scenario: &Scenario,
    actor: &str,
) -> Result<impl Future<Output = Result<()>>> {
    let (api, labels) = (scenario.api::<Pod>(), format!("asya.sh/asya={actor}"));
    let now = api.list(&ListParams::default().labels(&labels)).await?;
    let version = now.metadata.resource_version.unwrap_or_default();
    let watched = WatchParams::default().labels(&labels);
    let events = api.watch(&watched, &version).await?;
    let mut left = now.items.len();
    Ok(async move {
        let mut events = std::pin::pin!(events);
        while left > 0 {
            match events.next().await {
                Some(Ok(WatchEvent::Added(_))) => left += 1,
                Some(Ok(WatchEvent::Deleted(_))) => left -= 1,
                Some(Ok(_)) => {}
                other => return Err(Error::Other(format!("the watch of pods ended: {other:?}"))),
            }
        }
        Ok(())
    })
}
