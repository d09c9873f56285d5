//! The webhook and pods of bindings.

use asya_tests::Result;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use super::{REVIEWS, Stage, WAIT, containers, gets_sidecar, pod_of};
use crate::own_cluster;

fn binding(name: &str, deployment: &str) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor",
        "metadata": {"name": name},
        "spec": {
            "transport": "rabbitmq",
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "runtime": {"targetURL": "http://127.0.0.1:8000"},
        },
    })
}

fn deployment(name: &str, host_network: bool) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostNetwork": host_network,
                    "containers": [{"name": "model", "image": "model:1"}],
                },
            },
        },
    })
}

/// Waits until a Deployment has `number` pods that all satisfy `wanted`.
async fn pods_are(
    scenario: &Scenario,
    app: &str,
    number: usize,
    wanted: impl Fn(&Pod) -> bool,
) -> Result<()> {
    let selector = ListParams::default().labels(&format!("app={app}"));
    eventually(
        format!("{number} pods of {app} are as expected"),
        WAIT,
        async || {
            let pods = scenario.api::<Pod>().list(&selector).await?;
            let good = pods.iter().filter(|pod| wanted(pod)).count();
            let seen = format!("{good} of {}", pods.items.len());
            check(good == number && pods.items.len() == number, seen)
        },
    )
    .await
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

/// Waits for an Event with this reason about an object of this kind.
async fn event_exists(scenario: &Scenario, reason: &str, kind: &str) -> Result<()> {
    let selector = format!("--field-selector=reason={reason},involvedObject.kind={kind}");
    eventually(
        format!("an Event {reason} about {kind}"),
        WAIT,
        async || {
            let found = scenario
                .kubectl(&["get", "events", "-o", "name", &selector])
                .await;
            let found = found.map_err(NotYet::new)?;
            check(!found.trim().is_empty(), "none")
        },
    )
    .await
}

/// INJ-1, INJ-10, OBS-2, ADM-4
#[tokio::test]
async fn only_pods_of_bound_deployments_are_injected() {
    let _turn = own_cluster().await;
    let stage = Stage::set(&[]).await.unwrap();
    Scenario::run_on(
        Ok(stage.cluster.clone()),
        "admission-pods",
        async |scenario| {
            let name = scenario.name("embed");
            for (actor, target) in [(name.as_str(), "model"), (&scenario.name("host"), "host")] {
                scenario.apply(&binding(actor, target)).await?;
            }
            for target in ["model", "host"] {
                let labels = json!({"app": target, "pod-template-hash": "0"});
                let pod = pod_of("ReplicaSet", &format!("{target}-0"), &labels)?;
                gets_sidecar(scenario, &pod).await?;
            }
            let dry = [("reason", "Injected"), ("dry_run", "true")];
            assert!(stage.webhook.metric(REVIEWS, &dry).await? >= 2.0);
            // A dry run emits no Event: the first Events are about real pods.
            let events = scenario.kubectl(&["get", "events"]).await?;
            assert!(!events.contains("Injected"), "{events}");

            let deployments = scenario.api::<Deployment>();
            for (target, host_network) in [("model", false), ("host", true), ("other", false)] {
                let object = serde_json::from_value(deployment(target, host_network))?;
                deployments.create(&PostParams::default(), &object).await?;
            }
            pods_are(scenario, "model", 2, |pod| {
                containers(pod) == ["model", "asya-runtime", "asya-sidecar"]
                    && annotation(pod, "asya.sh/injected-hash").is_some()
            })
            .await?;
            pods_are(scenario, "host", 2, |pod| {
                containers(pod) == ["model"]
                    && annotation(pod, "asya.sh/not-injected") == Some("HostNetwork")
            })
            .await?;
            pods_are(scenario, "other", 2, |pod| {
                containers(pod) == ["model"] && pod.metadata.annotations.is_none()
            })
            .await?;
            are_reported(scenario).await?;
            for labels in [
                [("reason", "Injected"), ("dry_run", "false")],
                [("reason", "HostNetwork"), ("result", "patched")],
            ] {
                let counted = stage.webhook.metric(REVIEWS, &labels).await?;
                assert!(counted >= 2.0, "{labels:?}: {counted}");
            }
            Ok(())
        },
    )
    .await;
}

async fn are_reported(scenario: &Scenario) -> Result<()> {
    for (reason, kind) in [
        ("Injected", "AsyncActor"),
        ("Injected", "ReplicaSet"),
        ("InjectionSkipped", "AsyncActor"),
        ("InjectionSkipped", "ReplicaSet"),
    ] {
        event_exists(scenario, reason, kind).await?;
    }
    // The ReplicaSet gets the Event as well.
    let sets = scenario.api::<ReplicaSet>();
    let of_model = ListParams::default().labels("app=model");
    let model = sets.list(&of_model).await?.items.into_iter().next();
    let set = model.and_then(|set| set.metadata.name).unwrap();
    let described = scenario.kubectl(&["describe", "replicaset", &set]).await?;
    assert!(
        described.contains("injected asya-runtime and asya-sidecar"),
        "{described}"
    );
    Ok(())
}
