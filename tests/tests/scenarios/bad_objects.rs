//! Actors that cannot be served report the reason and do not affect others.

use std::time::Instant;

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::crds;
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::binding::condition;
use crate::{all_running, minimal_actor, own_cluster};

const GOOD: usize = 50;

/// An invalid actor, and what its status must report.
struct Bad {
    name: String,
    actor: Value,
    status: &'static str,
    condition: &'static str,
    reason: &'static str,
    /// What the condition's message must contain.
    says: &'static str,
}

impl Bad {
    /// A minimal actor that is invalid because of `value` at `pointer`.
    fn new(name: String, pointer: &str, value: Value) -> Self {
        let mut actor = minimal_actor(&name);
        set(&mut actor, pointer, value);
        Self {
            name,
            actor,
            status: "WorkloadError",
            condition: "WorkloadReady",
            reason: "ValidationError",
            says: "",
        }
    }

    fn says(self, says: &'static str) -> Self {
        Self { says, ..self }
    }

    fn refused_by_the_api_server(self) -> Self {
        Self {
            reason: "ReconcileError",
            ..self
        }
    }

    fn of_the_transport(self) -> Self {
        Self {
            status: "TransportError",
            condition: "TransportReady",
            reason: "InvalidTransport",
            ..self
        }
    }

    /// Whether the actor's status reports the expected values.
    async fn is_reported(&self, scenario: &Scenario) -> Result<(), NotYet> {
        let actor = scenario.actors().get(&self.name).await?;
        let status = &actor.data["status"];
        let conditions = status["conditions"].as_array();
        let told = conditions
            .into_iter()
            .flatten()
            .find(|found| found["type"] == self.condition);
        let told = told.ok_or_else(|| NotYet::new(format_args!("status {status}")))?;
        let message = told["message"].as_str().unwrap_or_default();
        check(
            status["status"] == self.status
                && told["status"] == "False"
                && told["reason"] == self.reason
                && message.contains(self.says)
                && status["observedGeneration"].as_i64() == actor.metadata.generation,
            format_args!("status {status}"),
        )?;
        // What `kubectl wait` and `describe` show first (STA-8).
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|found| found["type"] == "Ready");
        check(
            ready.is_some_and(|ready| {
                ready["status"] == "False" && ready["message"] == told["message"]
            }),
            format_args!("{ready:?}"),
        )?;
        // The finalizer is set whether or not the actor is valid (FIN-1).
        let finalizers = actor.metadata.finalizers.unwrap_or_default();
        check(
            finalizers == ["asya.sh/finalizer"],
            format_args!("finalizers {finalizers:?}"),
        )
    }
}

/// Sets a value and creates its parent objects; the last segment of the pointer may be the next index of a list.
fn set(actor: &mut Value, pointer: &str, value: Value) {
    let mut place = actor;
    for segment in pointer.split('/').skip(1) {
        place = match segment.parse::<usize>() {
            Ok(index) => {
                let list = place.as_array_mut().unwrap();
                if index == list.len() {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            Err(_) => &mut place[segment],
        };
    }
    *place = value;
}

const CONTAINERS: &str = "/spec/workload/template/spec/containers";

/// Invalid actors that the current CRD accepts.
fn accepted_by_the_crd(scenario: &Scenario) -> Vec<Bad> {
    let bad =
        |name: &str, pointer: &str, value: Value| Bad::new(scenario.name(name), pointer, value);
    let in_containers = |pointer: &str| format!("{CONTAINERS}{pointer}");
    vec![
        bad("shape", CONTAINERS, json!({}))
            .says("spec.workload.template.spec.containers: must be a list"),
        bad("transport", "/spec/transport", json!("pigeon"))
            .of_the_transport()
            .says("transport \"pigeon\" is not configured"),
        bad(
            "reserved",
            &in_containers("/1"),
            json!({"name": "asya-sidecar", "image": "mine"}),
        )
        .says("spec.workload.template.spec.containers[1].name: asya-sidecar is reserved"),
        bad("command", &in_containers("/0/command"), json!(["python"]))
            .says("spec.workload.template.spec.containers[0].command: command is set by the operator"),
        bad("nameless", &in_containers("/0/name"), json!("handler"))
            .says("spec.workload.template.spec.containers: exactly one container must be named asya-runtime, found 0"),
        bad(
            "quantity",
            &in_containers("/0/resources"),
            json!({"limits": {"memory": "1GB"}}),
        )
        .refused_by_the_api_server()
        .says("quantities must match"),
        bad(
            "port",
            &in_containers("/0/ports"),
            json!([{"containerPort": "80"}]),
        )
        .refused_by_the_api_server()
        .says("containerPort: expected numeric"),
    ]
}

async fn all_reported(scenario: &Scenario, bad: &[Bad]) -> Result<()> {
    for bad in bad {
        let what = format!("{} is {}: {}", bad.name, bad.reason, bad.says);
        eventually(what, AFTER_START, async || bad.is_reported(scenario).await).await?;
    }
    Ok(())
}

async fn all_gone(scenario: &Scenario, bad: &[Bad]) -> Result<()> {
    for bad in bad {
        scenario
            .actors()
            .delete(&bad.name, &DeleteParams::default())
            .await?;
    }
    for bad in bad {
        scenario.actor_gone(&bad.name, AFTER_START).await?;
    }
    Ok(())
}

/// API-5, API-6, FIN-1, STA-8, VAL-3, VAL-4, VAL-5, VAL-19, VAL-20
#[tokio::test]
async fn invalid_actors_report_why_and_valid_ones_still_run() {
    Scenario::run("bad", async |scenario| {
        let good: Vec<String> = (0..GOOD)
            .map(|n| scenario.name(&format!("good-{n}")))
            .collect();
        let mut bad = accepted_by_the_crd(scenario);
        let mut all: Vec<Value> = bad.iter().map(|bad| bad.actor.clone()).collect();
        all.extend(good.iter().map(|name| minimal_actor(name)));
        scenario.apply_all(&all).await?;
        let applied = Instant::now();
        all_running(scenario, &good).await?;
        eprintln!(
            "{GOOD} good actors beside {} bad ones: Running {:?} after the apply",
            bad.len(),
            applied.elapsed()
        );
        all_reported(scenario, &bad).await?;

        let rabbitmq = scenario.cluster().rabbitmq()?;
        for bad in &bad {
            let workload = scenario.api::<Deployment>().get_opt(&bad.name).await?;
            assert!(workload.is_none(), "{} has a workload", bad.name);
            // If only the API server can reject the workload, the queue is created first (QUE-4).
            if bad.reason != "ReconcileError" {
                let queue = rabbitmq.queue(&format!("asya-{}", bad.name)).await?;
                assert_eq!(queue, None);
            }
        }

        let corrected = bad.split_off(bad.len() / 2);
        let (names, actors): (Vec<String>, Vec<Value>) = corrected
            .iter()
            .map(|bad| (bad.name.clone(), minimal_actor(&bad.name)))
            .unzip();
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;
        all_gone(scenario, &bad).await
    })
    .await;
}

/// VAL-19, VAL-20
#[tokio::test]
async fn running_actor_that_becomes_invalid_keeps_workload_and_queue() {
    Scenario::run("turns-bad", async |scenario| {
        let rabbitmq = scenario.cluster().rabbitmq()?;
        let bad = accepted_by_the_crd(scenario);
        let (names, good): (Vec<String>, Vec<Value>) = bad
            .iter()
            .map(|bad| (bad.name.clone(), minimal_actor(&bad.name)))
            .unzip();
        scenario.apply_all(&good).await?;
        all_running(scenario, &names).await?;
        let workloads = async || -> Result<Vec<_>> {
            let all = scenario
                .api::<Deployment>()
                .list(&ListParams::default())
                .await?;
            Ok(all
                .into_iter()
                .map(|found| {
                    (
                        found.metadata.name,
                        found.metadata.uid,
                        found.metadata.generation,
                    )
                })
                .collect())
        };
        let before = workloads().await?;
        assert_eq!(before.len(), bad.len());

        let broken: Vec<Value> = bad.iter().map(|bad| bad.actor.clone()).collect();
        scenario.apply_all(&broken).await?;
        all_reported(scenario, &bad).await?;
        assert_eq!(workloads().await?, before, "a workload was touched");
        for name in &names {
            let queue = rabbitmq.queue(&format!("asya-{name}")).await?;
            assert!(queue.is_some(), "the queue of {name} is gone");
        }

        scenario.apply_all(&good).await?;
        all_running(scenario, &names).await?;
        assert_eq!(workloads().await?, before, "a workload was touched");
        Ok(())
    })
    .await;
}

/// A CRD with as few rules as the API server allows.
fn lax_crd() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "asyncactors.asya.sh"},
        "spec": {
            "group": "asya.sh",
            "names": {"kind": "AsyncActor", "plural": "asyncactors"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": anything},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// Actors that the current CRD rejects, but whose stored objects can still be updated.
fn refused_by_the_crd(scenario: &Scenario) -> Vec<Bad> {
    let bad = |name: &str, pointer: &str, value: Value, says| {
        Bad::new(scenario.name(name), pointer, value).says(says)
    };
    let memory = json!({"resources": {"limits": {"memory": "1GB"}}});
    let seconds = json!({"processing": 3_000_000_000_u32});
    vec![
        bad("quantity", "/spec/sidecar", memory, "quantities must match")
            .refused_by_the_api_server(),
        bad(
            "overflow",
            "/spec/timeout",
            seconds,
            "spec.timeout.processing",
        ),
        bad(
            "kind",
            "/spec/workload/kind",
            json!("CronJob"),
            "spec.workload.kind",
        ),
        bad("no-spec", "/spec", json!({}), "spec"),
        bad("no-template", "/spec/workload", json!({}), "spec.workload"),
    ]
}

/// Actors for which the API server rejects any update that does not fix them, so their status cannot be written.
fn frozen(scenario: &Scenario) -> Vec<Bad> {
    [
        ("negative", "/spec/workload/replicas", json!(-1)),
        ("text", "/spec/workload/replicas", json!("two")),
        ("list", "/spec/workload", json!([])),
        ("number", "/spec/transport", json!(5)),
    ]
    .map(|(name, pointer, value)| Bad::new(scenario.name(name), pointer, value))
    .into()
}

/// API-6: actors stored before the CRD had the rule that now rejects them.
#[tokio::test]
async fn actors_stored_before_a_rule_report_it_and_affect_no_other() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "older", async |scenario| {
        scenario.apply(&lax_crd()).await?;
        crds::established(&cluster.client(), crds::ACTORS, AFTER_START).await?;
        let (bad, frozen) = (refused_by_the_crd(scenario), frozen(scenario));
        let good: Vec<String> = (0..5)
            .map(|n| scenario.name(&format!("good-{n}")))
            .collect();
        let mut all: Vec<Value> = bad
            .iter()
            .chain(&frozen)
            .map(|bad| bad.actor.clone())
            .collect();
        all.extend(good.iter().map(|name| minimal_actor(name)));
        scenario.apply_all(&all).await?;

        let crd = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/asyncactors.yaml");
        scenario
            .kubectl(&[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--filename",
                crd,
            ])
            .await?;

        let operator = Operator::install(&cluster, json!({})).await?;
        let instance = operator.start("operator").await?;
        all_running(scenario, &good).await?;
        all_reported(scenario, &bad).await?;
        all_gone(scenario, &bad).await?;

        let (names, corrected): (Vec<String>, Vec<Value>) = frozen
            .iter()
            .map(|bad| (bad.name.clone(), minimal_actor(&bad.name)))
            .unzip();
        scenario.apply_all(&corrected).await?;
        all_running(scenario, &names).await?;
        instance.stop().await?;
        Ok(())
    })
    .await;
}

/// STA-7, FW-31
#[tokio::test]
async fn unreachable_webhook_is_reported_until_it_is_removed() {
    Scenario::run("refused", async |scenario| {
        let name = scenario.name("policed");
        let create = ["create", "deployment", "probe", "--image=probe"];
        let policies = refuse_all(scenario, ("apps", "v1", "deployments"), &create).await?;
        scenario.apply(&minimal_actor(&name)).await?;
        let told = scenario
            .actor_status(&name, "WorkloadError", AFTER_START)
            .await;
        policies
            .delete(scenario.namespace(), &DeleteParams::default())
            .await?;
        let text = told?.data["status"]["conditions"].to_string();
        assert!(text.contains("failed calling webhook"), "{text}");
        scenario.actor_status(&name, "Running", AFTER_START).await?;
        Ok(())
    })
    .await;
}

/// STA-7, FW-31: KEDA has a webhook for its objects.
#[tokio::test]
async fn unreachable_webhook_of_scaled_objects_is_reported_until_it_is_removed() {
    Scenario::run("unscaled", async |scenario| {
        let name = scenario.name("unscaled");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", AFTER_START).await?;
        let probe = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "probe"},
            "spec": {"scaleTargetRef": {"name": "probe"}, "triggers": [{"type": "cron", "metadata": {}}]},
        });
        let folder = scenario.folder()?;
        let file = folder.join("probe.json");
        std::fs::write(&file, probe.to_string()).map_err(Error::other)?;
        let file = file.display().to_string();
        let create = ["create", "--filename", &file];
        let policies =
            refuse_all(scenario, ("keda.sh", "v1alpha1", "scaledobjects"), &create).await?;
        let mut scaled = minimal_actor(&name);
        scaled["spec"]["scaling"] = json!({"enabled": true});
        scenario.apply(&scaled).await?;
        let told = scenario.actor_status(&name, "ScalingError", AFTER_START).await;
        policies.delete(scenario.namespace(), &DeleteParams::default()).await?;
        let status = told?.data["status"].clone();
        assert_eq!(condition(&status, "ScalingReady"), ("False", "ReconcileError"), "{status}");
        assert_eq!(condition(&status, "WorkloadReady").0, "True", "{status}");
        let text = status["conditions"].to_string();
        assert!(text.contains("failed calling webhook"), "{text}");
        let actors = scenario.actors();
        eventually("it is written once the webhook is gone", AFTER_START, async || {
            let status = actors.get(&name).await?.data["status"].clone();
            check(condition(&status, "ScalingReady").1 != "ReconcileError", status)
        })
        .await
    })
    .await;
}

/// Makes the API server reject all writes of a resource in the scenario's namespace, through an unreachable webhook
/// named after the namespace. Waits until it rejects what `create` makes.
async fn refuse_all(
    scenario: &Scenario,
    (group, version, resource): (&str, &str, &str),
    create: &[&str],
) -> Result<Api<ValidatingWebhookConfiguration>> {
    let policy = serde_json::from_value(json!({
        "metadata": {"name": scenario.namespace()},
        "webhooks": [{
            "name": "policy.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scenario.namespace()}},
            "rules": [
                {"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": ["*"]},
            ],
        }],
    }))?;
    let policies = Api::<ValidatingWebhookConfiguration>::all(scenario.client());
    policies.create(&PostParams::default(), &policy).await?;
    let dry_run = [create, &["--dry-run=server"]].concat();
    eventually("the policy is in force", AFTER_START, async || {
        let created = scenario.kubectl(&dry_run).await;
        check(created.is_err(), "one is admitted")
    })
    .await?;
    Ok(policies)
}
