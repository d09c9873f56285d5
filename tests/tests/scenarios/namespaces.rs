//! An operator that serves some namespaces.

use std::time::Duration;

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::json;

use crate::{minimal_actor, own_cluster};

const SOON: Duration = Duration::from_secs(30);

/// FW-13, RUN-2, WRK-4
#[tokio::test]
async fn watched_namespaces_change_without_a_restart() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    let on = || Ok(cluster.clone());
    Scenario::run_on(on(), "served", async |served| {
        let file = cluster
            .folder()
            .join("operator-one/volumes/config/watch-namespaces");
        let operator = Operator::install(
            &cluster,
            json!({"controller": {"watchNamespaces": [served.namespace()]}}),
        )
        .await?;
        let instance = operator.start("one").await?;
        let name = served.name("first");
        served.apply(&minimal_actor(&name)).await?;
        served.actor_status(&name, "Running", SOON).await?;
        let deployments = served.api::<Deployment>();
        let made = deployments.get(&name).await?.metadata.uid;
        deployments.delete(&name, &DeleteParams::default()).await?;
        eventually("a lost Deployment comes back", SOON, async || {
            let now = deployments
                .get_opt(&name)
                .await?
                .and_then(|found| found.metadata.uid);
            check(now.is_some() && now != made, format_args!("{now:?}"))
        })
        .await?;
        served
            .kubectl(&["delete", "configmap", "asya-runtime"])
            .await?;
        eventually("a lost script comes back", SOON, async || {
            let found = served
                .api::<k8s_openapi::api::core::v1::ConfigMap>()
                .get_opt("asya-runtime")
                .await?;
            check(found.is_some(), "no ConfigMap")
        })
        .await?;

        Scenario::run_on(on(), "other", async |other| {
            let late = other.name("late");
            other.apply(&minimal_actor(&late)).await?;
            std::fs::write(&file, other.namespace()).expect("the mounted file is there");
            other.actor_status(&late, "Running", SOON).await?;
            served.kubectl(&["delete", "deployment", &name]).await?;
            other.kubectl(&["delete", "deployment", &late]).await?;
            eventually(
                "the Deployment of the served namespace comes back",
                SOON,
                async || {
                    let found = other.api::<Deployment>().get_opt(&late).await?;
                    check(found.is_some(), "no Deployment")
                },
            )
            .await?;
            let left = deployments.get_opt(&name).await?;
            assert!(
                left.is_none(),
                "a namespace that is no longer served is left as it is"
            );
            other
                .kubectl(&["delete", "asya", &late, "--timeout=60s"])
                .await?;
            Ok(())
        })
        .await;
        std::fs::write(&file, "").expect("the mounted file is there");
        served
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        drop(instance);
        Ok(())
    })
    .await;
}
