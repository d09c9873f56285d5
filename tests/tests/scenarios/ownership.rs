//! Objects and queues that do not belong to the actor are not touched.

mod races;

use asya_tests::Result;
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::minimal_actor;

/// Waits until a condition of an actor has this reason, and returns it.
pub(crate) async fn condition_with_reason(
    scenario: &Scenario,
    actor: &str,
    condition: &str,
    reason: &str,
) -> Result<Value> {
    eventually(
        format_args!("{condition} of {actor} is {reason}"),
        SOON,
        async || {
            let found = scenario.actors().get(actor).await?;
            let all = found.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let told = all
                .iter()
                .find(|each| each["type"] == condition && each["reason"] == reason);
            told.cloned().ok_or_else(|| NotYet::new(format!("{all:?}")))
        },
    )
    .await
}

fn foreign_deployment(name: &str) -> Result<Deployment> {
    let labels = json!({"app": "someone-elses"});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}},
        },
    }))?)
}

/// SA-3, OPS-7
#[tokio::test]
async fn foreign_deployment_of_the_name_is_neither_adopted_nor_deleted() {
    Scenario::run("foreign", async |scenario| {
        let name = scenario.name("taken");
        let made = scenario
            .api::<Deployment>()
            .create(&PostParams::default(), &foreign_deployment(&name)?)
            .await?;
        scenario.apply(&minimal_actor(&name)).await?;
        let condition = condition_with_reason(scenario, &name, "WorkloadReady", "NotOwned").await?;
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(&format!("{}/{name}", scenario.namespace())),
            "{message}"
        );
        scenario.actor_status(&name, "WorkloadError", SOON).await?;
        scenario.event("NotOwned", SOON).await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=30s"])
            .await?;
        let left = scenario.api::<Deployment>().get(&name).await?;
        assert_eq!(
            (left.metadata.uid, left.spec),
            (made.metadata.uid, made.spec)
        );
        Ok(())
    })
    .await;
}

/// FW-20
#[tokio::test]
async fn deployment_without_an_owner_is_adopted_only_on_request() {
    Scenario::run("adopt", async |scenario| {
        let name = scenario.name("loose");
        let mut loose = foreign_deployment(&name)?;
        // Selectors are immutable, so only a workload with our selector can be adopted.
        let labels = json!({"app": name, "asya.sh/asya": name, "asya.sh/workload": "deployment"});
        if let Some(spec) = loose.spec.as_mut() {
            spec.selector.match_labels = serde_json::from_value(labels.clone())?;
            if let Some(metadata) = spec.template.metadata.as_mut() {
                metadata.labels = serde_json::from_value(labels)?;
            }
        }
        let made = scenario
            .api::<Deployment>()
            .create(&PostParams::default(), &loose)
            .await?;
        let mut actor = minimal_actor(&name);
        scenario.apply(&actor).await?;
        condition_with_reason(scenario, &name, "WorkloadReady", "NotOwned").await?;
        actor["spec"]["adoptionPolicy"] = json!("IfUnowned");
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let adopted = scenario.api::<Deployment>().get(&name).await?;
        assert_eq!(adopted.metadata.uid, made.metadata.uid);
        let owners = adopted.metadata.owner_references.unwrap_or_default();
        assert!(
            owners
                .iter()
                .any(|owner| owner.name == name && owner.controller == Some(true)),
            "{owners:?}"
        );
        Ok(())
    })
    .await;
}

/// Creates a second namespace; returns its API and name, for the deletion.
async fn another_namespace(scenario: &Scenario, stem: &str) -> Result<(Api<Namespace>, String)> {
    let name = scenario.name(stem);
    let namespaces: Api<Namespace> = Api::all(scenario.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok((namespaces, name))
}

/// Applies an object in any namespace; returns the file that contains it.
async fn apply_file(scenario: &Scenario, object: &Value) -> Result<String> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let file = scenario
        .cluster()
        .folder()
        .join(format!("{namespace}.json"));
    std::fs::write(&file, object.to_string()).expect("the cluster's folder is writable");
    let file = file.display().to_string();
    scenario.cluster().kubectl(&["apply", "-f", &file]).await?;
    Ok(file)
}

/// QUE-3, FIN-4, VAL-16
#[tokio::test]
async fn younger_actor_waits_for_the_queue_and_never_deletes_it() {
    Scenario::run("claims", async |scenario| {
        let name = scenario.name("shared");
        let queue = format!("asya-{name}");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;

        let (namespaces, other) = another_namespace(scenario, "second").await?;
        let mut younger = minimal_actor(&name);
        younger["metadata"]["namespace"] = json!(other);
        let file = apply_file(scenario, &younger).await?;
        let waits = [
            "wait",
            "-n",
            &other,
            &format!("asya/{name}"),
            "--timeout=30s",
        ];
        let with = |condition: &'static str| [&waits[..], &[condition]].concat();
        scenario
            .cluster()
            .kubectl(&with("--for=jsonpath={.status.status}=TransportError"))
            .await?;
        let cause =
            "jsonpath={.status.conditions[?(@.type=='TransportReady')]['reason', 'message']}";
        let told = scenario
            .cluster()
            .kubectl(&["get", "asya", &name, "-n", &other, "-o", cause])
            .await?;
        let owner = format!("{}/{name}", scenario.namespace());
        let wanted =
            format!("QueueConflict spec.transport: queue {queue} already belongs to {owner};");
        assert!(told.starts_with(&wanted), "{told}");
        let made = scenario
            .cluster()
            .kubectl(&["get", "deployments", "-n", &other, "-o", "name"])
            .await?;
        assert_eq!(made.trim(), "", "it has no queue and so needs no pods");

        scenario
            .cluster()
            .kubectl(&["delete", "asya", "-n", &other, &name, "--timeout=30s"])
            .await?;
        let rabbitmq = scenario.cluster().rabbitmq()?;
        assert!(
            rabbitmq.queue(&queue).await?.is_some(),
            "the queue of another actor is gone"
        );

        scenario.cluster().kubectl(&["apply", "-f", &file]).await?;
        scenario
            .cluster()
            .kubectl(&with("--for=jsonpath={.status.status}=TransportError"))
            .await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        scenario
            .cluster()
            .kubectl(&with("--for=jsonpath={.status.status}=Running"))
            .await?;
        scenario
            .cluster()
            .kubectl(&["delete", "asya", "-n", &other, &name, "--timeout=60s"])
            .await?;
        namespaces.delete(&other, &DeleteParams::default()).await?;
        Ok(())
    })
    .await;
}

/// A second actor with the same name and queue, in its own namespace.
struct Second {
    namespaces: Api<Namespace>,
    namespace: String,
    deployments: Api<Deployment>,
    /// Its Deployment, as created by the Go operator.
    made: Box<Deployment>,
}

impl Second {
    /// Returns when the first actor is Running, and the second is paused and has a workload with two pods.
    async fn begin(scenario: &Scenario, name: &str) -> Result<Self> {
        scenario.apply(&minimal_actor(name)).await?;
        scenario.actor_status(name, "Running", SOON).await?;

        let (namespaces, namespace) = another_namespace(scenario, "there").await?;
        let mut second = minimal_actor(name);
        second["metadata"]["namespace"] = json!(namespace);
        second["metadata"]["annotations"] = json!({"asya.sh/paused": "true"});
        apply_file(scenario, &second).await?;
        let uid = [
            "get",
            "asya",
            "-n",
            &namespace,
            name,
            "-o",
            "jsonpath={.metadata.uid}",
        ];
        let uid = scenario.cluster().kubectl(&uid).await?;
        let labels = json!({"app": name, "asya.sh/asya": name, "asya.sh/workload": "deployment"});
        let mut made = foreign_deployment(name)?;
        made.metadata.owner_references = serde_json::from_value(json!([{
            "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": name, "uid": uid, "controller": true,
        }]))?;
        if let Some(spec) = made.spec.as_mut() {
            spec.replicas = Some(2);
            spec.selector.match_labels = serde_json::from_value(labels.clone())?;
            if let Some(metadata) = spec.template.metadata.as_mut() {
                metadata.labels = serde_json::from_value(labels)?;
            }
        }
        let deployments: Api<Deployment> = Api::namespaced(scenario.client(), &namespace);
        let made = deployments.create(&PostParams::default(), &made).await?;
        let begun = Self {
            namespaces,
            namespace,
            deployments,
            made: Box::new(made),
        };
        begun.asks_for(2, name).await?;
        second["metadata"]["annotations"] = json!({});
        apply_file(scenario, &second).await?;
        Ok(begun)
    }

    /// Waits until the Deployment requests this many pods; returns it.
    async fn asks_for(&self, wanted: i32, name: &str) -> Result<Deployment> {
        eventually(
            format_args!("{wanted} pods are asked for"),
            SOON,
            async || {
                let found = self.deployments.get(name).await?;
                let asked = found.spec.as_ref().and_then(|spec| spec.replicas);
                check(asked == Some(wanted), format_args!("{asked:?}"))?;
                Ok(found)
            },
        )
        .await
    }

    /// Waits until a field of its status has this value.
    async fn status_field_is(
        &self,
        scenario: &Scenario,
        name: &str,
        field: &str,
        value: &str,
    ) -> Result<()> {
        let until = format!("--for=jsonpath={{.status.{field}}}={value}");
        let (actor, namespace) = (format!("asya/{name}"), &*self.namespace);
        let wait = ["wait", "-n", namespace, &actor, "--timeout=30s", &until];
        scenario.cluster().kubectl(&wait).await.map(drop)
    }

    async fn delete(&self, scenario: &Scenario, name: &str) -> Result<()> {
        let delete = [
            "delete",
            "asya",
            "-n",
            &self.namespace,
            name,
            "--timeout=30s",
        ];
        scenario.cluster().kubectl(&delete).await.map(drop)
    }
}

/// QUE-3, WRK-7
#[tokio::test]
async fn pods_on_anothers_queue_are_stopped_until_their_actor_owns_it() {
    Scenario::run("stopped", async |scenario| {
        let name = scenario.name("both");
        // Two actors with the same name shared a queue; the second already has a workload.
        let second = Box::pin(Second::begin(scenario, &name)).await?;
        let stopped = second.asks_for(0, &name).await?;
        let made = &second.made;
        assert_eq!(stopped.metadata.uid, made.metadata.uid, "it is still there");
        let containers = |it: &Deployment| it.spec.as_ref().map(|it| it.template.spec.clone());
        assert_eq!(containers(&stopped), containers(made), "and as it was");
        let until = async |wanted| {
            second
                .status_field_is(scenario, &name, "status", wanted)
                .await
        };
        until("TransportError").await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        until("Running").await?;
        let runs = second.asks_for(1, &name).await?;
        assert_eq!(runs.metadata.uid, made.metadata.uid);
        let rabbitmq = scenario.cluster().rabbitmq()?;
        assert!(rabbitmq.queue(&format!("asya-{name}")).await?.is_some());
        second.delete(scenario, &name).await?;
        second
            .namespaces
            .delete(&second.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    })
    .await;
}

/// FIN-2, FIN-4, STA-1: a workload without our labels is in no watch cache.
#[tokio::test]
async fn actor_with_an_unwatched_stopped_workload_is_deleted() {
    Scenario::run("unseen", async |scenario| {
        let name = scenario.name("both");
        let second = Box::pin(Second::begin(scenario, &name)).await?;
        second.asks_for(0, &name).await?;
        second
            .status_field_is(scenario, &name, "totalReplicas", "0")
            .await?;
        second.delete(scenario, &name).await?;
        let left = second.deployments.get_opt(&name).await?;
        assert!(left.is_none(), "the Deployment outlived its actor");
        let rabbitmq = scenario.cluster().rabbitmq()?;
        let queue = rabbitmq.queue(&format!("asya-{name}")).await?;
        assert!(queue.is_some(), "the queue of another actor is gone");
        second
            .namespaces
            .delete(&second.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    })
    .await;
}
