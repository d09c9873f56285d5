//! Paused actors.

use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::operator::OPERATOR_AGENT;
use asya_tests::rabbitmq::OPERATOR;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::json;

use crate::minimal_actor;
use crate::scaling::condition;

async fn annotate(scenario: &Scenario, actor: &str, annotation: &str) -> Result<()> {
    let kubectl = ["annotate", "--overwrite", "asya", actor, annotation];
    scenario.kubectl(&kubectl).await.map(drop)
}

/// Waits until a reconcile of this generation of a paused actor has reported this readiness.
async fn seen_paused(scenario: &Scenario, actor: &str, generation: i64, ready: &str) -> Result<()> {
    let what = format!("{actor} is paused and Ready is {ready}");
    eventually(what, SOON, async || {
        let found = scenario.actors().get(actor).await?;
        let (status, reason, _) = condition(&found, "Ready");
        check(
            (&*status, &*reason) == (ready, "Paused")
                && found.data["status"]["observedGeneration"] == generation,
            &found.data["status"],
        )
    })
    .await
}

/// API-3, FW-21, FIN-2
#[tokio::test]
async fn paused_actor_is_left_alone_and_can_be_deleted() {
    Scenario::run("paused", async |scenario| {
        let name = scenario.name("halted");
        let queue = format!("asya-{name}");
        let (deployments, rabbitmq) =
            (scenario.api::<Deployment>(), scenario.cluster().rabbitmq()?);
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        annotate(scenario, &name, "asya.sh/paused=true").await?;
        // A paused actor that works is still reported as Ready.
        seen_paused(scenario, &name, 1, "True").await?;

        let (audit, log) = (scenario.cluster().audit(), rabbitmq.access_log());
        let user = scenario.cluster().operator_user()?;
        let (mark, calls) = (audit.mark().await?, log.mark()?);
        deployments.delete(&name, &DeleteParams::default()).await?;
        rabbitmq.delete_queue(&queue).await?;
        let mut changed = minimal_actor(&name);
        changed["metadata"]["annotations"] = json!({"asya.sh/paused": "true"});
        changed["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&changed).await?;
        seen_paused(scenario, &name, 2, "False").await?;
        let mut writes = audit.writes_since(mark, &user).await?;
        writes.retain(|write| {
            write.namespace == scenario.namespace() && write.subresource != "status"
        });
        assert_eq!(writes, []);
        let mut calls = log.calls_since(calls, OPERATOR)?;
        // Ignore reads: messages are still counted while the actor is paused.
        calls.retain(|call| {
            call.agent.starts_with(OPERATOR_AGENT)
                && call.path.contains(&queue)
                && call.method != "GET"
        });
        assert_eq!(calls, []);

        annotate(scenario, &name, "asya.sh/paused=false").await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let made = deployments.get(&name).await?;
        assert_eq!(made.spec.and_then(|spec| spec.replicas), Some(2));
        let found = rabbitmq.queue(&queue).await?;
        assert!(found.is_some(), "the health pass brings it back, or a pass");
        annotate(scenario, &name, "asya.sh/reconcile=Paused").await?;
        seen_paused(scenario, &name, 2, "True").await?;
        scenario.kubectl(&["delete", "asya", &name]).await?;
        scenario.actor_gone(&name, SOON).await?;
        let left = deployments.get_opt(&name).await?;
        assert!(left.is_none(), "the Deployment outlived its actor");
        assert_eq!(rabbitmq.queue(&queue).await?, None);
        Ok(())
    })
    .await;
}
