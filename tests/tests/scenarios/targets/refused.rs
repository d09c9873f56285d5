//! Namespaces that reject pods with the sidecar: with an optional binding the target is as it would be without us.

mod control;

use std::time::Instant;

use asya_tests::Result;
use asya_tests::audit::Write;
use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Event, LimitRange, Namespace, Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use self::control::ControlPair;
use super::rolling::containers;
use crate::binding::{bound_actor, condition, model, status_is};

const ROUNDS: usize = 6;
/// Overrides the number of rounds, [`ROUNDS`].
const ROUNDS_VARIABLE: &str = "ASYA_ROUNDS";
const MODEL: [&str; 1] = ["model"];

/// How often each target is replaced, scaled or rolled out.
fn rounds() -> usize {
    std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |number| {
        number.parse().expect("ASYA_ROUNDS is a number")
    })
}

async fn is_refused(scenario: &Scenario, name: &str) -> Result<Value> {
    let refused = |status: &Value| condition(status, "Injected") == ("False", "ProbeRejected");
    let status = status_is(scenario, name, "its probe is refused", LATER, refused).await?;
    let injection = &status["injection"];
    assert!(injection["refused"].is_string(), "{injection}");
    Ok(status)
}

/// Errors of the target's controller when it creates pods.
async fn failures(scenario: &Scenario) -> Result<Vec<String>, kube::Error> {
    let list = ListParams::default().fields("reason=FailedCreate");
    let events = scenario.api::<Event>().list(&list).await?;
    let about = events.into_iter().filter(|event| {
        let name = event.involved_object.name.as_deref();
        name.is_some_and(|name| name.starts_with("web-"))
    });
    let messages = about.filter_map(|event| event.message);
    // Two pods at once: the API server answers 409 to one that counts against a changed quota, and the ReplicaSet's
    // controller retries. Nobody rejected that pod.
    Ok(messages
        .filter(|message| !message.contains("Operation cannot be fulfilled on resourcequotas"))
        .collect())
}

/// The pod as its `ReplicaSet` would create it again.
fn as_new(mut pod: Pod) -> Pod {
    pod.metadata = ObjectMeta {
        generate_name: Some("again-".to_owned()),
        labels: pod.metadata.labels,
        owner_references: pod.metadata.owner_references,
        ..ObjectMeta::default()
    };
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    pod.status = None;
    pod
}

/// With `required: true` a replacement is rejected, and the error message names us.
async fn required_pods_are_refused_in_our_name(scenario: &Scenario, name: &str) -> Result<()> {
    let required = json!({"spec": {"binding": {"required": true}}});
    let patch = serde_json::to_string(&required)?;
    scenario
        .kubectl(&["patch", "asya", name, "--type=merge", "--patch", &patch])
        .await?;
    let generation = scenario.actors().get(name).await?.metadata.generation;
    let told = |status: &Value| {
        status["observedGeneration"].as_i64() == generation
            && condition(status, "Injected") == ("False", "ProbeRejected")
    };
    status_is(scenario, name, "its probe is still refused", LATER, told).await?;
    let pair = ControlPair { scenario };
    let pod = pair.pods("web").await?.into_iter().next();
    let pod = pod.unwrap_or_default();
    let pods = scenario.api::<Pod>();
    // The status may reach the webhook later than this test: a pod deleted too early would be replaced.
    let again = as_new(pods.get(&pod).await?);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the webhook knows", LATER, async || {
        match pods.create(&params, &again).await {
            Err(kube::Error::Api(status)) => {
                let ours = status.message.contains("binding.required");
                check(ours, &status.message)
            }
            answer => check(false, format_args!("{answer:?}")),
        }
    })
    .await?;
    pods.delete(&pod, &DeleteParams::default()).await?;
    eventually("a pod is refused in our name", LATER, async || {
        let said = failures(scenario).await?;
        let ours = said
            .iter()
            .any(|it| it.contains("AsyncActor") && it.contains("binding.required"));
        check(ours, format_args!("{said:?}"))
    })
    .await
}

/// Creates a quota, and waits until it has been counted: until then, admission rejects every pod.
async fn is_in_force(scenario: &Scenario, quota: &ResourceQuota) -> Result<()> {
    let quotas = scenario.api::<ResourceQuota>();
    let made = quotas.create(&PostParams::default(), quota).await?;
    let name = made.metadata.name.unwrap_or_default();
    eventually("the quota is in force", LATER, async || {
        let status = quotas.get(&name).await?.status.unwrap_or_default();
        check(status.hard.is_some(), format_args!("{status:?}"))
    })
    .await
}

/// SAFE-1, SAFE-6, SAFE-8
#[tokio::test]
async fn quota_without_room_for_the_sidecar_costs_the_target_no_pod() {
    Scenario::run("refused-quota", async |scenario| {
        let name = scenario.name("quota");
        // Far more than three pods per Deployment and twice as many during rollouts: terminating pods still count, and
        // finished ones until the quota's controller counts again.
        let quota: ResourceQuota = serde_json::from_value(json!({
            "metadata": {"name": "tight"}, "spec": {"hard": {"limits.memory": "12Gi"}},
        }))?;
        is_in_force(scenario, &quota).await?;
        let pair = ControlPair { scenario };
        pair.create_both(&json!({"limits": {"memory": "256Mi"}}))
            .await?;
        let mut actor = bound_actor(&name, "web");
        // Exceeds the whole quota, so there is never room for it, whatever the state of the target.
        actor["spec"]["sidecar"] =
            json!({"resources": {"limits": {"memory": "16Gi"}, "requests": {"memory": "32Mi"}}});
        nothing_gets_worse(scenario, &name, &actor).await?;
        required_pods_are_refused_in_our_name(scenario, &name).await?;
        Ok(())
    })
    .await;
}

/// Puts a target in a namespace that rejects only the sidecar through everything that can happen to a target.
async fn nothing_gets_worse(scenario: &Scenario, name: &str, actor: &Value) -> Result<()> {
    scenario.apply(actor).await?;
    is_refused(scenario, name).await?;
    let (pair, audit) = (ControlPair { scenario }, scenario.cluster().audit());
    let (mark, began, rounds) = (audit.mark().await?, Instant::now(), rounds());
    pair.exercise(rounds).await?;
    let status = is_refused(scenario, name).await?;
    assert_eq!(status["pods"]["injected"], 0, "{status}");
    let reasons = status["pods"]["reasons"].to_string();
    assert!(reasons.contains("ProbeRejected"), "{reasons}");
    for pod in containers(scenario, "web").await? {
        assert_eq!(pod, MODEL);
    }
    let failures = failures(scenario).await?;
    assert!(failures.is_empty(), "{failures:?}");
    let writes = audit.writes_in(mark, scenario.namespace()).await?;
    let created = writes
        .iter()
        .filter(|it| (&*it.verb, &*it.resource, &*it.subresource) == ("create", "pods", ""));
    // 409: the quota changed meanwhile, and the controller retries.
    let (refused, tried): (Vec<_>, Vec<&Write>) = created.partition(|it| it.code == 403);
    assert_eq!(refused, Vec::<&Write>::new());
    let admitted = tried.iter().filter(|it| it.code == 201).count();
    eprintln!(
        "{}: {rounds} rounds in {:?}, {admitted} pods admitted, none refused",
        scenario.namespace(),
        began.elapsed(),
    );
    Ok(())
}

/// SAFE-6
#[tokio::test]
async fn quota_on_limits_is_met_where_the_target_has_limits() {
    Scenario::run("quota-met", async |scenario| {
        let name = scenario.name("met");
        let quota: ResourceQuota = serde_json::from_value(json!({
            "metadata": {"name": "wide"}, "spec": {"hard": {"limits.memory": "64Gi", "limits.cpu": "100"}},
        }))?;
        is_in_force(scenario, &quota).await?;
        let limits = json!({"requests": {"memory": "64Mi"}, "limits": {"memory": "256Mi", "cpu": "1"}});
        let pair = ControlPair { scenario };
        pair.create_both(&limits).await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        let injected = |status: &Value| condition(status, "Injected") == ("True", "AllPodsInjected");
        let status = status_is(scenario, &name, "it is rolled", LATER, injected).await?;
        assert_eq!(status["injection"]["limits"], json!(["cpu", "memory"]));
        pair.exercise(6).await?;
        status_is(scenario, &name, "it still is", LATER, injected).await?;
        assert_eq!(failures(scenario).await?, Vec::<String>::new());
        Ok(())
    })
    .await;
}

/// SAFE-1, SAFE-7, SAFE-8
#[tokio::test]
async fn limit_range_that_asks_for_more_than_the_sidecar_does_costs_the_target_no_pod() {
    Scenario::run("refused-min", async |scenario| {
        let name = scenario.name("min");
        let range: LimitRange = serde_json::from_value(json!({
            "metadata": {"name": "least"},
            "spec": {"limits": [{"type": "Container", "min": {"memory": "64Mi"}}]},
        }))?;
        let ranges = scenario.api::<LimitRange>();
        ranges.create(&PostParams::default(), &range).await?;
        let pair = ControlPair { scenario };
        pair.create_both(&json!({"requests": {"memory": "128Mi"}}))
            .await?;
        nothing_gets_worse(scenario, &name, &bound_actor(&name, "web")).await?;
        required_pods_are_refused_in_our_name(scenario, &name).await?;

        // The target itself is not rejected: with sufficient requests for the sidecar it is injected.
        let enough = json!({"requests": {"memory": "64Mi"}});
        let patch =
            json!({"spec": {"sidecar": {"resources": enough}, "runtime": {"resources": enough}}});
        let patch = serde_json::to_string(&patch)?;
        scenario
            .kubectl(&["patch", "asya", &name, "--type=merge", "--patch", &patch])
            .await?;
        status_is(scenario, &name, "it is injected", LATER, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
        })
        .await?;
        Ok(())
    })
    .await;
}

/// A policy that rejects images without a fixed tag in the scenario's namespace.
struct NoLatest<'a> {
    scenario: &'a Scenario,
}

impl NoLatest<'_> {
    fn name(&self) -> String {
        format!("no-latest-{}", self.scenario.namespace())
    }

    async fn install(&self) -> Result<()> {
        let (name, client) = (self.name(), self.scenario.client());
        let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }]},
                "validations": [{
                    "expression": "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
                    "message": "images need a fixed tag",
                }],
            },
        }))?;
        let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {
                    "kubernetes.io/metadata.name": self.scenario.namespace(),
                }}},
            },
        }))?;
        let new = PostParams::default();
        Api::all(client.clone()).create(&new, &policy).await?;
        Api::all(client).create(&new, &binding).await?;
        // A policy takes effect with a short delay.
        let mut bad = serde_json::to_value(model("bad", 0)?)?["spec"]["template"].take();
        bad["metadata"]["name"] = json!("bad");
        bad["spec"]["containers"][0]["image"] = json!("model:latest");
        let bad: Pod = serde_json::from_value(bad)?;
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("the policy is in force", LATER, async || {
            let tried = self.scenario.api::<Pod>().create(&dry, &bad).await;
            check(tried.is_err(), "it admits the pod")
        })
        .await
    }

    async fn remove(&self) -> Result<()> {
        let (name, client, now) = (self.name(), self.scenario.client(), DeleteParams::default());
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
        bindings.delete(&name, &now).await?;
        let policies = Api::<ValidatingAdmissionPolicy>::all(client);
        policies.delete(&name, &now).await?;
        Ok(())
    }
}

fn with_latest(name: &str) -> Value {
    let mut actor = bound_actor(name, "web");
    actor["spec"]["sidecar"] = json!({"image": "asya-sidecar:latest"});
    actor
}

/// SAFE-1, SAFE-8
#[tokio::test]
async fn policy_that_refuses_the_sidecars_image_costs_the_target_no_pod() {
    Scenario::run("refused-tag", async |scenario| {
        let name = scenario.name("tag");
        let policy = NoLatest { scenario };
        policy.install().await?;
        let pair = ControlPair { scenario };
        pair.create_both(&json!({})).await?;
        nothing_gets_worse(scenario, &name, &with_latest(&name)).await?;
        required_pods_are_refused_in_our_name(scenario, &name).await?;
        policy.remove().await
    })
    .await;
}

/// SAFE-4
#[tokio::test]
async fn policy_that_comes_later_is_noticed_at_the_first_pod_that_it_refuses() {
    Scenario::run("refused-later", async |scenario| {
        let name = scenario.name("later");
        let pair = ControlPair { scenario };
        pair.create_both(&json!({})).await?;
        scenario.apply(&with_latest(&name)).await?;
        let injected =
            |status: &Value| condition(status, "Injected") == ("True", "AllPodsInjected");
        status_is(scenario, &name, "it is injected", LATER, injected).await?;
        let policy = NoLatest { scenario };
        policy.install().await?;
        pair.exercise(3).await?;
        let status = is_refused(scenario, &name).await?;
        assert!(
            status["injection"]["message"]
                .to_string()
                .contains("fixed tag"),
            "{status}"
        );
        pair.exercise(6).await?;

        policy.remove().await?;
        // Any change to the namespace triggers another dry run, so there is no need to wait for the periodic one.
        let labels = Patch::Merge(json!({"metadata": {"labels": {"policy": "none"}}}));
        let namespaces = Api::<Namespace>::all(scenario.client());
        let namespace = scenario.namespace();
        namespaces
            .patch(namespace, &PatchParams::default(), &labels)
            .await?;
        status_is(scenario, &name, "it is injected again", LATER, injected).await?;
        Ok(())
    })
    .await;
}

/// Enforces Pod Security `restricted` in the scenario's namespace.
async fn enforce_restricted(scenario: &Scenario) -> Result<()> {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let labels = Patch::Merge(json!({"metadata": {"labels": labels}}));
    let namespaces = Api::<Namespace>::all(scenario.client());
    namespaces
        .patch(scenario.namespace(), &PatchParams::default(), &labels)
        .await?;
    Ok(())
}

/// SAFE-1, SAFE-8
#[tokio::test]
async fn sidecar_that_pod_security_refuses_costs_the_target_no_pod() {
    Scenario::run("refused-root", async |scenario| {
        let name = scenario.name("root");
        let pair = ControlPair { scenario };
        pair.create_both(&json!({})).await?;
        pair.comply().await?;
        enforce_restricted(scenario).await?;
        let mut actor = bound_actor(&name, "web");
        actor["spec"]["sidecar"] = json!({"securityContext": {"runAsNonRoot": false}});
        nothing_gets_worse(scenario, &name, &actor).await?;
        required_pods_are_refused_in_our_name(scenario, &name).await
    })
    .await;
}

/// SAFE-1
#[tokio::test]
async fn target_that_pod_security_refuses_has_as_many_pods_as_it_would_have_without_us() {
    Scenario::run("refused-psa", async |scenario| {
        let name = scenario.name("psa");
        let pair = ControlPair { scenario };
        pair.create_both(&json!({})).await?;
        enforce_restricted(scenario).await?;
        scenario.apply(&bound_actor(&name, "web")).await?;
        is_refused(scenario, &name).await?;
        let pods = scenario.api::<Pod>();
        for name in ["web", "control"] {
            let pod = pair.pods(name).await?.into_iter().next();
            pods.delete(&pod.unwrap_or_default(), &DeleteParams::default())
                .await?;
        }
        eventually(
            "both lack the pod that Pod Security refuses",
            LATER,
            async || {
                let counts = (
                    pair.pods("web").await?.len(),
                    pair.pods("control").await?.len(),
                );
                check(counts == (1, 1), format_args!("{counts:?}"))
            },
        )
        .await?;
        pair.comply().await?;
        status_is(scenario, &name, "it is injected", LATER, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
        })
        .await?;
        pair.exercise(rounds()).await?;
        Ok(())
    })
    .await;
}
