//! `kubectl asya preview`: it shows what the operator will do, and stores nothing.

mod kinds;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::{Ended, asya};
use crate::binding::{bound_actor, condition, model, status_is};
use crate::minimal_actor;

const UNREACHABLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../process/tests/unreachable-api-server.yaml"
);

/// Writes a manifest that `preview` can read.
pub fn written(scenario: &Scenario, actor: &Value) -> Result<String> {
    let file = scenario.folder()?.join("actor.json");
    std::fs::write(&file, actor.to_string()).map_err(Error::other)?;
    Ok(file.display().to_string())
}

/// Prints the preview as a user sees it, and returns it as JSON. It must exit with this code.
async fn preview(scenario: &Scenario, actor: &Value, code: i32) -> Result<Value> {
    let file = written(scenario, actor)?;
    let page = asya(scenario, &["preview", "-f", &file]).await?;
    assert_eq!(page.code, Some(code), "{}{}", page.out, page.err);
    let Ended {
        out,
        err,
        code: again,
    } = asya(scenario, &["preview", "-f", &file, "-o", "json"]).await?;
    assert_eq!(again, Some(code), "{out}{err}");
    let previews: Value = serde_json::from_str(&out)?;
    Ok(previews[0].clone())
}

/// What will happen to an object whose name begins like this.
fn action<'a>(preview: &'a Value, object: &str) -> Option<&'a str> {
    let changes = preview["changes"].as_array()?;
    let begins = |it: &&Value| {
        it["object"]
            .as_str()
            .is_some_and(|it| it.starts_with(object))
    };
    changes.iter().find(begins)?["action"].as_str()
}

fn problems(preview: &Value) -> Vec<&str> {
    let problems = preview["problems"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    problems.iter().filter_map(|it| it["id"].as_str()).collect()
}

async fn is_stored(scenario: &Scenario, name: &str) -> Result<bool> {
    Ok(scenario.actors().get_opt(name).await?.is_some())
}

/// A Deployment with two running pods.
async fn target(scenario: &Scenario) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &model("model", 2)?)
        .await?;
    eventually("the target is ready", SOON, async || {
        let status = deployments.get("model").await?.status.unwrap_or_default();
        check(status.ready_replicas == Some(2), format_args!("{status:?}"))
    })
    .await
}

/// The containers of the target's pods.
async fn containers(scenario: &Scenario) -> Result<Vec<Value>> {
    let list = ListParams::default().labels("app=model");
    let pods = scenario.api::<Pod>().list(&list).await?;
    let live = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(live
        .map(|pod| json!(pod.spec.unwrap_or_default().containers))
        .collect())
}

/// Every annotation of ours on the target and its pod template is a line of the preview.
async fn annotations_are_shown(scenario: &Scenario, diff: &str) -> Result<()> {
    let target = scenario.api::<Deployment>().get("model").await?;
    let template = target.spec.and_then(|it| it.template.metadata);
    let template = template.and_then(|it| it.annotations);
    let all = [target.metadata.annotations, template];
    let all = all.into_iter().flatten().flatten();
    let ours: Vec<_> = all.filter(|(key, _)| key.starts_with("asya.sh/")).collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    for (key, value) in ours {
        let line = format!("{key}: {value}");
        assert!(diff.contains(&line), "{line} {diff}");
    }
    Ok(())
}

/// INJ-1, ROLL-3: a new binding, the same binding again, and a changed one.
#[tokio::test]
async fn bound_pods_are_shown_as_the_webhook_patches_them() {
    Scenario::run("cli-preview-bound", async |scenario| {
        let name = scenario.name("bound");
        target(scenario).await?;
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["scaling"] = json!({"enabled": true, "minReplicas": 2, "maxReplicas": 4});
        let first = preview(scenario, &actor, 0).await?;
        assert_eq!(first["write"], "create", "{first:#}");
        assert!(
            !is_stored(scenario, &name).await?,
            "a preview stores nothing"
        );
        assert_eq!(
            action(&first, "pod of Deployment/model"),
            Some("inject"),
            "{first:#}"
        );
        assert_eq!(
            action(&first, &format!("queue asya-{name}")),
            Some("create")
        );
        assert_eq!(action(&first, "ScaledObject/"), Some("create"));
        assert_eq!(
            (&first["restart"]["by"], &first["restart"]["pods"]),
            (&json!("workload"), &json!(2))
        );
        assert_eq!(
            first["restart"]["names"].as_array().map(Vec::len),
            Some(2),
            "{first:#}"
        );
        assert!(first["restart"]["orderRule"].is_string(), "{first:#}");
        assert_eq!(
            action(&first, "Deployment/model"),
            Some("change"),
            "{first:#}"
        );
        let diff = first["changes"].as_array().into_iter().flatten();
        let diff = diff
            .filter_map(|it| it["diff"].as_str())
            .collect::<String>();

        scenario.apply(&actor).await?;
        let injected =
            |status: &Value| condition(status, "Injected") == ("True", "AllPodsInjected");
        status_is(
            scenario,
            &name,
            "all pods are injected",
            Duration::from_mins(2),
            injected,
        )
        .await?;
        annotations_are_shown(scenario, &diff).await?;
        let pods = containers(scenario).await?;
        let all = pods[0].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(all.len(), 3, "{pods:?}");
        for variable in all
            .iter()
            .filter(|it| it["name"] != "model")
            .filter_map(|it| it["env"].as_array())
            .flatten()
        {
            let line = format!("name: {}", variable["name"].as_str().unwrap_or_default());
            assert!(diff.contains(&line), "{line} {diff}");
        }

        let same = preview(scenario, &actor, 0).await?;
        assert_eq!(
            (&same["write"], &same["restart"]["pods"]),
            (&json!("unchanged"), &json!(0)),
            "{same:#}"
        );
        assert_eq!(
            action(&same, "pod of Deployment/model"),
            Some("unchanged"),
            "{same:#}"
        );
        actor["spec"]["sidecar"] = json!({"env": [{"name": "GREETING", "value": "hello"}]});
        let changed = preview(scenario, &actor, 0).await?;
        assert_eq!(
            (&changed["write"], &changed["restart"]["pods"]),
            (&json!("update"), &json!(2)),
            "{changed:#}"
        );
        assert_eq!(
            action(&changed, "ScaledObject/"),
            Some("unchanged"),
            "{changed:#}"
        );
        let actor = scenario.actors().get(&name).await?;
        assert_eq!(
            actor.data["spec"]["sidecar"],
            Value::Null,
            "a preview stores nothing"
        );
        Ok(())
    })
    .await;
}

/// SAFE-1, SAFE-7: the quota has no room for the sidecar, whatever pods it replaces.
#[tokio::test]
async fn quota_without_room_for_the_sidecar_is_shown_before_it_matters() {
    Scenario::run("cli-preview-quota", async |scenario| {
        let name = scenario.name("quota");
        target(scenario).await?;
        let quotas = scenario.api::<ResourceQuota>();
        let quota = serde_json::from_value(json!({
            "metadata": {"name": "tight"}, "spec": {"hard": {"requests.memory": "3Gi"}},
        }))?;
        quotas.create(&PostParams::default(), &quota).await?;
        eventually("the quota is in force", SOON, async || {
            let status = quotas.get("tight").await?.status.unwrap_or_default();
            check(status.hard.is_some(), format_args!("{status:?}"))
        })
        .await?;
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["sidecar"] = json!({"resources": {"requests": {"memory": "4Gi"}}});
        let refused = preview(scenario, &actor, 1).await?;
        assert_eq!(problems(&refused), ["ASYA-RejectedByQuota"], "{refused:#}");
        assert_eq!(refused["restart"]["pods"], 0, "{refused:#}");
        assert_eq!(refused["server"]["answer"], "admitted", "{refused:#}");
        quotas.delete("tight", &DeleteParams::default()).await?;
        eventually("the quota is no longer in force", SOON, async || {
            let requests = json!({"requests": {"memory": "4Gi"}});
            let container = json!({"name": "large", "image": "large:1", "resources": requests});
            let pod = json!({"metadata": {"name": "large"}, "spec": {"containers": [container]}});
            let pod = serde_json::from_value(pod).map_err(NotYet::new)?;
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            scenario.api::<Pod>().create(&dry_run, &pod).await?;
            Ok(())
        })
        .await?;
        let admitted = preview(scenario, &actor, 0).await?;
        assert_eq!(admitted["restart"]["pods"], 2, "{admitted:#}");
        Ok(())
    })
    .await;
}

/// SAFE-1: the API server evaluates policies after the webhook.
#[tokio::test]
async fn policy_against_the_sidecar_is_shown_before_it_matters() {
    Scenario::run("cli-preview-policy", async |scenario| {
        let name = scenario.name("policy");
        target(scenario).await?;
        let (namespace, policy) = (scenario.namespace(), scenario.name("no-sidecars"));
        let objects = [
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": policy},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
                    },
                    "validations": [{
                        "expression": "!object.spec.containers.exists(it, it.name == 'asya-sidecar')",
                        "message": "no sidecars here",
                    }],
                },
            }),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": policy},
                "spec": {"policyName": policy, "validationActions": ["Deny"]},
            }),
        ];
        scenario.apply_all(&objects).await?;
        let bound = bound_actor(&name, "model");
        let manifest = written(scenario, &bound)?;
        eventually("the policy is in force", SOON, async || {
            let ended = asya(scenario, &["preview", "-f", &manifest, "-o", "json"]).await?;
            check(ended.code == Some(1), ended.out)
        })
        .await?;
        let refused = preview(scenario, &bound, 1).await?;
        assert_eq!(problems(&refused), ["ASYA-RejectedByPolicy"], "{refused:#}");
        let text = refused["problems"][0]["problem"].as_str().unwrap_or_default();
        assert!(text.contains("no sidecars here"), "{text}");
        let standalone = preview(scenario, &minimal_actor(&name), 1).await?;
        assert_eq!(problems(&standalone), ["ASYA-RejectedByPolicy"], "{standalone:#}");
        let kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings";
        scenario.kubectl(&["delete", kinds, &policy]).await?;
        Ok(())
    })
    .await;
}

/// WRK-1, KEDA-1: a new workload, the same workload again, and a changed one.
#[tokio::test]
async fn workload_of_a_standalone_actor_is_shown_as_it_is_applied() {
    Scenario::run("cli-preview-own", async |scenario| {
        let name = scenario.name("own");
        let mut actor = minimal_actor(&name);
        let workload = format!("Deployment/{name}");
        let first = preview(scenario, &actor, 0).await?;
        assert_eq!(
            (&first["write"], &first["cost"]["started"]),
            (&json!("create"), &json!(1)),
            "{first:#}"
        );
        assert_eq!(action(&first, &workload), Some("create"), "{first:#}");
        assert!(
            !is_stored(scenario, &name).await?,
            "a preview stores nothing"
        );
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let same = preview(scenario, &actor, 0).await?;
        assert_eq!(
            (&same["write"], &same["restart"]),
            (&json!("unchanged"), &Value::Null),
            "{same:#}"
        );
        assert_eq!(action(&same, &workload), Some("unchanged"), "{same:#}");
        actor["spec"]["workload"]["template"]["spec"]["containers"][0]["image"] =
            json!("python:3.14-slim");
        let changed = preview(scenario, &actor, 0).await?;
        assert_eq!(
            (&changed["write"], &changed["restart"]["pods"]),
            (&json!("update"), &json!(1)),
            "{changed:#}"
        );
        assert_eq!(action(&changed, &workload), Some("change"), "{changed:#}");
        Ok(())
    })
    .await;
}

/// VAC-2: all errors, including those that only the API server's webhooks find, and none of the consequences.
#[tokio::test]
async fn invalid_actor_is_shown_with_all_its_errors() {
    Scenario::run("cli-preview-invalid", async |scenario| {
        let name = scenario.name("invalid");
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["runtime"] = json!({"targetURL": "ftp://model"});
        actor["spec"]["scalling"] = json!({});
        let invalid = preview(scenario, &actor, 1).await?;
        let ids: Vec<_> = invalid["validation"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| &it["id"])
            .collect();
        for id in ["ASYA-BIND-19", "ASYA-SchemaViolation"] {
            assert!(ids.contains(&&json!(id)), "{invalid:#}");
        }
        assert_eq!(invalid["changes"], json!([]), "{invalid:#}");

        let missing = preview(scenario, &bound_actor(&name, "missing"), 1).await?;
        assert_eq!(problems(&missing), ["ASYA-TargetNotFound"], "{missing:#}");
        Ok(())
    })
    .await;
}

/// Without a cluster, only the rules are evaluated; everything else is unknown.
#[tokio::test]
async fn without_a_cluster_only_the_rules_answer() {
    Scenario::run("cli-preview-alone", async |scenario| {
        let name = scenario.name("alone");
        let valid = written(scenario, &bound_actor(&name, "model"))?;
        let alone = ["preview", "--kubeconfig", UNREACHABLE, "-f", &valid];
        let told = asya(scenario, &alone).await?;
        assert_eq!(told.code, Some(2), "{}{}", told.out, told.err);
        assert!(told.err.contains("cannot reach"), "{}", told.err);
        assert!(told.out.contains("API server: unknown"), "{}", told.out);
        let mut invalid = bound_actor(&name, "model");
        invalid["spec"]["runtime"] = json!({"targetURL": "ftp://model"});
        written(scenario, &invalid)?;
        let told = asya(scenario, &alone).await?;
        assert_eq!(told.code, Some(1), "{}{}", told.out, told.err);
        assert!(told.out.contains("ASYA-BIND-19"), "{}", told.out);
        Ok(())
    })
    .await;
}
