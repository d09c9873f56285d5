//! How bindings end if the target or its pods did not take part in a regular rollout.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::MODE;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::owners::kaito::{WORKSPACE, workspace};
use asya_tests::owners::{RecordingClient, crds};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::binding::{bound_actor, condition, model, status_is};

const WAIT: Duration = Duration::from_mins(1);
/// While pods are to be replaced, the operator checks them at least every 2 s.
const LOOKED: Duration = Duration::from_secs(5);

/// BIND-43
#[tokio::test]
async fn actor_of_an_unbindable_target_is_deleted_at_once() {
    Scenario::run("ends-refused", async |scenario| {
        crds::install(scenario.cluster(), &[WORKSPACE]).await?;
        let mut tuned = workspace("phi", "phi-4");
        tuned["inference"] = Value::Null;
        tuned["tuning"] = json!({
            "method": "lora", "preset": {"name": "phi-4"},
            "input": {"urls": ["https://example.com/data"]}, "output": {"image": "example.com/tuned:1"},
        });
        let client = RecordingClient::new(scenario.client(), scenario.namespace(), "somebody");
        client.create(WORKSPACE, &tuned).await?;
        let name = scenario.name("tuned");
        let mut actor = bound_actor(&name, "phi");
        actor["spec"]["workloadRef"] =
            json!({"apiVersion": WORKSPACE.api_version(), "kind": "Workspace", "name": "phi"});
        scenario.apply(&actor).await?;
        let refused = |status: &Value| {
            condition(status, "TargetResolved") == ("False", "UnsupportedTarget")
                && condition(status, "TransportReady").0 == "True"
        };
        status_is(scenario, &name, "it is refused", WAIT, refused).await?;
        let delete = ["delete", "asya", &name, "--wait=false"];
        scenario.kubectl(&delete).await?;
        scenario.actor_gone(&name, WAIT).await
    })
    .await;
}

/// The pods that are not being deleted, with whether they have the sidecar.
async fn pods(scenario: &Scenario) -> Result<Vec<(String, bool)>, kube::Error> {
    let pods = scenario
        .api::<Pod>()
        .list(&ListParams::default().labels("app=web"))
        .await?;
    let stay = pods
        .items
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(stay
        .map(|pod| {
            let spec = pod.spec.as_ref();
            let mut all = spec.into_iter().flat_map(|it| &it.containers);
            let has = all.any(|it| it.name == "asya-sidecar");
            (pod.name_any(), has)
        })
        .collect())
}

/// Makes all waiting pods ready.
async fn become_ready(scenario: &Scenario) -> Result<()> {
    let unlabel = format!("{MODE}-");
    let label = ["label", "pods", "--selector=app=web", &unlabel];
    scenario.kubectl(&label).await.map(drop)
}

/// BIND-43, ROLL-4: no annotation was written, so none can be removed.
#[tokio::test]
async fn injected_pods_are_replaced_without_the_sidecar_when_unbound() {
    Scenario::run("ends-born", async |scenario| {
        let name = scenario.name("born");
        let mut actor = bound_actor(&name, "web");
        actor["spec"]["binding"] = json!({"rollout": "OnRestart"});
        scenario.apply(&actor).await?;
        status_is(scenario, &name, "it is in force", WAIT, |status| {
            status["boundSince"].is_string()
        })
        .await?;
        let mut held = serde_json::to_value(model("web", 2)?)?;
        held["spec"]["template"]["metadata"]["labels"][MODE] = json!("hold");
        let held: Deployment = serde_json::from_value(held)?;
        let deployments = scenario.api::<Deployment>();
        deployments.create(&PostParams::default(), &held).await?;
        eventually("both began with the sidecar", WAIT, async || {
            let found = pods(scenario).await?;
            for (bare, _) in found.iter().filter(|(_, has)| !has) {
                let params = DeleteParams::default();
                scenario.api::<Pod>().delete(bare, &params).await?;
            }
            let all = found.len() == 2 && found.iter().all(|(_, has)| *has);
            check(all, format_args!("{found:?}"))
        })
        .await?;
        become_ready(scenario).await?;
        status_is(scenario, &name, "both are ready", WAIT, |status| {
            status["pods"]["injected"] == 2 && status["readyReplicas"] == 2
        })
        .await?;

        let delete = ["delete", "asya", &name, "--wait=false"];
        scenario.kubectl(&delete).await?;
        let left = async || -> Result<usize, NotYet> {
            let found = pods(scenario).await?;
            let left = found.iter().filter(|(_, has)| *has).count();
            check(found.len() == 2 && left < 2, format_args!("{found:?}"))?;
            Ok(left)
        };
        let first = eventually("one is replaced", WAIT, &left).await?;
        assert_eq!(first, 1);
        let until = Instant::now() + LOOKED;
        eventually("the replacement was waited for", WAIT, async || {
            assert_eq!(left().await?, 1, "its replacement is not ready");
            check(Instant::now() > until, "not long enough")
        })
        .await?;
        become_ready(scenario).await?;
        eventually("the other is replaced", WAIT, async || {
            let left = left().await?;
            check(left == 0, left)
        })
        .await?;
        scenario.actor_gone(&name, WAIT).await
    })
    .await;
}
