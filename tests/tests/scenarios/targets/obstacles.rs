//! What blocks a rollout or the end of a binding, and what unblocks it.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::rolling::containers;
use crate::binding::{bound_actor, condition, model, status_is};

/// A disruption budget is checked every 10 s.
const ROLLED: Duration = Duration::from_mins(2);

async fn create(scenario: &Scenario, replicas: i32, extra: &Value) -> Result<Deployment> {
    let mut deployment = serde_json::to_value(model("web", replicas)?)?;
    let spec = deployment["spec"].as_object_mut().unwrap();
    spec.extend(extra.as_object().unwrap().clone());
    let deployment = serde_json::from_value(deployment)?;
    let deployments = scenario.api::<Deployment>();
    Ok(deployments
        .create(&PostParams::default(), &deployment)
        .await?)
}

/// Creates two pods, one of which a rollout removes before its replacement is ready.
async fn create_pair(scenario: &Scenario) -> Result<Deployment> {
    let lowers = json!({"maxUnavailable": 1, "maxSurge": 0});
    create(scenario, 2, &json!({"strategy": {"rollingUpdate": lowers}})).await
}

/// Creates a budget that keeps both pods.
async fn create_budget(scenario: &Scenario) -> Result<Api<PodDisruptionBudget>> {
    let budgets = scenario.api::<PodDisruptionBudget>();
    let budget = serde_json::from_value(json!({
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    budgets.create(&PostParams::default(), &budget).await?;
    Ok(budgets)
}

fn all_injected(status: &Value) -> bool {
    condition(status, "Injected") == ("True", "AllPodsInjected")
}

/// ROLL-4 (a)
#[tokio::test]
async fn budget_holds_up_a_rollout_that_takes_pods_first_until_it_allows_one_to_go() {
    Scenario::run("budget", async |scenario| {
        let (name, deployments) = (scenario.name("budget"), scenario.api::<Deployment>());
        create_pair(scenario).await?;
        eventually("both pods are ready", ROLLED, async || {
            let status = deployments.get("web").await?.status.unwrap_or_default();
            check(
                status.ready_replicas == Some(2),
                format_args!("{:?}", status.ready_replicas),
            )
        })
        .await?;
        let before = deployments.get("web").await?;
        let budgets = create_budget(scenario).await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        // Waiting for rollouts of other scenarios has the same reason.
        let blocker = "PodDisruptionBudget keep allows no disruption";
        let waits = |status: &Value| {
            condition(status, "Injected") == ("False", "RolloutWaiting")
                && status["conditions"].to_string().contains(blocker)
        };
        let status = status_is(scenario, &name, "it waits for the budget", ROLLED, waits).await?;
        assert_eq!(status["status"], "Updating");
        let still = deployments.get("web").await?;
        assert_eq!(still.spec, before.spec);

        budgets.delete("keep", &DeleteParams::default()).await?;
        status_is(scenario, &name, "it is rolled", ROLLED, all_injected).await?;
        let after = deployments.get("web").await?.metadata.generation;
        let still = still.metadata.generation;
        assert_eq!(after, still.map(|it| it + 1), "rolled once");
        Ok(())
    })
    .await;
}

/// SAFE-15, ROLL-2 (d)
#[tokio::test]
async fn budget_holds_up_the_end_of_a_binding_until_it_allows_one_pod_to_go() {
    Scenario::run("unbind-budget", async |scenario| {
        let (name, deployments) = (scenario.name("kept"), scenario.api::<Deployment>());
        create_pair(scenario).await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        status_is(scenario, &name, "it is rolled", ROLLED, |status| {
            all_injected(status) && status["rollout"].is_null()
        })
        .await?;
        let before = deployments.get("web").await?;
        let budgets = create_budget(scenario).await?;
        eventually("the budget is observed", ROLLED, async || {
            let status = budgets.get("keep").await?.status.unwrap_or_default();
            check(
                (status.current_healthy, status.disruptions_allowed) == (2, 0),
                format_args!("{status:?}"),
            )
        })
        .await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        let blocked = |status: &Value| condition(status, "Ready") == ("False", "UnbindBlocked");
        let status = status_is(scenario, &name, "it is held", ROLLED, blocked).await?;
        let text = status["conditions"].to_string();
        assert!(
            text.contains("PodDisruptionBudget keep allows no disruption"),
            "{text}"
        );
        assert_eq!(deployments.get("web").await?.spec, before.spec);

        budgets.delete("keep", &DeleteParams::default()).await?;
        scenario.actor_gone(&name, ROLLED).await?;
        assert_eq!(containers(scenario, "web").await?, [["model"], ["model"]]);
        Ok(())
    })
    .await;
}

/// BIND-44, ROLL-6
#[tokio::test]
async fn deletion_waits_for_pods_with_the_sidecar_unless_unbinding_is_skipped() {
    Scenario::run("unbind-blocked", async |scenario| {
        let (name, deployments) = (scenario.name("blocked"), scenario.api::<Deployment>());
        create(scenario, 1, &json!({})).await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        status_is(scenario, &name, "it is rolled", ROLLED, all_injected).await?;
        scenario
            .kubectl(&["rollout", "pause", "deployment/web"])
            .await?;
        let before = deployments.get("web").await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        let blocked = |status: &Value| condition(status, "Ready") == ("False", "UnbindBlocked");
        let status = status_is(scenario, &name, "it is held", ROLLED, blocked).await?;
        assert_eq!(status["status"], "Terminating");
        let told = status["conditions"].to_string();
        assert!(
            told.contains("Deployment/web: spec.paused is true"),
            "{told}"
        );
        let (rabbitmq, queue) = (scenario.cluster().rabbitmq()?, format!("asya-{name}"));
        assert!(rabbitmq.queue(&queue).await?.is_some(), "the queue stays");
        let still = deployments.get("web").await?;
        assert_eq!(still.spec, before.spec);

        scenario
            .kubectl(&["annotate", "asya", &name, "asya.sh/skip-unbind=true"])
            .await?;
        scenario.actor_gone(&name, ROLLED).await?;
        assert!(rabbitmq.queue(&queue).await?.is_none());
        let sidecars = [["model", "asya-runtime", "asya-sidecar"]];
        assert_eq!(containers(scenario, "web").await?, sidecars);
        assert_eq!(deployments.get("web").await?.spec, before.spec);
        Ok(())
    })
    .await;
}

/// ROLL-7
#[tokio::test]
async fn replacement_of_gpu_pods_is_announced() {
    Scenario::run("gpus", async |scenario| {
        let name = scenario.name("gpus");
        let limits = json!({"limits": {"nvidia.com/gpu": "1"}});
        let mut template = serde_json::to_value(model("web", 1)?)?["spec"]["template"].take();
        template["spec"]["containers"][0]["resources"] = limits;
        create(scenario, 2, &json!({"template": template})).await?;
        let pods = async || containers(scenario, "web").await;
        eventually("its pods are there", ROLLED, async || {
            let pods = pods().await.map_err(asya_tests::eventually::NotYet::new)?;
            check(pods.len() == 2, pods.len())
        })
        .await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        let text = "2 pods of Deployment/web that use GPUs";
        scenario.event_with("RollsGpuPods", &[text], ROLLED).await
    })
    .await;
}
