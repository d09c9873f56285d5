//! How scaling ends for a target that has no pods.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::owners::kserve::{
    AUTOSCALER_CLASS, INFERENCE_SERVICE, Kserve, STOP, deployment_of, inference_service,
};
use asya_tests::owners::llmisvc::{LLM_INFERENCE_SERVICE, LlmIsvc, llm_inference_service};
use asya_tests::owners::{Kind, Owner, Reconciler, RecordingClient};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::served::scaling;
use crate::binding::{condition, status_is};
use crate::targets::systems::bind_as;

/// Binds and scales this target; returns once it is scaled to zero.
async fn scaled_to_zero(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    made: (Kind, &Value),
) -> Result<(Owner, String)> {
    let spec = json!({
        "scaling": scaling(Duration::ZERO), "runtime": {"targetURL": "http://127.0.0.1:8080"},
    });
    let (owner, name) = bind_as(scenario, reconciler, made, &spec).await?;
    status_is(scenario, &name, "is scaled to zero", LATER * 2, |status| {
        status["status"] == "Napping"
            && status["pods"]["matched"] == 0
            && status["totalReplicas"] == 0
    })
    .await?;
    Ok((owner, name))
}

/// The number of pods that controllers have created since then.
async fn pods_made(scenario: &Scenario, since: asya_tests::audit::Mark) -> Result<usize> {
    let cluster = scenario.cluster();
    let ours = cluster.operator_user()?;
    let writes = cluster
        .audit()
        .writes_in(since, scenario.namespace())
        .await?;
    let made = writes.iter().filter(|it| {
        (&*it.resource, &*it.subresource, &*it.verb) == ("pods", "", "create") && it.user != ours
    });
    Ok(made.count())
}

/// SAFE-24, SO-5, SO-6: KServe updates its Deployment once nothing else scales it.
#[tokio::test]
async fn inference_service_at_zero_starts_one_pod_when_scaling_is_switched_off() {
    Scenario::run("off-iris", async |scenario| {
        let mut target = inference_service("iris", &json!({}));
        target["spec"]["predictor"]["minReplicas"] = json!(1);
        let made = (INFERENCE_SERVICE, &target);
        let (owner, name) = scaled_to_zero(scenario, Kserve, made).await?;
        let mark = scenario.cluster().audit().mark().await?;
        let off = r#"{"spec": {"scaling": null}}"#;
        scenario
            .kubectl(&["patch", "asya", &name, "--type=merge", "-p", off])
            .await?;
        let has_pod = |status: &Value| {
            condition(status, "ScalingReady") == ("", "") && status["readyReplicas"] == 1
        };
        status_is(scenario, &name, "has a pod", LATER, has_pod).await?;
        owner.rounds(3).await?;
        let client = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        let live = client.get(Kind::DEPLOYMENT, &deployment_of("iris")).await?;
        let live = live.unwrap_or_default();
        let template = &live["spec"]["template"]["metadata"]["annotations"];
        assert!(template.get(AUTOSCALER_CLASS).is_none(), "{template}");
        status_is(scenario, &name, "it stays so", LATER, has_pod).await?;
        assert_eq!(pods_made(scenario, mark).await?, 1);
        Ok(())
    })
    .await;
}

/// Stops a target, deletes its actor, and checks that both are cleaned up.
async fn ends_while_stopped(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    (kind, target): (Kind, &Value),
) -> Result<()> {
    let client = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
    let spec = json!({
        "scaling": scaling(Duration::from_mins(10)), "runtime": {"targetURL": "http://127.0.0.1:8080"},
    });
    let (_owner, name) = bind_as(scenario, reconciler, (kind, target), &spec).await?;
    status_is(scenario, &name, "it is scaled", LATER, |status| {
        condition(status, "ScalingReady") == ("True", "ScaledObjectReady")
            && condition(status, "Injected") == ("True", "AllPodsInjected")
    })
    .await?;
    let its_name = target["metadata"]["name"].as_str().unwrap_or_default();
    let stop = format!("{STOP}=true");
    scenario
        .kubectl(&["annotate", kind.plural, its_name, &stop])
        .await?;
    let stopped = |status: &Value| {
        condition(status, "TargetResolved") == ("False", "TargetStopped")
            && status["status"] == "Napping"
    };
    status_is(scenario, &name, "it is stopped", LATER, stopped).await?;
    scenario
        .kubectl(&["delete", "asya", &name, "--wait=false"])
        .await?;
    scenario.actor_gone(&name, LATER).await?;
    eventually("nothing of it is left on the target", LATER, async || {
        let live = client.get(kind, its_name).await?.unwrap_or_default();
        let text = live["metadata"]["annotations"].to_string() + &live["spec"].to_string();
        let gone = !text.contains("asya.sh") && !text.contains(AUTOSCALER_CLASS);
        check(gone && text.contains(STOP), text)
    })
    .await
}

/// SAFE-24, BIND-43, BIND-44
#[tokio::test]
async fn actor_of_an_inference_service_that_is_stopped_goes_without_a_trace() {
    Scenario::run("ends-stopped", async |scenario| {
        let target = inference_service("iris", &json!({}));
        ends_while_stopped(scenario, Kserve, (INFERENCE_SERVICE, &target)).await
    })
    .await;
}

/// SAFE-24, BIND-43, BIND-44
#[tokio::test]
async fn actor_of_an_llm_inference_service_that_is_stopped_goes_without_a_trace() {
    Scenario::run("ends-stopped-llm", async |scenario| {
        let target = llm_inference_service("qwen");
        ends_while_stopped(scenario, LlmIsvc, (LLM_INFERENCE_SERVICE, &target)).await
    })
    .await;
}
