//! Targets that wait for each other's rollouts.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{MODE, Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use serde_json::json;

use super::unready::HeldTarget;
use crate::binding::{bound_actor, condition, model, status_is};
use crate::own_cluster;

const WAIT: Duration = Duration::from_mins(2);

/// Binds a Deployment with one pod, whose next pods do not become ready until released. Returns the actor's name.
async fn bind_held(scenario: &Scenario, app: &str, held: &HeldTarget<'_>) -> Result<String> {
    let mut target = serde_json::to_value(model(app, 1)?)?;
    target["spec"]["template"]["metadata"]["labels"][MODE] = json!("hold");
    let target: Deployment = serde_json::from_value(target)?;
    let deployments = scenario.api::<Deployment>();
    deployments.create(&PostParams::default(), &target).await?;
    held.ready(1).await?;
    let name = scenario.name(app);
    scenario.apply(&bound_actor(&name, app)).await?;
    eventually(format_args!("{app} is bound"), WAIT, async || {
        held.release().await.map_err(NotYet::new)?;
        let actor = scenario.actors().get(&name).await?;
        let status = &actor.data["status"];
        let is_bound = condition(status, "Injected") == ("True", "AllPodsInjected");
        check(is_bound && status["rollout"].is_null(), status)
    })
    .await?;
    Ok(name)
}

/// Waits until every pod has the sidecar, or none has.
async fn pods_have_sidecar(held: &HeldTarget<'_>, expected: bool) -> Result<()> {
    eventually(format_args!("sidecar: {expected}"), WAIT, async || {
        let pods = held.pods().await?;
        let all = pods.iter().all(|it| it.sidecar == expected);
        check(all && !pods.is_empty(), format_args!("{pods:?}"))
    })
    .await
}

/// SAFE-15: with one slot, the second target keeps its pods until the first has its new ones.
#[tokio::test]
async fn targets_whose_bindings_end_together_are_rolled_one_after_the_other() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "turns", async |scenario| {
        let one_slot = json!({"binding": {"maxRollouts": 1}});
        let operator = Operator::install(&cluster, one_slot).await?;
        let controller = operator.start("one").await?;
        let webhook = Webhook::start(&operator).await?;
        let first = HeldTarget::new(scenario, "app=first");
        let second = HeldTarget::new(scenario, "app=second");
        let first_actor = bind_held(scenario, "first", &first).await?;
        let second_actor = bind_held(scenario, "second", &second).await?;
        let deployments = scenario.api::<Deployment>();
        let before = deployments.get("second").await?;

        for actor in [&first_actor, &second_actor] {
            let delete = ["delete", "asya", actor, "--wait=false"];
            scenario.kubectl(&delete).await?;
            if actor == &first_actor {
                let begun = "the rollout of the first has begun";
                eventually(begun, WAIT, async || {
                    let pods = first.pods().await?;
                    let begun = pods.iter().any(|it| !it.sidecar);
                    check(begun, format_args!("{pods:?}"))
                })
                .await?;
            }
        }
        let waits = "the second waits for its slot";
        let status = status_is(scenario, &second_actor, waits, WAIT, |status| {
            condition(status, "Ready") == ("False", "UnbindBlocked")
        })
        .await?;
        let text = status["conditions"].to_string();
        assert!(
            text.contains("the maximum number of targets is being rolled out"),
            "{text}"
        );
        assert_eq!(deployments.get("second").await?.spec, before.spec);
        pods_have_sidecar(&second, true).await?;

        first.ready(1).await?;
        scenario.actor_gone(&first_actor, WAIT).await?;
        pods_have_sidecar(&first, false).await?;
        eventually("the second follows", WAIT, async || {
            second.release().await.map_err(NotYet::new)?;
            let left = scenario.actors().get_opt(&second_actor).await?;
            check(left.is_none(), format_args!("{left:?}"))
        })
        .await?;
        pods_have_sidecar(&second, false).await?;
        drop((controller, webhook));
        Ok(())
    })
    .await;
}
