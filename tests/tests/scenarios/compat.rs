//! Manifests, Secrets and chart values of the Go operator's users work unchanged.

use asya_tests::cluster::Cluster;
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::{Operator, RABBITMQ_SECRET, SQS_SECRET, merge};
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{PodTemplateSpec, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{cluster_with_all, own_cluster};

const ACTORS: &str = include_str!("../../corpus/former.yaml");
const SECRETS: &str = include_str!("../../compat/secrets.yaml");
const VALUES: &str = include_str!("../../../charts/asya-operator/tests/compat-values.yaml");
/// The namespace in the manifests.
const NAMESPACE: &str = "compat";

/// The users' values, unchanged except for the broker addresses.
fn values(cluster: &Cluster) -> Result<Value> {
    let mut values: Value = serde_saphyr::from_str(VALUES).map_err(Error::other)?;
    let rabbitmq = cluster.rabbitmq()?;
    let state = rabbitmq.state();
    let addresses = json!({"transports": {
        "rabbitmq": {"config": {
            "host": state.host,
            "port": state.port,
            "management": {"port": state.management_port},
        }},
        "sqs": {"config": {"endpoint": cluster.state().sqs}},
    }});
    merge(&mut values, addresses);
    Ok(values)
}

async fn apply(cluster: &Cluster, file: &str, manifest: &str) -> Result<()> {
    let path = cluster.folder().join(file);
    std::fs::write(&path, manifest).map_err(Error::other)?;
    let path = path.display().to_string();
    let applied = cluster.kubectl(&["apply", "--filename", &path]).await;
    applied.map(drop)
}

fn actors(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor");
    let resource = ApiResource::from_gvk_with_plural(&kind, "asyncactors");
    Api::namespaced_with(client, NAMESPACE, &resource)
}

/// Waits until an actor's STATUS is one of these.
async fn reaches(cluster: &Cluster, actor: &str, wanted: &[&str]) -> Result<DynamicObject> {
    let actors = actors(cluster.client());
    let what = format!("actor {actor} is one of {wanted:?}");
    eventually(what, AFTER_START, async || {
        let found = actors.get(actor).await?;
        let status = &found.data["status"];
        check(
            wanted.iter().any(|state| status["status"] == *state),
            status,
        )?;
        Ok(found)
    })
    .await
}

/// Installs the operator with the users' values, and removes what the harness adds.
async fn install(cluster: &Cluster) -> Result<Operator> {
    let operator = Operator::install(cluster, values(cluster)?).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), operator.namespace());
    for name in [RABBITMQ_SECRET, SQS_SECRET] {
        secrets.delete(name, &DeleteParams::default()).await?;
    }
    let rabbitmq = cluster.rabbitmq()?;
    rabbitmq.add_user("guest", "guest", "management").await?;
    Ok(operator)
}

fn image(template: &PodTemplateSpec, container: &str) -> Option<String> {
    let containers = &template.spec.as_ref()?.containers;
    let found = containers.iter().find(|found| found.name == container)?;
    found.image.clone()
}

/// An environment variable of a container, as specified.
fn variable(template: &PodTemplateSpec, container: &str, name: &str) -> Value {
    let pod = json!(template);
    let named = |list: &Value, name: &str| {
        let list = list.as_array().cloned().unwrap_or_default();
        list.into_iter().find(|each| each["name"] == name)
    };
    let container = named(&pod["spec"]["containers"], container).unwrap_or_default();
    named(&container["env"], name).unwrap_or_default()
}

async fn template_of_deployment(cluster: &Cluster, name: &str) -> Result<PodTemplateSpec> {
    let api: Api<Deployment> = Api::namespaced(cluster.client(), NAMESPACE);
    let spec = api.get(name).await?.spec;
    Ok(spec.map(|spec| spec.template).unwrap_or_default())
}

async fn scaled_on_sqs(cluster: &Cluster) -> Result<()> {
    let actor = reaches(cluster, "text-processor", &["Napping", "Running"]).await?;
    assert_eq!(actor.data["status"]["queue"]["name"], "asya-text-processor");
    let template = template_of_deployment(cluster, "text-processor").await?;
    let labels = template.metadata.clone().unwrap_or_default().labels;
    let team = labels.unwrap_or_default().get("team").cloned();
    assert_eq!(team.as_deref(), Some("nlp"));
    let handler = variable(&template, "asya-runtime", "ASYA_HANDLER");
    assert_eq!(handler["value"], "processor.TextProcessor.process");
    assert_eq!(
        image(&template, "asya-sidecar").as_deref(),
        Some("registry.example.com/asya-sidecar:0.3")
    );
    let key = variable(&template, "asya-sidecar", "AWS_ACCESS_KEY_ID");
    let wanted = json!({"name": "sqs-secret", "key": "access-key-id"});
    assert_eq!(key["valueFrom"]["secretKeyRef"], wanted);
    Ok(())
}

async fn stateful_on_rabbitmq(cluster: &Cluster) -> Result<()> {
    let actor = reaches(cluster, "rmq-worker", &["Running"]).await?;
    assert_eq!(actor.data["status"]["replicasSummary"], "2/2");
    let api: Api<StatefulSet> = Api::namespaced(cluster.client(), NAMESPACE);
    let spec = api.get("rmq-worker").await?.spec.unwrap_or_default();
    let pod = spec.template.spec.clone().unwrap_or_default();
    assert_eq!(pod.termination_grace_period_seconds, Some(45));
    assert_eq!(pod.init_containers.map(|all| all.len()), Some(1));
    let names: Vec<_> = pod.containers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["asya-runtime", "helper", "asya-sidecar"]);
    let level = variable(&spec.template, "asya-sidecar", "ASYA_LOG_LEVEL");
    assert_eq!(level["value"], "debug");
    let password = variable(&spec.template, "asya-sidecar", "ASYA_RABBITMQ_PASSWORD");
    let wanted = json!({"name": "rabbitmq-secret", "key": "password"});
    assert_eq!(password["valueFrom"]["secretKeyRef"], wanted);
    Ok(())
}

async fn end_on_rabbitmq(cluster: &Cluster) -> Result<()> {
    reaches(cluster, "happy-end", &["Running"]).await?;
    let template = template_of_deployment(cluster, "happy-end").await?;
    let is_end = variable(&template, "asya-sidecar", "ASYA_IS_END_ACTOR");
    assert_eq!(is_end["value"], "true");
    Ok(())
}

/// Messages published to the Go operator's exchange reach the queues.
async fn queues_take_messages(cluster: &Cluster) -> Result<()> {
    let rabbitmq = cluster.rabbitmq()?;
    for actor in ["rmq-worker", "happy-end"] {
        let queue = format!("asya-{actor}");
        assert!(rabbitmq.publish("asya", actor, "by name").await?, "{actor}");
        assert!(rabbitmq.publish("", &queue, "by queue").await?, "{actor}");
        assert_eq!(rabbitmq.messages(&queue, 9, false).await?.len(), 2);
    }
    Ok(())
}

/// Compatibility (docs/spec/standalone.md); API-2, API-4, SEC-1, OPS-10, OPS-11, QUE-1
#[tokio::test]
async fn manifests_and_values_of_the_former_operator_work_unchanged() {
    let _turn = own_cluster().await;
    let cluster = cluster_with_all().await;
    let works = async {
        let operator = install(&cluster).await?;
        let instance = operator.start("operator").await?;
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
        apply(&cluster, "secrets.yaml", SECRETS).await?;
        eventually("the CRD is served", AFTER_START, async || {
            apply(&cluster, "actors.yaml", ACTORS)
                .await
                .map_err(NotYet::new)
        })
        .await?;
        stateful_on_rabbitmq(&cluster).await?;
        end_on_rabbitmq(&cluster).await?;
        scaled_on_sqs(&cluster).await?;
        queues_take_messages(&cluster).await?;
        for actor in asya_crds::corpus::former_actors().map_err(Error::other)? {
            let name = actor["metadata"]["name"].as_str().unwrap_or_default();
            let stored = actors(cluster.client()).get(name).await?;
            assert_eq!(stored.data["spec"], actor["spec"], "{name}");
            assert_eq!(stored.metadata.generation, Some(1), "{name}");
        }
        drop(instance);
        Ok::<_, Error>(())
    };
    works.await.unwrap();
}
