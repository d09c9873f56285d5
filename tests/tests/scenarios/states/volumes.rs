//! Pods whose volumes cannot be mounted, which the kubelet reports only in Events.

use asya_tests::Result;
use serde_json::json;

use super::{Case, Reported, actor, kubelet, workload};

const CREATING: Reported = Reported {
    state: "Creating",
    condition: "WorkloadReady",
    reason: "Progressing",
};

/// Runs an actor whose only pod has a volume that cannot be mounted, as the kubelet's Event reports; later it runs.
async fn cannot_mount(
    case: &Case<'_>,
    name: &str,
    reported: Reported,
    why: &'static str,
    [reason, message]: [&str; 2],
    wanted: &str,
) -> Result<()> {
    let scenario = case.scenario;
    case.apply(&actor(name, "hold", 1)).await?;
    case.is(CREATING, name).await?;
    let pod = kubelet::pod(scenario, name).await?;
    kubelet::report_status(scenario, &pod, kubelet::creating(&pod)).await?;
    let reports = kubelet::report_event(scenario, &pod, reason, message);
    case.is_reported(reported, why, name, reports).await?;
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    assert_eq!(
        case.recorder.message(name, "WorkloadReady")?,
        format!("{wanted} (pod {pod_name})")
    );
    let starts = kubelet::report_status(scenario, &pod, kubelet::ready(&pod));
    let running = workload("Running", "PodsReady");
    case.is_reported(running, "the volume is there, the pod starts", name, starts)
        .await
}

/// STA-2, STA-3, STA-6
#[tokio::test]
async fn config_error_is_reported_for_containers_and_mounts() {
    Case::run("ConfigError", async |case| {
        let reported = workload("ConfigError", "ConfigError");
        let name = case.scenario.name("mount");
        let event = [
            "FailedMount",
            "MountVolume.SetUp failed for volume \"settings\" : configmap \"absent\" not found",
        ];
        let wanted = "FailedMount for volume settings: ConfigMap absent not found";
        let why = "Event FailedMount, a ConfigMap is missing";
        cannot_mount(case, &name, reported, why, event, wanted).await?;

        let name = case.scenario.name("env");
        case.apply(&actor(&name, "hold", 1)).await?;
        let pod = kubelet::pod(case.scenario, &name).await?;
        let status = kubelet::waiting(&pod, "asya-runtime", "CreateContainerConfigError");
        let reports = kubelet::report_status(case.scenario, &pod, status);
        case.is_reported(reported, "CreateContainerConfigError", &name, reports)
            .await
    })
    .await;
}

/// STA-2, STA-3, STA-6
#[tokio::test]
async fn volume_error_is_reported_for_every_volume_failure() {
    Case::run("VolumeError", async |case| {
        let reported = workload("VolumeError", "VolumeError");
        for (base, why, event, wanted) in [
            (
                "mount",
                "Event FailedMount",
                ["FailedMount", "MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32"],
                "FailedMount for volume data",
            ),
            (
                "attach",
                "Event FailedAttachVolume",
                ["FailedAttachVolume", "Multi-Attach error for volume \"pv-1\" Volume is already exclusively attached to one node and can't be attached to another"],
                "FailedAttachVolume for volume pv-1",
            ),
            (
                "device",
                "Event FailedMapVolume",
                ["FailedMapVolume", "MapVolume.SetUpDevice failed for volume \"disk\" : rpc error: code = Internal"],
                "FailedMapVolume for volume disk",
            ),
        ] {
            cannot_mount(case, &case.scenario.name(base), reported, why, event, wanted).await?;
        }

        let name = case.scenario.name("claim");
        let mut actor = actor(&name, "hold", 1);
        let claim = json!({"claimName": "absent"});
        actor["spec"]["workload"]["template"]["spec"]["volumes"] =
            json!([{"name": "data", "persistentVolumeClaim": claim}]);
        let why = "an actor whose claim does not exist; the scheduler says so";
        case.is_reported(reported, why, &name, case.apply(&actor)).await
    })
    .await;
}
