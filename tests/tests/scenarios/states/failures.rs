//! Failures of an actor's pods.

use std::time::{Duration, Instant};

use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::{Error, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Case, Reported, actor, kubelet, workload};

/// The default of `controller.unreadyDeadline`.
const UNREADY: SignedDuration = SignedDuration::from_mins(5);

/// An actor with two containers and possibly a third, one of which is waiting with this reason.
async fn container_waits(
    case: &Case<'_>,
    reported: Reported,
    container: &str,
    reason: &'static str,
) -> Result<()> {
    let name = case.scenario.name("waits");
    let mut actor = actor(&name, "hold", 1);
    if let Some(containers) = actor
        .pointer_mut("/spec/workload/template/spec/containers")
        .and_then(|containers| containers.as_array_mut())
    {
        containers.push(json!({"name": "helper", "image": "helper"}));
    }
    case.apply(&actor).await?;
    let pod = kubelet::pod(case.scenario, &name).await?;
    let status = kubelet::waiting(&pod, container, reason);
    let reports = kubelet::report_status(case.scenario, &pod, status);
    case.is_reported(reported, reason, &name, reports).await?;
    let pod = pod.metadata.name.unwrap_or_default();
    assert_eq!(
        case.recorder.message(&name, "WorkloadReady")?,
        format!("Container {container}: {reason} (pod {pod})")
    );
    Ok(())
}

/// STA-2, STA-3, STA-6
#[tokio::test]
async fn image_pull_error_is_reported() {
    Case::run("ImagePullError", async |case| {
        let reported = workload("ImagePullError", "ImagePullError");
        container_waits(case, reported, "asya-runtime", "ImagePullBackOff").await
    })
    .await;
}

/// STA-2, STA-3, STA-6
#[tokio::test]
async fn runtime_error_is_reported() {
    Case::run("RuntimeError", async |case| {
        let reported = workload("RuntimeError", "RuntimeError");
        container_waits(case, reported, "asya-runtime", "CrashLoopBackOff").await
    })
    .await;
}

/// STA-2, STA-3, STA-6
#[tokio::test]
async fn sidecar_error_is_reported() {
    Case::run("SidecarError", async |case| {
        let reported = workload("SidecarError", "SidecarError");
        container_waits(case, reported, "asya-sidecar", "CrashLoopBackOff").await
    })
    .await;
}

/// STA-2, STA-3, STA-6, VAL-19
#[tokio::test]
async fn workload_error_is_reported_for_other_containers_and_invalid_specs() {
    Case::run("WorkloadError", async |case| {
        let reported = workload("WorkloadError", "WorkloadError");
        container_waits(case, reported, "helper", "RunContainerError").await?;

        let name = case.scenario.name("bad");
        let mut actor = actor(&name, "hold", 1);
        case.apply(&actor).await?;
        case.is(workload("Creating", "Progressing"), &name).await?;
        actor["spec"]["workload"]["template"]["spec"]["containers"][0]["command"] = json!(["sh"]);
        let reported = workload("WorkloadError", "ValidationError");
        case.is_reported(
            reported,
            "a command on asya-runtime",
            &name,
            case.apply(&actor),
        )
        .await
    })
    .await;
}

/// STA-2, STA-6
#[tokio::test]
async fn pending_resources_is_reported_for_nodes_and_quotas() {
    Case::run("PendingResources", async |case| {
        let reported = workload("PendingResources", "PendingResources");
        let name = case.scenario.name("nodes");
        let mut nowhere = actor(&name, "hold", 1);
        nowhere["spec"]["workload"]["template"]["spec"]["nodeSelector"] = json!({"gpu": "yes"});
        let why = "an actor for which there is no node; the scheduler says so";
        case.is_reported(reported, why, &name, case.apply(&nowhere))
            .await?;

        let quotas = case.scenario.api::<ResourceQuota>();
        let quota = serde_json::from_value(json!({
            "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
        }))?;
        quotas.create(&PostParams::default(), &quota).await?;
        eventually("the quota is in force", SOON, async || {
            let status = quotas.get("none").await?.status.unwrap_or_default();
            check(status.hard.is_some(), format_args!("{status:?}"))
        })
        .await?;
        let name = case.scenario.name("quota");
        let refused = actor(&name, "hold", 1);
        let why = "an actor beyond the quota; its Deployment says so";
        case.is_reported(reported, why, &name, case.apply(&refused))
            .await?;

        let name = case.scenario.name("set");
        let mut refused = actor(&name, "ready", 2);
        refused["spec"]["workload"]["kind"] = json!("StatefulSet");
        let why = "a StatefulSet beyond the quota; an Event says so";
        case.is_reported(reported, why, &name, case.apply(&refused))
            .await?;
        let message = case.recorder.message(&name, "WorkloadReady")?;
        assert!(message.contains("exceeded quota: none"), "{message}");
        quotas.delete("none", &DeleteParams::default()).await?;
        // A change to the StatefulSet makes its controller retry at once.
        let again = Patch::Merge(json!({"metadata": {"labels": {"example.com/look": "again"}}}));
        let sets = case.scenario.api::<StatefulSet>();
        sets.patch(&name, &PatchParams::default(), &again).await?;
        case.is(workload("Running", "PodsReady"), &name).await
    })
    .await;
}

/// STA-4, STA-6, FW-26
#[tokio::test]
async fn degraded_is_reported_if_one_of_two_pods_does_not_work() {
    Case::run("Degraded", async |case| {
        let scenario = case.scenario;
        let half = async |base: &str, progress: Option<i64>| {
            let name = scenario.name(base);
            let mut actor = actor(&name, "hold", 2);
            if let Some(progress) = progress {
                actor["spec"]["timeout"] = json!({"progress": progress});
            }
            case.apply(&actor).await?;
            let mut pods = kubelet::pods(scenario, &name, 2).await?;
            let first = pods.remove(0);
            kubelet::report_status(scenario, &first, kubelet::ready(&first)).await?;
            case.is(workload("Creating", "Scaling"), &name).await?;
            Ok::<_, Error>((name, pods.remove(0)))
        };
        let (name, second) = half("crash", Some(600)).await?;
        let crashes = kubelet::waiting(&second, "asya-runtime", "CrashLoopBackOff");
        let reported = workload("Degraded", "RuntimeError");
        let reports = kubelet::report_status(scenario, &second, crashes);
        case.is_reported(reported, "one of two pods crashes", &name, reports)
            .await?;

        let (name, second) = half("unready", None).await?;
        // The API server stores whole seconds.
        let ends =
            Timestamp::from_second(Timestamp::now().as_second() + 4).map_err(Error::other)?;
        let unready = kubelet::unready_since(&second, ends - UNREADY);
        kubelet::report_status(scenario, &second, unready).await?;
        let reported = workload("Degraded", "PodsNotReady");
        let why = "one of two pods has not been ready for controller.unreadyDeadline";
        case.is_reported(reported, why, &name, until(ends)).await?;

        let (name, _) = half("stuck", Some(4)).await?;
        let status = scenario.actors().get(&name).await?.data["status"].clone();
        let since: Timestamp = serde_json::from_value(status["progressingSince"].clone())?;
        let reported = workload("Degraded", "ProgressDeadlineExceeded");
        let why = "one of two pods has not come within timeout.progress";
        let ends = since + SignedDuration::from_secs(4);
        case.is_reported(reported, why, &name, until(ends)).await
    })
    .await;
}

/// Waits for a point in time that causes a status.
async fn until(time: Timestamp) -> Result<()> {
    let left = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep_until((Instant::now() + left).into()).await;
    Ok(())
}

/// VAL-20, STA-6
#[tokio::test]
async fn transport_error_is_reported_for_new_and_running_actors() {
    Case::run("TransportError", async |case| {
        let reported = Reported {
            state: "TransportError",
            condition: "TransportReady",
            reason: "InvalidTransport",
        };
        let name = case.scenario.name("new");
        let mut nowhere = actor(&name, "hold", 1);
        nowhere["spec"]["transport"] = json!("pigeon");
        let why = "a new actor of an unknown transport";
        case.is_reported(reported, why, &name, case.apply(&nowhere))
            .await?;

        let name = case.scenario.name("moved");
        let mut moved = actor(&name, "ready", 1);
        case.apply(&moved).await?;
        case.is(workload("Running", "PodsReady"), &name).await?;
        moved["spec"]["transport"] = json!("pigeon");
        let why = "a running actor moves to an unknown transport";
        case.is_reported(reported, why, &name, case.apply(&moved))
            .await?;
        moved["spec"]["transport"] = json!("rabbitmq");
        case.apply(&moved).await
    })
    .await;
}
