//! Pods of bindings.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(30);

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

/// Sends the scenario's pods to a webhook, as the operator's own configuration does.
async fn send_pods(scenario: &Scenario, webhook: &Webhook) -> Result<String> {
    let name = scenario.name("injector");
    let namespace = json!({"kubernetes.io/metadata.name": scenario.namespace()});
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        "operations": ["CREATE"], "scope": "Namespaced",
    });
    let configuration = json!({
        "metadata": {"name": name},
        "webhooks": [{
            "name": "generic.inject.asya.sh",
            "clientConfig": webhook.client_config("/mutate/pods"),
            "rules": [rule],
            "namespaceSelector": {"matchLabels": namespace},
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        }],
    });
    let api = Api::<MutatingWebhookConfiguration>::all(scenario.client());
    api.create(
        &PostParams::default(),
        &serde_json::from_value(configuration)?,
    )
    .await?;
    Ok(name)
}

/// Waits until a pod of a Deployment would get the sidecar. It is never made, so the Deployment need not be there.
async fn knows(scenario: &Scenario, deployment: &str) -> Result<()> {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-0"),
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true,
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "probe", "labels": {"app": deployment, "pod-template-hash": "0"},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "model", "image": "model:1"}]},
    });
    let pod: Pod = serde_json::from_value(pod)?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let what = format!("pods of {deployment} get the sidecar");
    eventually(what, WAIT, async || {
        let made = scenario.api::<Pod>().create(&dry_run, &pod).await?;
        let found = containers(&made);
        check(found.contains(&"asya-sidecar"), format!("{found:?}"))
    })
    .await
}

/// Waits until the pods of a Deployment are `number`, and each is as `wanted`.
async fn pods_are(
    scenario: &Scenario,
    app: &str,
    number: usize,
    wanted: impl Fn(&Pod) -> bool,
) -> Result<()> {
    let selector = ListParams::default().labels(&format!("app={app}"));
    eventually(
        format!("{number} pods of {app} are as wished"),
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

fn containers(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.iter().flat_map(|spec| &spec.containers);
    spec.map(|container| container.name.as_str()).collect()
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

/// Waits for an Event of this reason about an object of this kind.
async fn told(scenario: &Scenario, reason: &str, kind: &str) -> Result<()> {
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
async fn pods_of_a_bound_deployment_start_with_the_sidecar_and_others_as_they_are() {
    Scenario::run("admission-pods", async |scenario| {
        let webhook = Webhook::start(scenario.cluster(), scenario.namespace(), &[]).await?;
        let name = scenario.name("embed");
        for (actor, target) in [(name.as_str(), "model"), (&scenario.name("host"), "host")] {
            scenario.apply(&binding(actor, target)).await?;
            // In the controller's place: this is about what follows from it.
            let bound = json!({"status": {"boundSince": "2026-05-04T10:00:00Z"}});
            let bound = Patch::Merge(bound);
            let actors = scenario.actors();
            actors
                .patch_status(actor, &PatchParams::default(), &bound)
                .await?;
        }
        let configuration = send_pods(scenario, &webhook).await?;
        for target in ["model", "host"] {
            knows(scenario, target).await?;
        }
        let reviews = "asya_webhook_reviews_total";
        let dry = ["reason=\"Injected\"", "dry_run=\"true\""];
        assert!(webhook.metric(reviews, &dry).await? >= 2.0);
        // Nobody is told of a dry run: the first Events are those of the real pods.
        assert!(
            !scenario
                .kubectl(&["get", "events"])
                .await?
                .contains("Injected")
        );

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

        for (reason, kind) in [
            ("Injected", "AsyncActor"),
            ("Injected", "ReplicaSet"),
            ("InjectionSkipped", "AsyncActor"),
            ("InjectionSkipped", "ReplicaSet"),
        ] {
            told(scenario, reason, kind).await?;
        }
        // Who asks kubectl about the ReplicaSet is shown it.
        let sets = scenario.api::<ReplicaSet>();
        let model = sets
            .list(&ListParams::default().labels("app=model"))
            .await?;
        let set = model
            .items
            .first()
            .and_then(|set| set.metadata.name.clone())
            .unwrap();
        let described = scenario.kubectl(&["describe", "replicaset", &set]).await?;
        assert!(
            described.contains("gets asya-runtime and asya-sidecar"),
            "{described}"
        );

        for labels in [
            ["reason=\"Injected\"", "result=\"patched\""],
            ["reason=\"HostNetwork\"", "result=\"patched\""],
            ["reason=\"NoActor\"", "result=\"allowed\""],
        ] {
            let counted = webhook.metric(reviews, &labels).await?;
            assert!(counted >= 2.0, "{labels:?}: {counted}");
        }
        Api::<MutatingWebhookConfiguration>::all(scenario.client())
            .delete(&configuration, &DeleteParams::default())
            .await?;
        Ok(())
    })
    .await;
}
