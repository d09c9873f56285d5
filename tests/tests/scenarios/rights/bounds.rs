//! What RBAC or the admission guard denies to the operator's account.

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use serde_json::json;

use crate::binding::{bound_actor, model, status_is};
use crate::{minimal_actor, own_cluster};

const CONTROLLER: &str = "system:serviceaccount:asya-system:asya-operator";

/// Runs kubectl with the controller's permissions; returns its output or the error.
async fn as_controller(scenario: &Scenario, args: &[&str]) -> Result<String> {
    let user = format!("--as={CONTROLLER}");
    let answer = scenario.kubectl(&[args, &[&user]].concat()).await;
    Ok(answer.unwrap_or_else(|refusal| refusal.to_string()))
}

/// SEC-13
#[tokio::test]
async fn controller_cannot_write_to_system_namespaces_or_create_real_pods() {
    Scenario::run("guard", async |scenario| {
        let pod = ["run", "probe", "--image=probe"];
        eventually("a real pod is refused", AFTER_START, async || {
            let answer = as_controller(scenario, &pod).await.map_err(NotYet::new)?;
            check(answer.contains("only as dry runs"), answer)
        })
        .await?;
        let dry_run = [&pod[..], &["--dry-run=server"]].concat();
        let answer = as_controller(scenario, &dry_run).await?;
        assert!(answer.contains("created"), "{answer}");

        let deployment = ["create", "deployment", "guarded", "--image=guarded"];
        let answer = as_controller(scenario, &deployment).await?;
        assert!(answer.contains("created"), "{answer}");
        let system = [&deployment[..], &["--namespace=kube-system"]].concat();
        let answer = as_controller(scenario, &system).await?;
        assert!(answer.contains("system namespaces"), "{answer}");
        Ok(())
    })
    .await;
}

/// SEC-12
#[tokio::test]
async fn roles_in_the_watched_namespaces_are_enough() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "narrow", async |scenario| {
        let narrow = json!({"controller": {"watchNamespaces": [scenario.namespace()]}});
        let operator = Operator::install(&cluster, narrow).await?;
        let controller = operator.start("one").await?;
        let webhook = Webhook::start(&operator).await?;

        let elsewhere = [
            "auth",
            "can-i",
            "patch",
            "deployments",
            "--namespace=default",
        ];
        assert!(as_controller(scenario, &elsewhere).await?.contains("no"));

        let own = scenario.name("own");
        scenario.apply(&minimal_actor(&own)).await?;
        scenario.actor_status(&own, "Running", AFTER_START).await?;
        let deployments = scenario.api::<Deployment>();
        deployments
            .create(&PostParams::default(), &model("model", 2)?)
            .await?;
        let bound = scenario.name("bound");
        scenario.apply(&bound_actor(&bound, "model")).await?;
        status_is(
            scenario,
            &bound,
            "its pods are injected",
            AFTER_START,
            |status| status["pods"]["injected"] == 2 && status["pods"]["matched"] == 2,
        )
        .await?;
        for actor in [&own, &bound] {
            scenario
                .kubectl(&["delete", "asya", actor, "--timeout=60s"])
                .await?;
        }
        let log = controller.log();
        assert!(!log.contains("orbidden"), "a right is missing:\n{log}");
        drop((controller, webhook));
        Ok(())
    })
    .await;
}
