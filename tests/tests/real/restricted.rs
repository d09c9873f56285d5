//! Namespaces that enforce the `restricted` Pod Security Standard.

use asya_tests::Result;
use asya_tests::operator::merge;
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::binding::{bound, model};
use crate::{Broker, SOON, actor, actor_without_pods, message, run};

/// An arbitrary user for images that set none, and one from the range that `OpenShift` assigns.
const USERS: [i64; 2] = [65532, 1_000_680_000];

/// What the standard requires of pods.
fn pod_security(user: i64) -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": user, "runAsGroup": user, "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// What the standard requires of containers, and a read-only root file system.
fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    })
}

fn restrict(pod: &mut Value, user: i64) {
    pod["securityContext"] = pod_security(user);
    pod["containers"][0]["securityContext"] = container_security();
}

async fn enforce(scenario: &Scenario) -> Result<()> {
    let label = "pod-security.kubernetes.io/enforce=restricted";
    let namespace = scenario.namespace();
    scenario
        .kubectl(&["label", "namespace", namespace, label])
        .await
        .map(drop)
}

/// POD-1
#[tokio::test]
async fn actor_runs_in_a_restricted_namespace() {
    Scenario::run("restricted", async |scenario| {
        enforce(scenario).await?;
        for user in USERS {
            let (name, next) = (
                scenario.name(&format!("u{user}")),
                scenario.name(&format!("n{user}")),
            );
            let mut worker = actor(&name, Broker::RabbitMq, "handlers.shout");
            let mut next_actor = actor_without_pods(&next, Broker::RabbitMq);
            for actor in [&mut worker, &mut next_actor] {
                restrict(&mut actor["spec"]["workload"]["template"]["spec"], user);
                actor["spec"]["sidecar"]["securityContext"] = container_security();
            }
            run(scenario, &[worker, next_actor]).await?;
            let cluster = scenario.cluster();
            let sent = message("1", &name, &next, &json!({"text": "quiet"}));
            Broker::RabbitMq.send(cluster, &name, &[sent]).await?;
            let results = Broker::RabbitMq.take(cluster, &next, 1, SOON).await?;
            assert_eq!(results[0]["payload"]["text"], "QUIET");
        }
        Ok(())
    })
    .await;
}

/// BIND-26
#[tokio::test]
async fn binding_runs_in_a_restricted_namespace() {
    Scenario::run("restricted-binding", async |scenario| {
        enforce(scenario).await?;
        for user in USERS {
            let target = format!("model{user}");
            let (name, next) = (
                scenario.name(&format!("u{user}")),
                scenario.name(&format!("n{user}")),
            );
            let mut deployment = model(&target, 8000);
            restrict(&mut deployment["spec"]["template"]["spec"], user);
            scenario.apply(&deployment).await?;
            let mut actor = bound(
                &name,
                Broker::RabbitMq,
                ("apps/v1", "Deployment", &target),
                Some("openai_chat"),
            );
            merge(
                &mut actor,
                json!({"spec": {"sidecar": {"native": user != USERS[0]}}}),
            );
            let mut next_actor = actor_without_pods(&next, Broker::RabbitMq);
            restrict(
                &mut next_actor["spec"]["workload"]["template"]["spec"],
                user,
            );
            run(scenario, &[actor, next_actor]).await?;
            let cluster = scenario.cluster();
            let sent = message("1", &name, &next, &json!({"text": "quiet"}));
            Broker::RabbitMq.send(cluster, &name, &[sent]).await?;
            let results = Broker::RabbitMq.take(cluster, &next, 1, SOON).await?;
            assert_eq!(
                results[0]["payload"]["choices"][0]["message"]["content"],
                "you said quiet"
            );
        }
        Ok(())
    })
    .await;
}
