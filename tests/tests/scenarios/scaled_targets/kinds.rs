//! Scalable kinds, each scaled from zero to many pods and back.

use asya_tests::Result;
use asya_tests::eventually::LATER;
use asya_tests::owners::inference_set::{INFERENCE_SET, InferenceSets, inference_set};
use asya_tests::owners::kaito::{Kaito, WORKSPACE};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::scaled_actor;
use crate::binding::{condition, model, status_is};
use crate::targets::systems::bind_as;

/// One message starts a pod, twelve start three, and none leaves none.
async fn follows_its_queue(scenario: &Scenario, (kind, target): (Kind, &str)) -> Result<()> {
    let name = scenario.name("bound");
    let mut actor = scaled_actor(&name, target);
    actor["spec"]["workloadRef"]["apiVersion"] = json!(kind.api_version());
    actor["spec"]["workloadRef"]["kind"] = json!(kind.kind);
    scenario.apply(&actor).await?;
    let (rabbitmq, queue) = (scenario.cluster().rabbitmq()?, format!("asya-{name}"));
    let napping = |status: &Value| {
        condition(status, "ScalingReady") == ("True", "ScaledObjectReady")
            && status["status"] == "Napping"
            && status["pods"]["matched"] == 0
    };
    let has = |pods: i64| {
        move |status: &Value| {
            status["desiredReplicas"] == pods && status["pods"]["injected"] == pods
        }
    };
    status_is(scenario, &name, "is scaled to zero", LATER, napping).await?;
    assert!(rabbitmq.publish("", &queue, "first").await?);
    status_is(scenario, &name, "one message, one pod", LATER, has(1)).await?;
    for number in 1..12 {
        assert!(rabbitmq.publish("", &queue, &number.to_string()).await?);
    }
    status_is(scenario, &name, "many messages, three pods", LATER, has(3)).await?;
    assert_eq!(rabbitmq.messages(&queue, 12, false).await?.len(), 12);
    status_is(scenario, &name, "is scaled to zero again", LATER, napping).await?;
    Ok(())
}

/// SO-1, RES-10
#[tokio::test]
async fn stateful_set_follows_its_queue_from_none_to_many_and_back() {
    Scenario::run("scaled-set", async |scenario| {
        let mut set = serde_json::to_value(model("set", 1)?)?;
        set["spec"]["serviceName"] = json!("set");
        let user = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        user.create(Kind::STATEFUL_SET, &set).await?;
        follows_its_queue(scenario, (Kind::STATEFUL_SET, "set")).await
    })
    .await;
}

/// SO-1, RES-14
#[tokio::test]
async fn inference_set_follows_its_queue_from_none_to_many_and_back() {
    Scenario::run("scaled-phis", async |scenario| {
        crds::install(scenario.cluster(), &[WORKSPACE, INFERENCE_SET]).await?;
        let user = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        let target = inference_set("phis", "phi-4", 1);
        user.create(INFERENCE_SET, &target).await?;
        let _workspaces = Owner::start(scenario, Kaito);
        let _sets = Owner::start(scenario, InferenceSets);
        follows_its_queue(scenario, (INFERENCE_SET, "phis")).await
    })
    .await;
}

/// RES-14, ROLL-2 (f), BIND-5: no object shows what its pods look like.
#[tokio::test]
async fn inference_set_at_zero_is_probed_with_a_restricted_pod() {
    Scenario::run("phis-at-zero", async |scenario| {
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        let label = ["label", "namespace", scenario.namespace(), restricted];
        scenario.kubectl(&label).await?;
        crds::install(scenario.cluster(), &[WORKSPACE]).await?;
        let target = inference_set("phis", "phi-4", 0);
        let made = (INFERENCE_SET, &target);
        let (_sets, name) = bind_as(scenario, InferenceSets, made, &json!({})).await?;
        status_is(scenario, &name, "it is ready", LATER, |status| {
            condition(status, "Injected") == ("True", "ScaledToZero")
                && condition(status, "Ready").0 == "True"
        })
        .await?;
        Ok(())
    })
    .await;
}
