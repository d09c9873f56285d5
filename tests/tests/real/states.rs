//! Real causes of failing pods, and the STATUS that each must produce.

use asya_tests::Result;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::real::CRASHING_SIDECAR_IMAGE;
use asya_tests::scenario::Scenario;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::{Broker, SOON, actor, actor_without_pods, message, run};

/// A cause of failure, and the status reason that it must produce.
struct Cause {
    name: &'static str,
    class: &'static str,
    /// Merged into the runtime container.
    runtime: Value,
    volumes: Value,
    sidecar: Value,
}

fn cause(name: &'static str, class: &'static str, runtime: Value) -> Cause {
    Cause {
        name,
        class,
        runtime,
        volumes: json!([]),
        sidecar: json!({}),
    }
}

fn handler(name: &str) -> Value {
    json!([{"name": "ASYA_HANDLER", "value": name}])
}

fn mounted(name: &'static str, class: &'static str, source: Value) -> Cause {
    let mut volume = source;
    volume["name"] = json!("data");
    Cause {
        volumes: json!([volume]),
        ..cause(
            name,
            class,
            json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
        )
    }
}

fn causes() -> Vec<Cause> {
    let memory = |kind: &str, amount: &str| json!({kind: {"memory": amount}});
    vec![
        cause(
            "image",
            "ImagePullError",
            json!({"image": "localhost/nothing:1"}),
        ),
        cause(
            "crash",
            "RuntimeError",
            json!({"env": handler("crashing.handle")}),
        ),
        Cause {
            sidecar: json!({
                "image": CRASHING_SIDECAR_IMAGE,
                "env": [{"name": "ASYA_TEST_SIDECAR_CRASH", "value": "1"}],
            }),
            ..cause("sidecar", "SidecarError", json!({}))
        },
        cause(
            "env-map",
            "ConfigError",
            json!({"envFrom": [{"configMapRef": {"name": "nothing"}}]}),
        ),
        cause(
            "env-secret",
            "ConfigError",
            json!({"envFrom": [{"secretRef": {"name": "nothing"}}]}),
        ),
        mounted(
            "volume-map",
            "ConfigError",
            json!({"configMap": {"name": "nothing"}}),
        ),
        mounted(
            "volume-secret",
            "ConfigError",
            json!({"secret": {"secretName": "nothing"}}),
        ),
        mounted(
            "claim",
            "VolumeError",
            json!({"persistentVolumeClaim": {"claimName": "unbound"}}),
        ),
        cause(
            "memory",
            "RuntimeError",
            json!({"env": handler("greedy.handle"), "resources": memory("limits", "64Mi")}),
        ),
        cause(
            "node",
            "PendingResources",
            json!({"resources": memory("requests", "100Ti")}),
        ),
    ]
}

/// Waits until the actor's status reports this cause.
async fn is_reported(scenario: &Scenario, cause: Cause) -> Result<()> {
    let name = scenario.name(cause.name);
    let mut actor = actor(&name, Broker::RabbitMq, "handlers.shout");
    let pod = &mut actor["spec"]["workload"]["template"]["spec"];
    pod["volumes"] = cause.volumes;
    asya_tests::operator::merge(&mut pod["containers"][0], cause.runtime);
    asya_tests::operator::merge(&mut actor["spec"]["sidecar"], cause.sidecar);
    scenario.apply(&actor).await?;
    let found = scenario.actor_status(&name, cause.class, SOON).await?;
    let conditions = found.data["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let told = conditions.iter().find(|it| it["type"] == "WorkloadReady");
    let told = told.cloned().unwrap_or_default();
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("False"), &json!(cause.class)),
        "{}: {told}",
        cause.name
    );
    eprintln!(
        "{:>14}: {:<16} {}",
        cause.name, cause.class, told["message"]
    );
    Ok(())
}

/// STA-2 to STA-4
#[tokio::test]
async fn pod_failures_are_reported_by_class() {
    Scenario::run("states", async |scenario| {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "unbound"},
            "spec": {"storageClassName": "nothing", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        scenario.apply(&claim).await?;
        try_join_all(causes().into_iter().map(|cause| is_reported(scenario, cause)))
            .await
            .map(drop)
    })
    .await;
}

/// RUN-13, RUN-20, STA-2
#[tokio::test]
async fn hanging_handler_is_killed_reported_and_restarted() {
    Scenario::run("hanging", async |scenario| {
        let (name, errors) = (scenario.name("hang"), scenario.name("errors"));
        let mut hangs = actor(&name, Broker::RabbitMq, "handlers.hang");
        hangs["spec"]["timeout"] = json!({"processing": 2});
        hangs["spec"]["sidecar"]["env"] =
            json!([{"name": "ASYA_ACTOR_ERROR_END", "value": errors}]);
        run(
            scenario,
            &[hangs, actor_without_pods(&errors, Broker::RabbitMq)],
        )
        .await?;
        let cluster = scenario.cluster();
        let sent = message("1", &name, &errors, &json!({}));
        Broker::RabbitMq.send(cluster, &name, &[sent]).await?;
        scenario.actor_status(&name, "RuntimeError", SOON).await?;
        let failed = Broker::RabbitMq.take(cluster, &errors, 1, SOON).await?;
        assert_eq!(failed[0]["id"], "1");
        scenario.actor_status(&name, "Running", SOON).await?;
        let labels = ListParams::default().labels(&format!("asya.sh/asya={name}"));
        // The sidecar sends the message to error-end and waits for the runtime (SC-51).
        eventually("only the runtime was restarted", SOON, async || {
            let pods = scenario.api::<Pod>().list(&labels).await?;
            let statuses = pods
                .items
                .first()
                .and_then(|pod| pod.status.as_ref()?.container_statuses.clone());
            let statuses = statuses.ok_or_else(|| NotYet::new("no pod"))?;
            let restarts: Vec<_> = statuses.iter().map(|it| it.restart_count).collect();
            check(restarts == [1, 0], format_args!("{restarts:?}"))
        })
        .await
    })
    .await;
}
