//! An operator that watches only some namespaces.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::admission::{gets_sidecar, pod_of};
use crate::binding::{bound_actor, model, status_is};
use crate::{minimal_actor, own_cluster};

/// A failed list is retried with backoff.
const GRANTED: Duration = Duration::from_mins(2);

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
            json!({"controller": {"watchNamespaces": [served.namespace()]}, "rbac": {"clusterWide": true}}),
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

/// Binds an existing Deployment of one pod.
async fn bind(scenario: &Scenario) -> Result<String> {
    let deployments = scenario.api::<Deployment>();
    let target = model("model", 1)?;
    deployments.create(&PostParams::default(), &target).await?;
    let name = scenario.name("bound");
    scenario.apply(&bound_actor(&name, "model")).await?;
    Ok(name)
}

async fn is_injected(scenario: &Scenario, actor: &str) -> Result<()> {
    let what = "its pod is injected";
    status_is(scenario, actor, what, SOON, |status| {
        status["pods"]["matched"] == 1 && status["pods"]["injected"] == 1
    })
    .await?;
    Ok(())
}

/// FW-13, CFG-1
#[tokio::test]
async fn pods_are_injected_in_watched_namespaces_and_left_alone_in_others() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    let on = || Ok(cluster.clone());
    Scenario::run_on(on(), "watched", async |watched| {
        let served = json!({"controller": {"watchNamespaces": [watched.namespace()]}, "rbac": {"clusterWide": true}});
        let operator = Operator::install(&cluster, served).await?;
        let controller = operator.start("one").await?;
        let webhook = Webhook::start(&operator).await?;
        let file = "operator-one/volumes/config/watch-namespaces";
        let file = cluster.folder().join(file);

        Scenario::run_on(on(), "unwatched", async |unwatched| {
            let late = bind(unwatched).await?;
            let first = bind(watched).await?;
            is_injected(watched, &first).await?;
            let labels = json!({"app": "model", "pod-template-hash": "0"});
            let pod = pod_of("ReplicaSet", "model-0", &labels)?;
            gets_sidecar(watched, &pod).await?;
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let pods = unwatched.api::<k8s_openapi::api::core::v1::Pod>();
            let left = pods.create(&dry_run, &pod).await?;
            let marks = left.metadata.annotations.unwrap_or_default();
            assert!(
                !marks.keys().any(|key| key.starts_with("asya.sh/")),
                "{marks:?}"
            );
            let containers = left.spec.map(|spec| spec.containers.len());
            assert_eq!(containers, Some(1), "a namespace that is not served");

            std::fs::write(&file, unwatched.namespace()).expect("the mounted file is there");
            is_injected(unwatched, &late).await?;
            // CFG-12: its queue continues to start pods.
            gets_sidecar(watched, &pod).await?;

            std::fs::write(&file, "").expect("the mounted file is there");
            for (scenario, actor) in [(watched, &first), (unwatched, &late)] {
                scenario
                    .kubectl(&["delete", "asya", actor, "--timeout=60s"])
                    .await?;
            }
            Ok(())
        })
        .await;
        drop((controller, webhook));
        Ok(())
    })
    .await;
}

/// FW-12, with the permissions that the chart grants in each watched namespace.
#[tokio::test]
async fn namespace_without_its_rights_stops_no_actor_of_another_one() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    let on = || Ok(cluster.clone());
    Scenario::run_on(on(), "granted", async |granted| {
        Scenario::run_on(on(), "withheld", async |withheld| {
            let watched = [granted.namespace(), withheld.namespace()];
            let watched = json!({"controller": {"watchNamespaces": watched}});
            let operator = Operator::install(&cluster, watched).await?;
            let mut controller = operator.start("one").await?;
            let stranded = withheld.name("stranded");
            withheld.apply(&minimal_actor(&stranded)).await?;
            withheld.actor_status(&stranded, "Running", SOON).await?;

            let bindings = withheld.api::<RoleBinding>();
            let binding = bindings.get("asya-operator-actors").await?;
            bindings
                .delete("asya-operator-actors", &DeleteParams::default())
                .await?;
            controller.stop().await?;
            controller.restart().await?;
            let name = granted.name("served");
            granted.apply(&minimal_actor(&name)).await?;
            granted.actor_status(&name, "Running", SOON).await?;
            controller.is_ready().await?;
            let label = [("namespace", withheld.namespace())];
            let unsynced = "asya_operator_namespace_unsynced";
            let found = controller.metric(unsynced, &label).await?;
            assert!((found - 1.0).abs() < f64::EPSILON, "{found}");
            let log = controller.log();
            assert!(log.contains(withheld.namespace()), "{log}");

            let again = RoleBinding {
                metadata: ObjectMeta {
                    name: binding.metadata.name,
                    ..ObjectMeta::default()
                },
                ..binding
            };
            bindings.create(&PostParams::default(), &again).await?;
            let deployments = withheld.api::<Deployment>();
            deployments
                .delete(&stranded, &DeleteParams::default())
                .await?;
            eventually("its actor is reconciled again", GRANTED, async || {
                let found = deployments.get_opt(&stranded).await?;
                check(found.is_some(), "no Deployment")
            })
            .await?;
            drop(controller);
            Ok(())
        })
        .await;
        Ok(())
    })
    .await;
}
