//! Standalone actors, which own their workload.

use std::time::Duration;

use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::minimal_actor;
use crate::steady::{late_actors, late_pods};

/// API-4, API-9, FIN-1, FIN-2, QUE-1, QUE-2, RMQ-3, RMQ-4, RUN-2, POD-1
#[tokio::test]
async fn standalone_actor_reaches_running_and_leaves_nothing_behind() {
    Scenario::run("standalone", async |scenario| {
        let name = scenario.name("echo");
        let queue = format!("asya-{name}");
        let rabbitmq = scenario.cluster().rabbitmq()?;
        let manifest = minimal_actor(&name);
        scenario.apply(&manifest).await?;
        let actor = scenario.actor_status(&name, "Running", SOON).await?;
        assert_eq!(
            actor.data["spec"], manifest["spec"],
            "the spec is no longer what was applied"
        );
        assert_eq!(actor.metadata.generation, Some(1));
        assert_eq!(
            actor.metadata.finalizers,
            Some(vec!["asya.sh/finalizer".to_owned()])
        );
        scenario
            .kubectl(&[
                "wait",
                &format!("asya/{name}"),
                "--for=condition=Ready",
                "--timeout=10s",
            ])
            .await?;

        let deployment = scenario.api::<Deployment>().get(&name).await?;
        let pod = deployment.spec.unwrap().template.spec.unwrap();
        let containers: Vec<_> = pod
            .containers
            .iter()
            .map(|container| container.name.as_str())
            .collect();
        assert_eq!(containers, ["asya-runtime", "asya-sidecar"]);
        scenario.api::<ConfigMap>().get("asya-runtime").await?;

        let found = rabbitmq.queue(&queue).await?.expect("the queue exists");
        assert!(found.durable && !found.auto_delete);
        let keys: Vec<_> = rabbitmq
            .queue_bindings(&queue)
            .await?
            .into_iter()
            .filter(|binding| binding.source == "asya")
            .map(|binding| binding.routing_key)
            .collect();
        assert_eq!(keys, [queue.as_str(), name.as_str()]);
        assert!(
            rabbitmq.publish("asya", &name, "hello").await?,
            "a sidecar's message would be lost"
        );

        scenario
            .actors()
            .delete(&name, &DeleteParams::default())
            .await?;
        scenario.actor_gone(&name, SOON).await?;
        assert_eq!(rabbitmq.queue(&queue).await?, None, "the queue stayed");
        eventually(
            "the workload, its pods and the runtime are gone",
            SOON,
            async || {
                let deployments = scenario
                    .api::<Deployment>()
                    .list(&ListParams::default())
                    .await?
                    .items
                    .len();
                let pods = scenario
                    .api::<Pod>()
                    .list(&ListParams::default())
                    .await?
                    .items
                    .len();
                {
                    let runtime = scenario
                        .api::<ConfigMap>()
                        .get_opt("asya-runtime")
                        .await?
                        .is_some();
                    check(
                        (deployments, pods, runtime) == (0, 0, false),
                        format_args!("{deployments} Deployments, {pods} pods, runtime: {runtime}"),
                    )
                }
            },
        )
        .await
    })
    .await;
}

/// API-6
#[tokio::test]
async fn undecodable_actor_affects_no_other() {
    Scenario::run("undecodable", async |scenario| {
        let (good, bad) = (scenario.name("good"), scenario.name("bad"));
        let mut broken = minimal_actor(&bad);
        broken["spec"]["workload"]["template"]["spec"]["containers"] = json!({});
        scenario.apply(&broken).await?;
        scenario.apply(&minimal_actor(&good)).await?;
        scenario.actor_status(&good, "Running", SOON).await?;
        eventually("the broken one is reported", SOON, async || {
            let actor = scenario.actors().get(&bad).await?;
            let conditions = actor.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let told = conditions
                .iter()
                .find(|condition| condition["type"] == "WorkloadReady");
            let told = told.ok_or_else(|| NotYet::new(format!("{}", actor.data["status"])))?;
            check(told["status"] == "False", told)
        })
        .await
    })
    .await;
}

/// WRK-5
#[tokio::test]
async fn actor_at_rest_is_not_written() {
    Scenario::run("at-rest", async |scenario| {
        let name = scenario.name("still");
        let audit = scenario.cluster().audit();
        let user = scenario.cluster().operator_user()?;
        let start = audit.mark().await?;
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        // Two quiet seconds mean that the last status has been written.
        let mut mark = audit.mark().await?;
        eventually("the operator has come to rest", SOON, async || {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let last = std::mem::replace(&mut mark, audit.mark().await.map_err(NotYet::new)?);
            let writes = audit.writes_since(last, &user).await.map_err(NotYet::new)?;
            let ours = writes
                .into_iter()
                .filter(|write| write.namespace == scenario.namespace())
                .count();
            check(ours == 0, format_args!("{ours} writes"))
        })
        .await?;
        let mut first = audit.writes_since(start, &user).await?;
        // The ConfigMap is written once per namespace.
        first.retain(|write| {
            write.namespace == scenario.namespace() && write.resource != "configmaps"
        });
        let late =
            late_pods(scenario.cluster(), scenario).await? + late_actors(scenario, &first).await?;
        assert!(
            first.len() <= 5 + late,
            "a new actor took {} writes: {first:#?}",
            first.len()
        );
        let rest = audit.mark().await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut writes = audit.writes_since(rest, &user).await?;
        writes.retain(|write| write.namespace == scenario.namespace());
        assert_eq!(writes, []);
        Ok(())
    })
    .await;
}
