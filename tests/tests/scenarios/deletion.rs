//! Actors are deleted whatever else happens, and leave nothing behind.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::{Operator, RABBITMQ_SECRET, create_broker_secrets};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::{minimal_actor, own_cluster};

/// Allows for the backoff after the broker is lost.
const LATER: Duration = Duration::from_mins(2);
const BOOT: Duration = Duration::from_mins(4);

async fn has_queue(cluster: &Cluster, actor: &str) -> Result<bool> {
    let queue = cluster.rabbitmq()?.queue(&format!("asya-{actor}")).await?;
    Ok(queue.is_some())
}

/// A running actor.
async fn running(scenario: &Scenario, base: &str) -> Result<String> {
    let name = scenario.name(base);
    scenario.apply(&minimal_actor(&name)).await?;
    scenario.actor_status(&name, "Running", SOON).await?;
    Ok(name)
}

/// FIN-2
#[tokio::test]
async fn foreground_deletion_removes_pods_before_the_queue() {
    Scenario::run("foreground", async |scenario| {
        let name = scenario.name("watched");
        let mut actor = minimal_actor(&name);
        actor["spec"]["workload"]["template"]["metadata"]["labels"] =
            json!({"kwok.test/mode": "slowstop"});
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        scenario
            .actors()
            .delete(&name, &DeleteParams::foreground())
            .await?;
        let pods = ListParams::default().labels(&format!("asya.sh/asya={name}"));
        let mut queue_stood = false;
        eventually("its pods are gone", SOON, async || {
            // Read the queue first, so that the pods listed next are not older.
            let queue = has_queue(scenario.cluster(), &name)
                .await
                .map_err(NotYet::new)?;
            let pods = scenario.api::<Pod>().list(&pods).await?.items.len();
            queue_stood |= queue && pods > 0;
            assert!(queue || pods == 0, "the queue went from under {pods} pods");
            check(pods == 0, format_args!("{pods} pods"))
        })
        .await?;
        assert!(queue_stood, "nobody saw a pod on its way out");
        scenario.actor_gone(&name, SOON).await?;
        assert!(!has_queue(scenario.cluster(), &name).await?);
        let left = scenario.api::<Deployment>().get_opt(&name).await?;
        assert!(left.is_none(), "the Deployment outlived its actor");
        Ok(())
    })
    .await;
}

/// QUE-34: anyone who may write an actor's status can name any queue in it.
#[tokio::test]
async fn queue_that_only_the_status_claims_survives_the_actor() {
    Scenario::run("forged", async |scenario| {
        let (name, victim) = (running(scenario, "forger").await?, scenario.name("victim"));
        let rabbitmq = scenario.cluster().rabbitmq()?;
        rabbitmq.declare(&victim, json!({})).await?;
        assert!(rabbitmq.publish("", &victim, "precious").await?);
        let forged = json!({"status": {"queue": {"name": victim, "transport": "rabbitmq"}}});
        let params = PatchParams::default();
        scenario
            .actors()
            .patch_status(&name, &params, &Patch::Merge(&forged))
            .await?;
        scenario
            .actors()
            .delete(&name, &DeleteParams::default())
            .await?;
        scenario.actor_gone(&name, SOON).await?;
        assert_eq!(rabbitmq.messages(&victim, 2, true).await?, ["precious"]);
        scenario.event("QueueLeft", SOON).await?;
        rabbitmq.delete_queue(&victim).await?;
        Ok(())
    })
    .await;
}

/// FIN-2, STA-4 row 1: whether or not there is anything to delete, and whoever else holds a finalizer.
#[tokio::test]
async fn deletion_reports_progress_even_if_one_reconcile_completes_it() {
    Scenario::run("ends", async |scenario| {
        let (empty, full) = (scenario.name("empty"), scenario.name("full"));
        let mut nothing = minimal_actor(&empty);
        nothing["spec"]["workload"]["template"]["spec"]["containers"][0]["command"] = json!(["sh"]);
        let mut pods = minimal_actor(&full);
        pods["spec"]["workload"]["template"]["metadata"]["labels"] =
            json!({"kwok.test/mode": "slowstop"});
        for actor in [&mut nothing, &mut pods] {
            actor["metadata"]["finalizers"] = json!(["example.com/backup"]);
            scenario.apply(actor).await?;
        }
        scenario.actor_status(&empty, "WorkloadError", SOON).await?;
        let running = scenario.actor_status(&full, "Running", SOON).await?;
        assert_eq!(running.data["status"]["inventory"][0]["phase"], "Applied");
        for name in [&empty, &full] {
            let actors = scenario.actors();
            actors.delete(name, &DeleteParams::default()).await?;
            let found = scenario.actor_status(name, "Terminating", SOON).await?;
            for entry in found.data["status"]["inventory"]
                .as_array()
                .into_iter()
                .flatten()
            {
                assert_eq!(entry["phase"], "Deleting", "{entry}");
            }
            eventually("only the other finalizer holds it", SOON, async || {
                let left = actors
                    .get(name)
                    .await?
                    .metadata
                    .finalizers
                    .unwrap_or_default();
                check(left == ["example.com/backup"], format_args!("{left:?}"))
            })
            .await?;
            let release = json!({"metadata": {"finalizers": null}});
            actors
                .patch(name, &PatchParams::default(), &Patch::Merge(release))
                .await?;
            scenario.actor_gone(name, SOON).await?;
        }
        Ok(())
    })
    .await;
}

/// FIN-2, STA-7: an admission policy denies the deletion of a child.
#[tokio::test]
async fn refused_workload_deletion_is_reported_and_retried() {
    Scenario::run("kept", async |scenario| {
        let name = running(scenario, "kept").await?;
        let (namespace, policy) = (scenario.namespace(), scenario.name("keep"));
        let refuses = [
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": policy},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                        "resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["DELETE"]}],
                    },
                    "validations": [{"expression": "false", "message": "workloads are kept here"}],
                },
            }),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": policy},
                "spec": {"policyName": policy, "validationActions": ["Deny"]},
            }),
        ];
        scenario.apply_all(&refuses).await?;
        let deployments = scenario.api::<Deployment>();
        eventually("nobody may delete it", SOON, async || {
            let tried = deployments.delete(&name, &DeleteParams::default().dry_run()).await;
            check(tried.is_err(), "it may be deleted")
        })
        .await?;
        let actors = scenario.actors();
        actors.delete(&name, &DeleteParams::default()).await?;
        eventually("its status says what keeps it", SOON, async || {
            let status = actors.get(&name).await?.data["status"].clone();
            let told = status["conditions"].as_array().into_iter().flatten().any(|each| {
                each["type"] == "Ready"
                    && each["status"] == "False"
                    && each["reason"] == "ReconcileError"
                    && each["message"].as_str().is_some_and(|text| text.contains("workloads are kept here"))
            });
            check(told && status["status"] == "Terminating", status)
        })
        .await?;
        let kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings";
        scenario.kubectl(&["delete", kinds, &policy]).await?;
        eventually("it may be deleted", SOON, async || {
            let tried = deployments.delete(&name, &DeleteParams::default().dry_run()).await;
            check(tried.is_ok(), "nobody may delete it")
        })
        .await?;
        // A change of the spec triggers a reconcile.
        let change = json!({"spec": {"timeout": {"processing": 301}}});
        actors
            .patch(&name, &PatchParams::default(), &Patch::Merge(change))
            .await?;
        scenario.actor_gone(&name, SOON).await?;
        Ok(())
    })
    .await;
}

/// Deletes an actor, and waits until its status reports what blocks the deletion.
async fn held(scenario: &Scenario, name: &str, says: &str) -> Result<()> {
    let actors = scenario.actors();
    actors.delete(name, &DeleteParams::default()).await?;
    eventually(format_args!("{name} is held: {says}"), LATER, async || {
        let status = actors.get(name).await?.data["status"].clone();
        let told = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|each| {
                each["type"] == "TransportReady"
                    && each["status"] == "False"
                    && each["reason"] == "QueueDeletionFailed"
                    && each["message"]
                        .as_str()
                        .is_some_and(|text| text.contains(says))
            });
        check(told && status["status"] == "Terminating", status)
    })
    .await?;
    scenario.event("QueueDeletionFailed", SOON).await?;
    let left = scenario.api::<Deployment>().get_opt(name).await?;
    assert!(left.is_none(), "the workload does not wait for the broker");
    Ok(())
}

async fn forget_password(cluster: &Cluster, namespace: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace);
    secrets
        .delete(RABBITMQ_SECRET, &DeleteParams::default())
        .await?;
    Ok(())
}

/// FIN-3, FIN-5, SEC-1
#[tokio::test]
async fn deletion_waits_for_broker_and_credentials_and_completes_with_the_namespace() {
    let _turn = own_cluster().await;
    let options = Options {
        own_rabbitmq: true,
        ..Options::default()
    };
    let mut cluster = RunningCluster::start(options).await.unwrap();
    let shared = cluster.clone();
    Scenario::run_on(Ok(shared.clone()), "held", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let mut instance = operator.start("operator").await?;

        let name = running(scenario, "broker").await?;
        cluster.process("rabbitmq")?.kill().await;
        held(scenario, &name, "cannot be deleted").await?;
        cluster.restart("rabbitmq").await?;
        // On a busy machine it takes longer to start than the operator then waits.
        eventually("the broker responds", BOOT, async || {
            has_queue(&cluster, &name).await.map_err(NotYet::new)
        })
        .await?;
        scenario.actor_gone(&name, LATER).await?;
        assert!(!has_queue(&cluster, &name).await?, "the queue leaked");

        // From now on, the password exists only in the actors' namespace.
        forget_password(&cluster, operator.namespace()).await?;
        let name = running(scenario, "password").await?;
        forget_password(&cluster, scenario.namespace()).await?;
        // Restart, because a cached password would work for a few more minutes.
        instance.stop().await?;
        instance.restart().await?;
        instance.wait_ready().await?;
        held(scenario, &name, RABBITMQ_SECRET).await?;
        assert!(has_queue(&cluster, &name).await?);
        create_broker_secrets(&cluster.client(), scenario.namespace()).await?;
        scenario.actor_gone(&name, LATER).await?;
        assert!(!has_queue(&cluster, &name).await?, "the queue leaked");

        let names = [
            running(scenario, "first").await?,
            running(scenario, "second").await?,
        ];
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        namespaces
            .delete(scenario.namespace(), &DeleteParams::default())
            .await?;
        eventually("the namespace is gone", LATER, async || {
            match namespaces.get_opt(scenario.namespace()).await? {
                None => Ok(()),
                Some(found) => Err(NotYet::new(format_args!("{:?}", found.status))),
            }
        })
        .await?;
        for name in &names {
            assert!(
                !has_queue(&cluster, name).await?,
                "the queue of {name} leaked"
            );
        }
        Ok(())
    })
    .await;
}
