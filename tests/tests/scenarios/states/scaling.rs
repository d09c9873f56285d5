//! States caused by scaling with KEDA, on dedicated clusters; on one of them KEDA is installed while the scenario runs.

use asya_tests::cluster::Options;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{Case, Reported, actor, kubelet, workload};

/// An actor that KEDA scales, polled every second.
fn scaled(name: &str) -> Value {
    let mut actor = actor(name, "slowstop", 1);
    actor["spec"]["scaling"] =
        json!({"enabled": true, "minReplicas": 0, "pollingInterval": 1, "cooldownPeriod": 0});
    actor
}

/// `state`, with this reason of `ScalingReady`.
fn scaling(state: &'static str, reason: &'static str) -> Reported {
    Reported {
        state,
        condition: "ScalingReady",
        reason,
    }
}

/// STA-4, STA-5, STA-6
#[tokio::test]
async fn napping_is_reported_for_new_and_scaled_down_actors() {
    let options = Options {
        keda: true,
        ..Options::default()
    };
    Case::run_on_its_own("Napping", options, async |case, cluster| {
        let name = case.scenario.name("napping");
        let reported = workload("Napping", "ScaledToZero");
        let why = "a new actor without messages";
        case.is_reported(reported, why, &name, case.apply(&scaled(&name)))
            .await?;
        case.is(scaling("Napping", "ScaledObjectReady"), &name)
            .await?;

        let (rabbitmq, queue) = (cluster.rabbitmq()?, format!("asya-{name}"));
        assert!(rabbitmq.publish("asya", &name, "a message").await?);
        case.is(workload("Running", "PodsReady"), &name).await?;
        let gone = kubelet::last_goes(case.scenario, &name).await?;
        let idle = async {
            rabbitmq.messages(&queue, 10, false).await?;
            gone.await
        };
        case.is_reported(reported, "the last pod has gone", &name, idle)
            .await
    })
    .await;
}

/// KEDA-9, STA-4, STA-6
#[tokio::test]
async fn scaling_error_is_reported_without_keda_or_with_another_autoscaler() {
    Case::run_on_its_own("ScalingError", Options::default(), async |case, cluster| {
        let name = case.scenario.name("scales");
        let reported = scaling("ScalingError", "KedaNotInstalled");
        let why = "a new actor that scales, without KEDA";
        case.is_reported(reported, why, &name, case.apply(&scaled(&name)))
            .await?;
        cluster.start_keda().await?;
        case.is(scaling("Napping", "ScaledObjectReady"), &name)
            .await?;

        let autoscaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "rival"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "maxReplicas": 3,
            },
        }))?;
        let hpas = case.scenario.api::<HorizontalPodAutoscaler>();
        let comes = async {
            hpas.create(&PostParams::default(), &autoscaler).await?;
            Ok(())
        };
        let reported = scaling("ScalingError", "RivalAutoscaler");
        case.is_reported(reported, "another HPA for the workload", &name, comes)
            .await
    })
    .await;
}
