//! An actor restored from a backup has a different uid than its children and its queue record.

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{minimal_actor, own_cluster};

/// The uid of the Deployment's controller.
fn controller(deployment: &Deployment) -> Option<String> {
    let owners = deployment.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| owner.uid.clone())
}

async fn uid(scenario: &Scenario, actor: &str) -> Result<String> {
    let actor = scenario.actors().get(actor).await?;
    Ok(actor.metadata.uid.unwrap_or_default())
}

/// Replaces the actor with one of the same name while the operator is down. Returns both uids.
async fn replace(scenario: &Scenario, manifest: &Value) -> Result<(String, String)> {
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    let before = uid(scenario, name).await?;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let (actors, params) = (scenario.actors(), PatchParams::default());
    actors.patch(name, &params, &none).await?;
    actors.delete(name, &DeleteParams::default()).await?;
    scenario.actor_gone(name, AFTER_START).await?;
    scenario.apply(manifest).await?;
    Ok((before, uid(scenario, name).await?))
}

/// D13 (architecture, section 6)
#[tokio::test]
async fn restored_actor_adopts_its_children() {
    let _turn = own_cluster().await;
    let mut cluster = RunningCluster::start(Options::default()).await.unwrap();
    let shared = Ok((*cluster).clone());
    Scenario::run_on(shared, "restored", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let mut instance = operator.start("operator").await?;
        let manifest = minimal_actor("phoenix");
        eventually("the CRD is served", AFTER_START, async || {
            scenario.apply(&manifest).await.map_err(NotYet::new)
        })
        .await?;
        scenario.actor_status("phoenix", "Running", AFTER_START).await?;
        let rabbitmq = cluster.rabbitmq()?;
        assert!(rabbitmq.publish("asya", "phoenix", "kept").await?);

        instance.stop().await?;
        // The garbage collector would delete the old actor's children.
        cluster.process("kube-controller-manager")?.kill().await;
        let deployments = scenario.api::<Deployment>();
        let made = deployments.get("phoenix").await?;
        let (before, after) = replace(scenario, &manifest).await?;
        assert_eq!(controller(&made), Some(before.clone()));
        instance.restart().await?;
        let adopted = eventually("the Deployment is the new actor's", AFTER_START, async || {
            let found = deployments.get("phoenix").await?;
            check(
                controller(&found).as_ref() == Some(&after),
                format_args!("{:?}", found.metadata.owner_references),
            )?;
            Ok(found)
        })
        .await?;
        assert_eq!(adopted.uid(), made.uid(), "it was recreated");
        assert_eq!(adopted.metadata.owner_references.map(|all| all.len()), Some(1));
        scenario.actor_status("phoenix", "Running", AFTER_START).await?;

        // An orphan of the old actor: its deletion proves that the garbage collector has run.
        let leftover: ConfigMap = serde_json::from_value(json!({"metadata": {
            "name": "leftover",
            "ownerReferences": [{
                "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "phoenix", "uid": before,
            }],
        }}))?;
        let config_maps = scenario.api::<ConfigMap>();
        config_maps
            .create(&PostParams::default(), &leftover)
            .await?;
        cluster.restart("kube-controller-manager").await?;
        eventually("the garbage collector has looked", AFTER_START, async || {
            let left = config_maps.get_opt("leftover").await?;
            check(left.is_none(), "what the former actor owned is there")
        })
        .await?;
        let kept = deployments.get("phoenix").await?;
        assert_eq!(kept.uid(), made.uid(), "the garbage collector took it");
        let messages = rabbitmq.messages("asya-phoenix", 9, false).await?;
        assert_eq!(messages, ["kept"]);
        Ok(())
    })
    .await;
}

/// FW-35
#[tokio::test]
async fn restored_actor_recognises_its_queue_at_sqs() {
    Scenario::run("recognised", async |scenario| {
        let name = scenario.name("phoenix");
        let mut actor = minimal_actor(&name);
        actor["spec"]["transport"] = json!("sqs");
        actor["spec"]["queue"] = json!({"deletionPolicy": "Retain"});
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", AFTER_START).await?;
        let before = uid(scenario, &name).await?;
        let (sqs, queue) = (scenario.cluster().sqs()?, format!("asya-{name}"));
        sqs.send(&queue, &["kept".to_owned()]).await?;
        let told = async || {
            let tags = sqs.tags(&queue).await?;
            Ok::<_, Error>(tags.get("asya.sh/uid").cloned().unwrap_or_default())
        };
        assert_eq!(told().await?, before);

        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        assert_eq!(
            told().await?,
            before,
            "the queue was not retained as it was"
        );
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", AFTER_START).await?;
        assert_eq!(told().await?, uid(scenario, &name).await?);
        assert_eq!(sqs.receive_all(&queue).await?, ["kept"]);
        Ok(())
    })
    .await;
}
