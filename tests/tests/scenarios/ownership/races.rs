//! Another writer acts just before the operator.

use asya_shared::names::MANAGED_BY;
use asya_shared::scaling::trigger_authentication_name;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::eventually::{NotYet, SOON, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::{condition_with_reason, foreign_deployment};
use crate::{api, minimal_actor, own_cluster};

/// An object that another writer creates first, the end of its request path, and the condition that must report it.
type Other = (Value, &'static str, &'static str);

fn others(actor: &str) -> Result<[Other; 3]> {
    let mut deployment = json!(foreign_deployment(actor)?);
    deployment["apiVersion"] = json!("apps/v1");
    deployment["kind"] = json!("Deployment");
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "asya-runtime"}, "data": {"theirs": "1"},
    });
    let authentication = json!({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": trigger_authentication_name(actor)},
        "spec": {"env": [{"parameter": "theirs", "name": "THEIRS"}]},
    });
    Ok([
        (config_map, "configmaps", "WorkloadReady"),
        (deployment, "deployments", "WorkloadReady"),
        (authentication, "triggerauthentications", "ScalingReady"),
    ])
}

/// A dedicated operator whose API requests a proxy can hold back.
async fn behind_a_proxy(cluster: &RunningCluster) -> Result<(CountingProxy, Instance)> {
    let proxy = CountingProxy::to_api_server(cluster).await?;
    let operator = Operator::install(cluster, json!({})).await?;
    let launch = Launch {
        server: Some(proxy.url()),
        ..Launch::default()
    };
    let instance = operator.launch("operator", launch).await?;
    instance.wait_ready().await?;
    Ok((proxy, instance))
}

/// SA-3
#[tokio::test]
async fn object_replaced_just_before_an_update_is_left_alone() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "replaced", async |scenario| {
        let (proxy, _operator) = behind_a_proxy(&cluster).await?;
        let name = scenario.name("changed");
        let mut actor = minimal_actor(&name);
        eventually("the CRD is served", SOON, async || {
            scenario.apply(&actor).await.map_err(NotYet::new)
        })
        .await?;
        scenario.actor_status(&name, "Running", SOON).await?;

        let path = format!("/namespaces/{}/deployments/{name}", scenario.namespace());
        let held = proxy.hold(&path);
        actor["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&actor).await?;
        let ours = tokio::time::timeout(SOON, held.arrived());
        let ours = ours.await.map_err(Error::other)??;
        let deployments = scenario.api::<Deployment>();
        let mut theirs = foreign_deployment(&name)?;
        let before = deployments.get(&name).await?;
        if let (Some(theirs), Some(before)) = (&mut theirs.spec, before.spec) {
            // Otherwise the API server would reject our update because of the immutable selector.
            theirs.template.metadata = before.template.metadata;
            theirs.selector = before.selector;
        }
        deployments.delete(&name, &DeleteParams::default()).await?;
        let new = PostParams::default();
        let made = deployments.create(&new, &theirs).await?;
        drop(ours);

        condition_with_reason(scenario, &name, "WorkloadReady", "NotOwned").await?;
        let found = deployments.get(&name).await?;
        assert_eq!(found.metadata.uid, made.metadata.uid);
        assert_eq!(found.spec, made.spec);
        let managers = found.metadata.managed_fields.unwrap_or_default();
        let mut managers = managers.into_iter().filter_map(|it| it.manager);
        assert!(!managers.any(|manager| manager.starts_with(MANAGED_BY)));
        Ok(())
    })
    .await;
}

/// SA-3
#[tokio::test]
async fn object_created_just_before_ours_is_left_alone() {
    let _turn = own_cluster().await;
    let options = Options {
        keda: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "races", async |scenario| {
        let (proxy, _operator) = behind_a_proxy(&cluster).await?;
        for number in 0..3 {
            let name = scenario.name(&format!("second-{number}"));
            let (other, resource, condition) = others(&name)?[number].clone();
            let taken = other["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("/namespaces/{}/{resource}/{taken}", scenario.namespace());
            let mut actor = minimal_actor(&name);
            actor["spec"]["scaling"] = json!({"enabled": true});
            let held = proxy.hold(&path);
            eventually("the CRD is served", SOON, async || {
                scenario.apply(&actor).await.map_err(NotYet::new)
            })
            .await?;
            let ours = tokio::time::timeout(SOON, held.arrived());
            let ours = ours.await.map_err(Error::other)??;
            let asked = proxy.reads().into_iter().find(|read| read.contains(&path));
            assert_eq!(asked, None, "no read: the response to the write says it");
            let objects = api(scenario, &other);
            let object = serde_json::from_value(other.clone())?;
            let made = objects.create(&PostParams::default(), &object).await?;
            drop(ours);

            condition_with_reason(scenario, &name, condition, "NotOwned").await?;
            let found = objects.get(taken).await?;
            assert_eq!(found.metadata.uid, made.metadata.uid);
            let managers = found.metadata.managed_fields.unwrap_or_default();
            let managers: Vec<_> = managers.into_iter().filter_map(|it| it.manager).collect();
            let ours = managers
                .iter()
                .find(|manager| manager.starts_with(MANAGED_BY));
            assert_eq!(ours, None, "{path}: {managers:?}");

            scenario
                .kubectl(&["delete", "asya", &name, "--timeout=60s"])
                .await?;
            let left = objects.get(taken).await?;
            assert_eq!(left.metadata.uid, made.metadata.uid);
            objects.delete(taken, &DeleteParams::default()).await?;
        }
        Ok(())
    })
    .await;
}
