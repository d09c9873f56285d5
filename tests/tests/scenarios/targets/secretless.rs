//! A target in a namespace without the broker's Secret, which the operator reads in its own namespace.

use std::collections::BTreeSet;

use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::operator::RABBITMQ_SECRET;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model, status_is};

/// SAFE-42: pods with the sidecar could not start, so the target keeps its own until the Secret exists.
#[tokio::test]
async fn target_keeps_its_pods_while_its_namespace_lacks_the_brokers_secret() {
    Scenario::run("secretless", async |scenario| {
        let secrets = scenario.api::<Secret>();
        let mut secret = secrets.get(RABBITMQ_SECRET).await?;
        secrets
            .delete(RABBITMQ_SECRET, &DeleteParams::default())
            .await?;
        let deployments = scenario.api::<Deployment>();
        deployments
            .create(&PostParams::default(), &model("web", 2)?)
            .await?;
        eventually("the model is ready", LATER, async || {
            let status = deployments.get("web").await?.status.unwrap_or_default();
            check(status.ready_replicas == Some(2), format_args!("{status:?}"))
        })
        .await?;
        let uids = async || {
            let pods = scenario.api::<Pod>().list(&ListParams::default()).await?;
            let uids = pods.items.into_iter().filter_map(|pod| pod.metadata.uid);
            Ok::<_, kube::Error>(uids.collect::<BTreeSet<_>>())
        };
        let before = uids().await?;
        let name = scenario.name("secretless");
        scenario.apply(&bound_actor(&name, "web")).await?;
        let waits =
            |status: &Value| condition(status, "WorkloadReady") == ("False", "CredentialsMissing");
        let status = status_is(scenario, &name, "it waits for the Secret", LATER, waits).await?;
        assert_eq!(condition(&status, "TransportReady").0, "True", "{status}");
        assert_eq!(status["boundSince"], Value::Null);
        assert_eq!(uids().await?, before);

        secret.metadata.resource_version = None;
        secret.metadata.uid = None;
        secrets.create(&PostParams::default(), &secret).await?;
        // A new Secret triggers no reconcile, but any change to the actor does.
        let touched = json!({"spec": {"timeout": {"progress": 601}}});
        let params = PatchParams::default();
        scenario
            .actors()
            .patch(&name, &params, &Patch::Merge(&touched))
            .await?;
        let injected =
            |status: &Value| condition(status, "Injected") == ("True", "AllPodsInjected");
        status_is(
            scenario,
            &name,
            "its pods have the sidecar",
            LATER,
            injected,
        )
        .await?;
        Ok(())
    })
    .await;
}
