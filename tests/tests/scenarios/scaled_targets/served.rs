//! A serving target is not scaled down before its pods are known to receive messages.

use std::pin::pin;
use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::owners::inference_set::{INFERENCE_SET, InferenceSets, inference_set};
use asya_tests::owners::kaito::{Kaito, WORKSPACE, workspace};
use asya_tests::owners::kserve::{INFERENCE_SERVICE, Kserve, deployment_of, inference_service};
use asya_tests::owners::llmisvc::{LLM_INFERENCE_SERVICE, LlmIsvc, llm_inference_service};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds, llmisvc};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::binding::{bound_actor, model, status_is};
use crate::scaling::of_keda;
use crate::targets::systems::bind_as;

/// Long enough to measure with an audit log that has a resolution of one second.
pub(super) const COOLDOWN: Duration = Duration::from_secs(20);
pub(super) const SCALED_TO_ZERO: Duration = Duration::from_mins(3);
/// KEDA and the operator would act several times within this time.
pub(super) const QUIET: Duration = Duration::from_secs(20);

pub(super) fn scaling(cooldown: Duration) -> Value {
    json!({
        "enabled": true, "minReplicas": 0, "maxReplicas": 3, "pollingInterval": 1,
        "cooldownPeriod": cooldown.as_secs(),
    })
}

/// The object that is scaled.
pub(super) type Scaled<'a> = (Kind, &'a str);

async fn asked(client: &RecordingClient, (kind, name): Scaled<'_>) -> Result<Option<i64>> {
    let live = client.get(kind, name).await?;
    Ok(live.and_then(|it| it["spec"]["replicas"].as_i64()))
}

/// Awaits `work`, and checks meanwhile that the target never requests fewer pods than before.
pub(super) async fn serves_during<T>(
    client: &RecordingClient,
    scaled: Scaled<'_>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let least = asked(client, scaled).await?;
    assert!(least > Some(0), "{scaled:?} serves: {least:?}");
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                let now = asked(client, scaled).await?;
                assert!(now.is_none() || now >= least, "{scaled:?}: {now:?} of {least:?}");
            }
        }
    }
}

/// When the first pod with this actor's sidecar became Ready.
async fn first_ready(scenario: &Scenario, actor: &str) -> Result<Option<Timestamp>> {
    let its = ListParams::default().labels(&format!("asya.sh/actor={actor}"));
    let pods = scenario.api::<Pod>().list(&its).await?;
    let injected = pods.into_iter().filter(|pod| {
        let annotations = pod.metadata.annotations.as_ref();
        annotations.is_some_and(|it| it.contains_key("asya.sh/injected-by"))
    });
    let ready = injected.filter_map(|pod| {
        let conditions = pod.status?.conditions?.into_iter();
        let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
        Some(ready.next()?.last_transition_time?.0)
    });
    Ok(ready.min())
}

/// SAFE-20, SAFE-22: first a Ready pod with the sidecar, then the `ScaledObject`, then the cooldown, then zero.
pub(super) async fn is_scaled_in_order(
    scenario: &Scenario,
    name: &str,
    scaled: Scaled<'_>,
) -> Result<()> {
    let client = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
    let scaled_objects = of_keda(scenario, "ScaledObject");
    let created = serves_during(&client, scaled, async {
        eventually(
            format_args!("{name} is scaled"),
            SCALED_TO_ZERO,
            async || {
                let found = scaled_objects.get_opt(name).await?;
                let created = found.and_then(|it| it.metadata.creation_timestamp);
                check(created.is_some(), "there is no ScaledObject")?;
                Ok(created.unwrap().0)
            },
        )
        .await
    })
    .await?;
    let ready = first_ready(scenario, name).await?;
    assert!(
        ready.is_some_and(|ready| ready <= created),
        "{scaled:?}: the first pod was ready at {ready:?}, scaled since {created}"
    );
    let napping = |status: &Value| status["status"] == "Napping";
    status_is(scenario, name, "is scaled to zero", SCALED_TO_ZERO, napping).await?;
    assert_eq!(asked(&client, scaled).await?, Some(0));
    let served = Timestamp::now().duration_since(created);
    assert!(
        served >= COOLDOWN.try_into().unwrap_or_default(),
        "0 after {served}"
    );
    Ok(())
}

/// SAFE-20, SAFE-22, SO-1
#[tokio::test]
async fn plain_workloads_serve_until_a_pod_with_the_sidecar_is_ready_and_the_cooldown_is_over() {
    Scenario::run("served-plain", async |scenario| {
        let user = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        for kind in [Kind::DEPLOYMENT, Kind::STATEFUL_SET] {
            let target = kind.plural;
            let mut object = serde_json::to_value(model(target, 2)?)?;
            object["spec"]["serviceName"] = match kind.kind {
                "StatefulSet" => json!(target),
                _ => Value::Null,
            };
            user.create(kind, &object).await?;
            let name = scenario.name(target);
            let mut actor = bound_actor(&name, target);
            actor["spec"]["workloadRef"]["kind"] = json!(kind.kind);
            actor["spec"]["scaling"] = scaling(COOLDOWN);
            scenario.apply(&actor).await?;
            is_scaled_in_order(scenario, &name, (kind, target)).await?;
            scenario.kubectl(&["delete", "asya", &name]).await?;
            scenario.actor_gone(&name, LATER).await?;
            scenario.kubectl(&["delete", kind.plural, target]).await?;
            scenario.kubectl(&["delete", "pods", "--all"]).await?;
        }
        Ok(())
    })
    .await;
}

/// SAFE-20, SAFE-22, RES-13
#[tokio::test]
async fn workspace_serves_until_its_pod_has_the_sidecar_and_the_cooldown_is_over() {
    Scenario::run("served-phi", async |scenario| {
        let target = workspace("phi", "phi-4");
        let spec = json!({"scaling": scaling(COOLDOWN)});
        let (_owner, name) = bind_as(scenario, Kaito, (WORKSPACE, &target), &spec).await?;
        is_scaled_in_order(scenario, &name, (Kind::STATEFUL_SET, "phi")).await
    })
    .await;
}

/// SAFE-20, SAFE-22, RES-14
#[tokio::test]
async fn inference_set_serves_until_a_pod_has_the_sidecar_and_the_cooldown_is_over() {
    Scenario::run("served-phis", async |scenario| {
        crds::install(scenario.cluster(), &[WORKSPACE]).await?;
        let _workspaces = Owner::start(scenario, Kaito);
        let target = inference_set("phis", "phi-4", 2);
        let spec = json!({"scaling": scaling(COOLDOWN)});
        let made = (INFERENCE_SET, &target);
        let (_sets, name) = bind_as(scenario, InferenceSets, made, &spec).await?;
        is_scaled_in_order(scenario, &name, (INFERENCE_SET, "phis")).await
    })
    .await;
}

/// SAFE-20, SAFE-22, SO-5, RES-15
#[tokio::test]
async fn inference_service_serves_until_a_pod_has_the_sidecar_and_the_cooldown_is_over() {
    Scenario::run("served-iris", async |scenario| {
        let target = inference_service("iris", &json!({}));
        let spec = json!({"scaling": scaling(COOLDOWN)});
        let made = (INFERENCE_SERVICE, &target);
        let (_owner, name) = bind_as(scenario, Kserve, made, &spec).await?;
        let workload = deployment_of("iris");
        is_scaled_in_order(scenario, &name, (Kind::DEPLOYMENT, &workload)).await
    })
    .await;
}

/// SAFE-20, SAFE-22, RES-17
#[tokio::test]
async fn llm_inference_service_serves_until_a_pod_has_the_sidecar_and_the_cooldown_is_over() {
    Scenario::run("served-qwen", async |scenario| {
        let target = llm_inference_service("qwen");
        let spec = json!({
            "scaling": scaling(COOLDOWN), "runtime": {"targetURL": "http://127.0.0.1:8000"},
        });
        let made = (LLM_INFERENCE_SERVICE, &target);
        let (_owner, name) = bind_as(scenario, LlmIsvc, made, &spec).await?;
        let workload = llmisvc::deployment_of("qwen");
        is_scaled_in_order(scenario, &name, (Kind::DEPLOYMENT, &workload)).await
    })
    .await;
}
