//! Strategy Template: the sidecar is part of the target's pod template.

use std::time::Duration;

use asya_shared::names::annotation;
use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::argo::{Argo, Sync};
use asya_tests::owners::kaito::{WORKSPACE, workspace};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::argo::manifest;
use super::conflicts::{GIVEN_UP, conflict};
use super::{edit, somebody};
use crate::binding::{bound_actor, condition, status_is};

const DEPLOYMENT: Kind = Kind::DEPLOYMENT;
/// The template is changed back after a dry run, which replaces all pods.
const ROLLED: Duration = Duration::from_mins(2);

/// An actor that binds Deployment "model" through its template.
async fn bind(scenario: &Scenario) -> Result<String> {
    let name = scenario.name("actor");
    let mut actor = bound_actor(&name, "model");
    actor["spec"]["binding"] = json!({"strategy": "Template"});
    actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
    scenario.apply(&actor).await?;
    Ok(name)
}

/// Like [`bind`], but returns once all pods have the sidecar.
async fn bind_all(scenario: &Scenario) -> Result<String> {
    let name = bind(scenario).await?;
    status_is(scenario, &name, "all pods have it", SOON, |status| {
        condition(status, "Injected") == ("True", "AllPodsInjected")
    })
    .await?;
    Ok(name)
}

/// Makes a Workspace the owner of the Deployment.
async fn is_owned(scenario: &Scenario, client: &RecordingClient) -> Result<()> {
    let phi = client.create(WORKSPACE, &workspace("phi", "phi-4")).await?;
    let reference = json!({
        "apiVersion": WORKSPACE.api_version(), "kind": "Workspace", "name": "phi",
        "uid": phi["metadata"]["uid"], "controller": true,
    });
    let owned = json!({"metadata": {"ownerReferences": [reference]}});
    edit(scenario, DEPLOYMENT, "model", &owned).await
}

async fn template(client: &RecordingClient) -> Result<Value> {
    let live = client.get(DEPLOYMENT, "model").await?.unwrap_or_default();
    Ok(live["spec"]["template"].clone())
}

fn names(spec: &Value) -> Vec<&str> {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    containers
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect()
}

/// Waits until all pods have exactly these containers.
async fn pods_have(client: &RecordingClient, wanted: &[&str]) -> Result<()> {
    eventually("all pods are as the template says", SOON, async || {
        let pods = client.list(Kind::POD).await?;
        let all: Vec<_> = pods.iter().map(|pod| names(&pod["spec"])).collect();
        check(all == [wanted, wanted], format_args!("{all:?}"))
    })
    .await
}

/// BIND-50, BIND-8, BIND-43
#[tokio::test]
async fn sidecar_stays_in_the_template_until_the_actor_is_deleted() {
    Scenario::run("in-template", async |scenario| {
        let client = somebody(scenario);
        client
            .create(DEPLOYMENT, &manifest("model", Some(2)))
            .await?;
        let before = template(&client).await?;
        let name = bind(scenario).await?;
        let status = status_is(scenario, &name, "all pods have it", SOON, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["status"] == "Running"
        })
        .await?;
        let pods = json!({"matched": 2, "injected": 2, "notInjected": 0, "outdated": 0});
        assert_eq!(status["pods"], pods);
        assert_eq!(condition(&status, "Conflict"), ("False", "NoConflict"));
        let all = ["model", "asya-runtime", "asya-sidecar"];
        assert_eq!(names(&template(&client).await?["spec"]), all);
        pods_have(&client, &all).await?;

        // Other changes to the Deployment do not touch our part and cause no write.
        let audit = scenario.cluster().audit();
        let (mark, user) = (audit.mark().await?, scenario.cluster().operator_user()?);
        let other = json!({"metadata": {"labels": {"team": "b"}}, "spec": {"replicas": 3}});
        edit(scenario, DEPLOYMENT, "model", &other).await?;
        status_is(scenario, &name, "the third has it", SOON, |status| {
            status["pods"]["injected"] == 3 && status["desiredReplicas"] == 3
        })
        .await?;
        let mut writes = audit.writes_in(mark, scenario.namespace()).await?;
        writes.retain(|it| it.user == user && it.resource == "deployments");
        assert_eq!(writes.len(), 0, "{writes:?}");
        edit(
            scenario,
            DEPLOYMENT,
            "model",
            &json!({"spec": {"replicas": 2}}),
        )
        .await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, SOON).await?;
        assert_eq!(template(&client).await?, before, "as before");
        pods_have(&client, &["model"]).await
    })
    .await;
}

/// BIND-45, BIND-50
#[tokio::test]
async fn sidecar_that_a_deleted_actor_left_in_the_template_is_replaced_by_the_next_actors() {
    Scenario::run("template-left", async |scenario| {
        let client = somebody(scenario);
        client
            .create(DEPLOYMENT, &manifest("model", Some(2)))
            .await?;
        let before = template(&client).await?;
        let first = bind(scenario).await?;
        let injected =
            |status: &Value| condition(status, "Injected") == ("True", "AllPodsInjected");
        status_is(scenario, &first, "all pods have it", SOON, injected).await?;
        scenario
            .kubectl(&["annotate", "asya", &first, "asya.sh/skip-unbind=true"])
            .await?;
        scenario
            .kubectl(&["delete", "asya", &first, "--wait=false"])
            .await?;
        scenario.actor_gone(&first, SOON).await?;
        assert_ne!(template(&client).await?, before, "it is left");

        let next = scenario.name("next");
        let mut actor = bound_actor(&next, "model");
        actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
        scenario.apply(&actor).await?;
        status_is(scenario, &next, "all pods have its own", ROLLED, |status| {
            injected(status) && status["pods"]["injected"] == 2
        })
        .await?;
        assert_eq!(template(&client).await?["spec"], before["spec"]);
        let pods = client.list(Kind::POD).await?;
        for pod in pods {
            let queues = pod["spec"].to_string();
            assert!(queues.contains(&next) && !queues.contains(&first), "{pod}");
        }
        Ok(())
    })
    .await;
}

/// BIND-50
#[tokio::test]
async fn sidecar_is_removed_from_a_template_that_gets_an_owner() {
    Scenario::run("template-owned", async |scenario| {
        crds::install(scenario.cluster(), &[WORKSPACE]).await?;
        let client = somebody(scenario);
        client
            .create(DEPLOYMENT, &manifest("model", Some(2)))
            .await?;
        let before = template(&client).await?;
        let name = bind_all(scenario).await?;
        is_owned(scenario, &client).await?;
        let status = status_is(scenario, &name, "it is refused", SOON, |status| {
            condition(status, "Injected") == ("False", "StrategyNotAllowed")
                && status["template"].is_null()
        })
        .await?;
        assert!(
            status["conditions"].to_string().contains("Workspace/phi"),
            "{status}"
        );
        assert_eq!(template(&client).await?, before, "as before");
        pods_have(&client, &["model"]).await
    })
    .await;
}

/// BIND-45, BIND-50
#[tokio::test]
async fn sidecar_is_removed_when_an_older_actor_binds_the_template() {
    Scenario::run("template-ceded", async |scenario| {
        crds::install(scenario.cluster(), &[WORKSPACE]).await?;
        let client = somebody(scenario);
        let older = scenario.name("older");
        let mut actor = bound_actor(&older, "phi");
        let kind = [WORKSPACE.api_version(), WORKSPACE.kind.to_owned()];
        actor["spec"]["workloadRef"] =
            json!({"apiVersion": kind[0], "kind": kind[1], "name": "phi"});
        scenario.apply(&actor).await?;
        status_is(scenario, &older, "its target is missing", SOON, |status| {
            condition(status, "TargetResolved") == ("False", "TargetNotFound")
                && status["boundSince"].is_string()
        })
        .await?;
        let created = scenario.actors().get(&older).await?.metadata;
        let created = created.creation_timestamp.map(|it| it.0);
        eventually("the next is younger", SOON, async || {
            let now = Timestamp::now();
            check(
                created.is_some_and(|it| it.as_second() < now.as_second()),
                now,
            )
        })
        .await?;

        let mut manifest = manifest("model", Some(2));
        manifest["spec"]["template"]["metadata"]["labels"]["kaito.sh/workspace"] = json!("phi");
        client.create(DEPLOYMENT, &manifest).await?;
        let before = template(&client).await?;
        let name = bind_all(scenario).await?;

        // Pause both, so that the older actor later finds the template as the younger left it.
        for actor in [&older, &name] {
            let paused = format!("{}=true", annotation::PAUSED);
            scenario
                .kubectl(&["annotate", "asya", actor, &paused])
                .await?;
        }
        is_owned(scenario, &client).await?;
        let resumed = format!("{}-", annotation::PAUSED);
        scenario
            .kubectl(&["annotate", "asya", &older, &resumed])
            .await?;
        status_is(scenario, &older, "it is bound", SOON, |status| {
            condition(status, "TargetResolved") == ("True", "Resolved")
        })
        .await?;
        let rollouts = async || {
            let live = client.get(DEPLOYMENT, "model").await?.unwrap_or_default();
            let revision = &live["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            Ok::<_, asya_tests::Error>(revision.clone())
        };
        assert_eq!(rollouts().await?, "2", "made, and injected");
        scenario
            .kubectl(&["annotate", "asya", &name, &resumed])
            .await?;

        let status = status_is(scenario, &name, "it gives way", SOON, |status| {
            condition(status, "TargetResolved") == ("False", "AlreadyBound")
                && status["template"].is_null()
        })
        .await?;
        assert_eq!(status["conflictCount"], 0, "{status}");
        let what = "all pods have the older one's";
        status_is(scenario, &older, what, SOON, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["pods"]["injected"] == 2
        })
        .await?;
        assert_eq!(template(&client).await?, before, "as before");
        pods_have(&client, &["model", "asya-runtime", "asya-sidecar"]).await?;
        assert_eq!(rollouts().await?, "3", "one restart more");

        // Deleting the younger actor leaves no trace.
        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, SOON).await?;
        let status = scenario.actors().get(&older).await?.data["status"].clone();
        assert_eq!(status["pods"]["injected"], 2, "{status}");
        Ok(())
    })
    .await;
}

/// CONF-1, CONF-8, CONF-10, BIND-7
#[tokio::test]
async fn reverted_template_is_written_five_times() {
    Scenario::run("template-replaced", async |scenario| {
        let owner = Owner::start(
            scenario,
            Argo::new(manifest("model", Some(2)), Sync::Replace),
        );
        owner.rounds(1).await?;
        let since = scenario.cluster().audit().mark().await?;
        let name = bind(scenario).await?;
        let status = status_is(scenario, &name, "it is given up", GIVEN_UP, |status| {
            status["conflicts"][0]["state"] == "Stopped"
                && condition(status, "Injected").0 == "False"
        })
        .await?;
        assert_eq!(condition(&status, "Conflict"), ("True", "BindingConflict"));
        assert_eq!(status["conflictCount"], 5, "{status}");
        let lost = conflict(&status);
        let field = "spec.template.spec.containers[asya-runtime]";
        assert_eq!(
            (&lost["part"], &lost["field"]),
            (&json!("Template"), &json!(field))
        );
        assert_eq!(
            lost["rival"], "probably argocd-controller (Update)",
            "{status}"
        );
        let user = scenario.cluster().operator_user()?;
        let audit = scenario.cluster().audit();
        let mut writes = audit.writes_in(since, scenario.namespace()).await?;
        writes.retain(|it| it.resource == "deployments" && it.user == user);
        // Each attempt is a dry run and a write; one more write records who binds the target.
        assert!(writes.len() <= 10 + 1, "{writes:?}");
        owner.rounds(10).await?;
        let client = somebody(scenario);
        assert_eq!(names(&template(&client).await?["spec"]), ["model"]);
        pods_have(&client, &["model"]).await?;

        // The webhook does not handle its pods, so it is not to blame for them.
        let pods = client.list(Kind::POD).await?;
        client.delete(Kind::POD, &pods[0]).await?;
        status_is(
            scenario,
            &name,
            "its replacement is counted",
            SOON,
            |status| {
                let reasons = status["pods"]["reasons"].as_array();
                let mut reasons = reasons.into_iter().flatten().map(|it| &it["reason"]);
                status["pods"]["matched"] == 2 && reasons.any(|it| it == "NotInTemplate")
            },
        )
        .await?;
        Ok(())
    })
    .await;
}

/// CONF-7, CONF-10: an image that another tool forces into our container is kept, and the tool is named.
#[tokio::test]
async fn forced_field_in_our_part_of_the_template_is_kept_and_reported() {
    Scenario::run("template-forced", async |scenario| {
        let client = somebody(scenario);
        client
            .create(DEPLOYMENT, &manifest("model", Some(2)))
            .await?;
        let name = bind_all(scenario).await?;
        let sidecar = json!({"name": "asya-sidecar", "image": "mirror/sidecar:9"});
        let forced = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "model"},
            "spec": {"template": {"spec": {"containers": [sidecar]}}},
        });
        let params = PatchParams::apply("image-updater").force();
        let deployments = client.api(DEPLOYMENT);
        deployments
            .patch("model", &params, &Patch::Apply(&forced))
            .await?;

        let status = status_is(scenario, &name, "it is given up", GIVEN_UP, |status| {
            status["conflicts"][0]["state"] == "Stopped"
                && condition(status, "Injected") == ("True", "AllPodsInjected")
        })
        .await?;
        let lost = conflict(&status);
        let field = "spec.template.spec.containers[asya-sidecar].image";
        assert_eq!(
            (&lost["part"], &lost["count"]),
            (&json!("Template"), &json!(5))
        );
        assert_eq!(lost["field"], field, "{status}");
        assert_eq!(lost["rival"], "image-updater", "{status}");
        let spec = &template(&client).await?["spec"];
        assert_eq!(names(spec), ["model", "asya-runtime", "asya-sidecar"]);
        assert_eq!(spec["containers"][2]["image"], "mirror/sidecar:9");

        // Our part is removed with the actor; the other manager's field stays.
        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, SOON).await?;
        let spec = &template(&client).await?["spec"];
        assert_eq!(names(spec), ["model", "asya-sidecar"]);
        assert_eq!(spec["containers"][1]["image"], "mirror/sidecar:9");
        Ok(())
    })
    .await;
}

/// BIND-44, BIND-50: otherwise evicted pods would get the sidecar again, endlessly.
#[tokio::test]
async fn exported_template_keeps_the_sidecar_and_its_pods_until_its_manifest_is_changed() {
    Scenario::run("template-exported", async |scenario| {
        let client = somebody(scenario);
        client
            .create(DEPLOYMENT, &manifest("model", Some(2)))
            .await?;
        let before = template(&client).await?;
        let name = bind_all(scenario).await?;
        let deployments = client.api(DEPLOYMENT);
        let sync = async |template: Value| {
            let manifest = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "model"},
                "spec": {"template": template},
            });
            let params = PatchParams::apply("argocd").force();
            deployments
                .patch("model", &params, &Patch::Apply(&manifest))
                .await
        };
        sync(template(&client).await?).await?;
        let uids = async || -> Result<Vec<Value>> {
            let pods = client.list(Kind::POD).await?;
            let uids = pods.iter().map(|pod| pod["metadata"]["uid"].clone());
            Ok(uids.collect())
        };
        let exported = uids().await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        let text = "Deployment/model: another field manager keeps the sidecar in its pod template";
        let blocked = |status: &Value| {
            let texts = status["conditions"].to_string();
            condition(status, "Ready") == ("False", "UnbindBlocked") && texts.contains(text)
        };
        status_is(scenario, &name, "it is blocked", SOON, blocked).await?;
        assert_eq!(uids().await?, exported, "no pod is evicted");

        sync(before).await?;
        scenario.actor_gone(&name, ROLLED).await?;
        pods_have(&client, &["model"]).await
    })
    .await;
}

/// SAFE-39, BIND-50: a template whose pods are rejected would never complete its rollout.
#[tokio::test]
async fn template_whose_pods_a_quota_refuses_is_not_written_until_there_is_room() {
    Scenario::run("template-refused", async |scenario| {
        let client = somebody(scenario);
        let mut deployment = manifest("model", Some(2));
        let memory = json!({"limits": {"memory": "64Mi"}});
        deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = memory;
        // Room for twice the pods, but not for one sidecar.
        let quota = |memory: &str| {
            serde_json::from_value::<ResourceQuota>(json!({
                "metadata": {"name": "tight"}, "spec": {"hard": {"limits.memory": memory}},
            }))
        };
        let quotas = scenario.api::<ResourceQuota>();
        quotas
            .create(&PostParams::default(), &quota("300Mi")?)
            .await?;
        client.create(DEPLOYMENT, &deployment).await?;
        pods_have(&client, &["model"]).await?;
        let before = template(&client).await?;
        let name = scenario.name("actor");
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["binding"] = json!({"strategy": "Template"});
        actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
        actor["spec"]["sidecar"] = json!({"resources": {"limits": {"memory": "400Mi"}}});
        scenario.apply(&actor).await?;
        let refused = |status: &Value| {
            let text = status["conditions"].to_string();
            condition(status, "Injected") == ("False", "ProbeRejected")
                && text.contains("exceeded quota: tight")
        };
        let status = status_is(scenario, &name, "it is refused", SOON, refused).await?;
        assert_eq!(status["template"], Value::Null, "{status}");
        // Another reconcile of the target changes nothing.
        let labelled = json!({"metadata": {"labels": {"team": "b"}}});
        edit(scenario, DEPLOYMENT, "model", &labelled).await?;
        status_is(scenario, &name, "it still is", SOON, refused).await?;
        assert_eq!(template(&client).await?, before);
        pods_have(&client, &["model"]).await?;

        let room = Patch::Merge(json!({"spec": {"hard": {"limits.memory": "4Gi"}}}));
        quotas
            .patch("tight", &PatchParams::default(), &room)
            .await?;
        status_is(scenario, &name, "all pods have it", SOON, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
        })
        .await?;
        pods_have(&client, &["model", "asya-runtime", "asya-sidecar"]).await
    })
    .await;
}
