//! No replica of the webhook responds: what keeps working, and which bindings fail closed.

use std::time::{Duration, Instant};

use asya_tests::Result;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{INJECTOR, Stage, WAIT, containers, control, gets_sidecar, pod_of, rotation};
use crate::binding::{bound_actor, model, status_is};
use crate::{minimal_actor, own_cluster};

/// CFG-8
const VERIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// AVL-4
const BACK: Duration = Duration::from_secs(10);
/// A rotation need not wait for other API servers.
const FLAGS: [&str; 1] = ["--webhook-ca-spread=2s"];

/// AVL-4, CFG-8, BIND-7
#[tokio::test]
async fn outage_of_the_webhook_stops_pods_of_required_bindings_and_nothing_else() {
    let _turn = own_cluster().await;
    let mut stage = Stage::set(&FLAGS).await.unwrap();
    Scenario::run_on(Ok(stage.cluster.clone()), "outage", async |scenario| {
        let (may, must) = (scenario.name("may"), scenario.name("must"));
        for (name, target) in [(&may, "open"), (&must, "closed")] {
            let mut actor = bound_actor(name, target);
            actor["spec"]["binding"] = json!({"rollout": "OnRestart", "required": name == &must});
            scenario.apply(&actor).await?;
            let deployment = model(target, 0)?;
            scenario
                .api()
                .create(&PostParams::default(), &deployment)
                .await?;
        }
        fails_closed_once_verified(scenario, &must).await?;

        stage.webhook.kill().await?;
        only_required_pods_are_refused(scenario).await?;
        scale(scenario, "open", 2).await?;
        status_is(
            scenario,
            &may,
            "its bare pods are counted",
            WAIT,
            |status| missed(status) == json!([2, "WebhookUnavailable"]),
        )
        .await?;

        stage.webhook.fill().await?;
        let back = Instant::now();
        for target in ["open", "closed"] {
            gets_sidecar(scenario, &pod(target)?).await?;
        }
        let back = back.elapsed();
        eprintln!("pods are injected {back:?} after the replicas are ready again");
        assert!(back <= BACK, "{back:?}");
        scale(scenario, "open", 3).await?;
        let status = status_is(scenario, &may, "the next pod is injected", WAIT, |status| {
            status["pods"]["injected"] == 1
        })
        .await?;
        assert_eq!(missed(&status), json!([2, "WebhookUnavailable"]));
        proofs_are_repeated(&mut stage, scenario).await
    })
    .await;
}

fn pod(target: &str) -> Result<Pod> {
    let labels = json!({"app": target, "pod-template-hash": "0"});
    pod_of("ReplicaSet", &format!("{target}-0"), &labels)
}

async fn scale(scenario: &Scenario, target: &str, replicas: i32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let api = scenario.api::<Deployment>();
    api.patch(target, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn missed(status: &Value) -> Value {
    let reason = &status["pods"]["reasons"][0];
    json!([reason["count"], reason["reason"]])
}

/// The failure policy of a required binding's entry; there is only one.
async fn policy(scenario: &Scenario) -> Result<Option<String>, kube::Error> {
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(scenario.client());
    let entries = injectors.get(INJECTOR).await?.webhooks;
    let mut entries = entries.into_iter().flatten();
    let required = entries.find(|it| it.name.contains(".required."));
    Ok(required.and_then(|it| it.failure_policy))
}

async fn fails_closed_once_verified(scenario: &Scenario, actor: &str) -> Result<()> {
    status_is(scenario, actor, "it is in force", WAIT, |status| {
        status["boundSince"].is_string()
    })
    .await?;
    let bound = Instant::now();
    eventually("its entry fails closed", VERIFY_TIMEOUT, async || {
        let policy = policy(scenario).await?;
        check(
            policy.as_deref() == Some("Fail"),
            format_args!("{policy:?}"),
        )
    })
    .await?;
    eprintln!(
        "required entry: Fail {:?} after boundSince",
        bound.elapsed()
    );
    Ok(())
}

async fn only_required_pods_are_refused(scenario: &Scenario) -> Result<()> {
    let params = PostParams::default();
    for namespace in [scenario.namespace(), "kube-system", "asya-system"] {
        let unbound = pod_of("ReplicaSet", "unbound-0", &json!({"app": "unbound"}))?;
        let pods: Api<Pod> = Api::namespaced(scenario.client(), namespace);
        eventually("the namespace has its ServiceAccount", WAIT, async || {
            pods.create(&params, &unbound).await?;
            Ok(())
        })
        .await?;
    }
    // Violates a rule that only the webhook enforces, so it is admitted now.
    let mut actor = minimal_actor(&scenario.name("bad"));
    actor["spec"]["workload"]["template"]["spec"]["containers"][0]["command"] = json!(["sh"]);
    scenario.apply(&actor).await?;

    let pods = scenario.api::<Pod>();
    let refused = pods.create(&params, &pod("closed")?).await;
    let told = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(told.contains(".required.inject.asya.sh"), "{told}");
    let made = pods.create(&params, &pod("open")?).await?;
    assert_eq!(containers(&made), ["model"]);
    Ok(())
}

/// The probe is repeated after a restart, a new CA and a failure.
async fn proofs_are_repeated(stage: &mut Stage, scenario: &Scenario) -> Result<()> {
    let audit = stage.cluster.audit();
    let user = stage.operator.user();
    let tried = async |mark, by: &str| -> Result<usize, NotYet> {
        let mut writes = audit
            .requests_since(mark, &user)
            .await
            .map_err(NotYet::new)?;
        writes.retain(|it| it.resource == "pods" && it.verb == "create" && it.code == 201);
        check(!writes.is_empty(), by)?;
        Ok(writes.len())
    };
    let mark = audit.mark().await?;
    rotation::of(&stage.operator).await?;
    let said = "not tried under the new CA";
    eventually("verified again", WAIT, async || tried(mark, said).await).await?;

    let mark = audit.mark().await?;
    stage.controller.kill().await;
    stage.controller = control(&stage.operator, "next", &FLAGS).await?;
    let said = "not tried by the next leader";
    eventually("verified again", WAIT, async || tried(mark, said).await).await?;
    let closed = policy(scenario).await?;
    assert_eq!(closed.as_deref(), Some("Fail"), "a restart keeps it");

    stage.webhook.kill().await?;
    stage.controller.kill().await;
    stage.controller = control(&stage.operator, "last", &FLAGS).await?;
    let minute = Duration::from_mins(1);
    scenario
        .event_with("InjectionNotProved", &["still fails closed"], minute)
        .await?;
    let unproved = stage
        .controller
        .metric("asya_operator_unproved_bindings", &[])
        .await?;
    assert!((unproved - 1.0).abs() < 0.1, "{unproved}");
    let closed = policy(scenario).await?;
    assert_eq!(closed.as_deref(), Some("Fail"), "nothing changes");
    Ok(())
}
