//! Pods that ran before a binding, and what remains afterwards.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::audit::Mark;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model, status_is};

const PODS: usize = 5;
/// All pods are replaced one by one.
const ROLLED: Duration = Duration::from_mins(2);
/// Time limit for status updates (BIND-7).
const REPORTED_WITHIN: Duration = Duration::from_secs(2);

/// The container names of each of the model's pods, except those being deleted.
pub(super) async fn containers(scenario: &Scenario, app: &str) -> Result<Vec<Vec<String>>> {
    let selector = ListParams::default().labels(&format!("app={app}"));
    let pods = scenario.api::<Pod>().list(&selector).await?;
    let stays = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let specs = stays.filter_map(|pod| pod.spec);
    Ok(specs
        .map(|spec| spec.containers.into_iter().map(|it| it.name).collect())
        .collect())
}

async fn pods_have(scenario: &Scenario, app: &str, names: &[&str]) -> Result<()> {
    eventually(
        format_args!("each pod of {app} has {names:?}"),
        ROLLED,
        async || {
            let found = containers(scenario, app).await.map_err(NotYet::new)?;
            check(
                found.len() == PODS && found.iter().all(|it| it == names),
                format_args!("{found:?}"),
            )
        },
    )
    .await
}

/// The fields whose change a user would notice.
fn shown(deployment: &Deployment) -> Value {
    let spec = serde_json::to_value(&deployment.spec).unwrap();
    let metadata = &deployment.metadata;
    let annotations = metadata.annotations.iter().flatten();
    let ours: Vec<_> = annotations
        .filter(|(key, _)| key.contains("asya.sh"))
        .collect();
    json!([spec, metadata.labels, metadata.owner_references, ours])
}

/// The annotation is in the pod template; the only other write records who binds the target (BIND-47).
async fn one_annotation_was_written(
    scenario: &Scenario,
    (actor, after): (&str, &Deployment),
    mark: Mark,
) -> Result<()> {
    let mut spec = serde_json::to_value(&after.spec)?;
    let annotations = spec["template"]["metadata"]["annotations"].as_object_mut();
    let ours = annotations.and_then(|all| all.remove("asya.sh/roll"));
    assert!(ours.is_some(), "{spec}");
    let writes = scenario
        .cluster()
        .audit()
        .writes_in(mark, scenario.namespace())
        .await?;
    let of_us = writes
        .iter()
        .filter(|write| write.resource == "deployments" && write.user.ends_with(":asya-operator"));
    assert_eq!(of_us.count(), 2, "it, and who binds");
    let annotations = after.metadata.annotations.as_ref();
    let told = annotations.and_then(|all| all.get("asya.sh/managed-by"));
    assert_eq!(told.map(String::as_str), Some(actor));
    Ok(())
}

/// Deletes a pod, which is then replaced.
async fn replace_one(scenario: &Scenario) -> Result<()> {
    let selector = ListParams::default().labels("app=web");
    let pods = scenario.api::<Pod>();
    let one = pods.list(&selector).await?.items.remove(0);
    let one = one.metadata.name.unwrap_or_default();
    pods.delete(&one, &DeleteParams::default()).await?;
    eventually("its replacement is there", ROLLED, async || {
        let all = pods.list(&selector).await?;
        let gone = !all
            .iter()
            .any(|pod| pod.metadata.name.as_ref() == Some(&one));
        check(gone && all.items.len() == PODS, all.items.len())
    })
    .await
}

/// ROLL-1, ROLL-3, BIND-7, BIND-43, BIND-47
#[tokio::test]
async fn running_deployment_is_rolled_once_and_restored() {
    Scenario::run("rolled", async |scenario| {
        let (name, deployments) = (scenario.name("rolled"), scenario.api::<Deployment>());
        let replicas = i32::try_from(PODS).unwrap();
        deployments
            .create(&PostParams::default(), &model("web", replicas)?)
            .await?;
        pods_have(scenario, "web", &["model"]).await?;
        let before = deployments.get("web").await?;
        let mark = scenario.cluster().audit().mark().await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        let injected = |status: &Value| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["pods"]["injected"] == PODS
                && status["status"] == "Running"
                && status["rollout"].is_null()
        };
        status_is(
            scenario,
            &name,
            "all pods have the sidecar",
            ROLLED,
            injected,
        )
        .await?;
        pods_have(scenario, "web", &["model", "asya-runtime", "asya-sidecar"]).await?;
        let after = deployments.get("web").await?;
        assert_eq!(
            after.metadata.generation,
            before.metadata.generation.map(|it| it + 2),
            "rolled once, and annotations of a Deployment count, too"
        );
        one_annotation_was_written(scenario, (&name, &after), mark).await?;

        let told = scenario.timed(async || {
            replace_one(scenario).await?;
            status_is(
                scenario,
                &name,
                "that is reported",
                REPORTED_WITHIN,
                injected,
            )
            .await
        });
        told.await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, ROLLED).await?;
        let left = deployments.get("web").await?;
        assert_eq!(left.metadata.uid, before.metadata.uid);
        assert_eq!(shown(&left), shown(&before), "nothing of ours is left");
        assert_eq!(
            containers(scenario, "web").await?,
            vec![vec!["model".to_owned()]; PODS]
        );
        let queue = format!("asya-{name}");
        let queue = scenario.cluster().rabbitmq()?.queue(&queue).await?;
        assert!(queue.is_none());
        Ok(())
    })
    .await;
}

/// BIND-43, BIND-47
#[tokio::test]
async fn foreground_deletion_of_an_actor_keeps_the_users_objects() {
    Scenario::run("foreground", async |scenario| {
        let (name, deployments) = (scenario.name("foreground"), scenario.api::<Deployment>());
        deployments
            .create(&PostParams::default(), &model("web", 1)?)
            .await?;
        let before = deployments.get("web").await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        status_is(
            scenario,
            &name,
            "its pod has the sidecar",
            ROLLED,
            |status| condition(status, "Injected") == ("True", "AllPodsInjected"),
        )
        .await?;
        scenario
            .kubectl(&[
                "delete",
                "asya",
                &name,
                "--cascade=foreground",
                "--wait=false",
            ])
            .await?;
        scenario.actor_gone(&name, ROLLED).await?;
        let left = deployments.get("web").await?;
        assert_eq!(left.metadata.uid, before.metadata.uid);
        assert_eq!(left.metadata.deletion_timestamp, None);
        assert_eq!(shown(&left), shown(&before));
        Ok(())
    })
    .await;
}
