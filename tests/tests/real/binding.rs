//! Actors that bind other owners' models: the sidecar and a protocol adapter run in the model's own pods.

use asya_tests::Result;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::owners::kaito::{Kaito, WORKSPACE, workspace};
use asya_tests::owners::kserve::{AUTOSCALER_CLASS, INFERENCE_SERVICE, Kserve, inference_service};
use asya_tests::owners::{Kind, Owner, Reconciler, RecordingClient, crds};
use asya_tests::real::PYTHON_IMAGE;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::{Broker, SOON, actor_without_pods, message, run};

/// An actor that binds a model, which processes its messages.
pub(crate) fn bound(
    name: &str,
    broker: Broker,
    target: (&str, &str, &str),
    handler: Option<&str>,
) -> Value {
    let (api_version, kind, target) = target;
    let mut runtime = json!({});
    if let Some(handler) = handler {
        runtime["handler"] = json!(format!("asya_adapters.{handler}"));
    }
    json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": name},
        "spec": {
            "transport": broker.transport(),
            "workloadRef": {"apiVersion": api_version, "kind": kind, "name": target},
            "runtime": runtime,
        },
    })
}

/// A user's Deployment that serves a model.
pub(crate) fn model(name: &str, port: u16) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 10,
                "containers": [{
                    "name": "model",
                    "image": PYTHON_IMAGE,
                    "args": ["/pods/model.py", port.to_string()],
                    "ports": [{"containerPort": port}],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 1},
                }],
            }},
        },
    })
}

/// Whether a pod has the sidecar.
pub(crate) fn injected(pod: &Pod) -> bool {
    let containers = pod.spec.as_ref().map(|spec| &spec.containers);
    containers.is_some_and(|all| all.iter().any(|it| it.name == "asya-sidecar"))
}

/// The pods with these labels that are not being deleted.
async fn pods(scenario: &Scenario, labels: &str) -> Result<Vec<Pod>> {
    let all = scenario
        .api::<Pod>()
        .list(&ListParams::default().labels(labels))
        .await?;
    Ok(all
        .items
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .collect())
}

/// The model's own container in its only pod, once the pod has this many containers and all are ready.
async fn model_container(
    scenario: &Scenario,
    labels: &str,
    containers: usize,
) -> Result<Container> {
    let what = format!("the pod with {labels} runs {containers} containers");
    eventually(what, SOON, async || {
        let pods = pods(scenario, labels).await.map_err(NotYet::new)?;
        let [pod] = &pods[..] else {
            return Err(NotYet::new(format!("{} pods", pods.len())));
        };
        let statuses = pod
            .status
            .as_ref()
            .and_then(|it| it.container_statuses.clone());
        let statuses = statuses.unwrap_or_default();
        check(
            statuses.len() == containers && statuses.iter().all(|it| it.ready),
            format_args!("{statuses:?}"),
        )?;
        let restarts: Vec<_> = statuses
            .iter()
            .map(|it| (&it.name, it.restart_count))
            .collect();
        check(
            restarts.iter().all(|(_, count)| *count == 0),
            format_args!("{restarts:?}"),
        )?;
        let spec = pod
            .spec
            .as_ref()
            .ok_or_else(|| NotYet::new("a pod without a spec"))?;
        Ok(spec.containers[0].clone())
    })
    .await
}

/// The container as specified: without the mount of its service account token, whose volume name differs between pods.
fn written(mut container: Container) -> Container {
    if let Some(mounts) = &mut container.volume_mounts {
        mounts.retain(|it| !it.name.starts_with("kube-api-access-"));
    }
    container
}

/// A running model gets the sidecar with one rollout, and its own pod processes the queue's messages.
async fn answers(
    scenario: &Scenario,
    actor: Value,
    broker: Broker,
    labels: &str,
    (asked, answer): (Value, Value),
) -> Result<()> {
    let name = actor["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let next = format!("{name}-next");
    let before = model_container(scenario, labels, 1).await?;
    run(scenario, &[actor, actor_without_pods(&next, broker)]).await?;
    let after = model_container(scenario, labels, 3).await?;
    assert_eq!(
        written(after),
        written(before),
        "the model's container was touched"
    );
    let cluster = scenario.cluster();
    broker
        .send(cluster, &name, &[message("1", &name, &next, &asked)])
        .await?;
    let results = broker.take(cluster, &next, 1, SOON).await?;
    assert_eq!(results[0]["payload"], answer);
    model_container(scenario, labels, 3).await?;
    Ok(())
}

fn chat() -> (Value, Value) {
    let message = json!({"role": "assistant", "content": "you said hello"});
    let answer = json!({"model": "parrot", "choices": [{"message": message}]});
    (json!({"text": "hello"}), answer)
}

fn predict() -> (Value, Value) {
    (
        json!({"model": "parrot", "instances": [1, 2]}),
        json!({"predictions": [2, 4]}),
    )
}

fn infer() -> (Value, Value) {
    let tensor =
        |data: Value| json!({"name": "x", "shape": [2], "datatype": "INT64", "data": data});
    let asked = json!({"model": "parrot", "inputs": [tensor(json!([1, 2]))]});
    let answer = json!({"model_name": "parrot", "outputs": [tensor(json!([2, 4]))]});
    (asked, answer)
}

/// BIND-20 to BIND-32, ROLL-3
#[tokio::test]
async fn model_answers_from_its_own_pod_over_each_protocol() {
    Scenario::run("models", async |scenario| {
        let one =
            async |base: &str, port: u16, handler: &str, broker: Broker, talk: (Value, Value)| {
                scenario.apply(&model(base, port)).await?;
                let name = scenario.name(base);
                let actor = bound(
                    &name,
                    broker,
                    ("apps/v1", "Deployment", base),
                    Some(handler),
                );
                answers(scenario, actor, broker, &format!("app={base}"), talk).await
            };
        tokio::try_join!(
            Box::pin(one("chat", 8000, "openai_chat", Broker::RabbitMq, chat())),
            // Port 8080 is also the default of the sidecar's metrics.
            Box::pin(one("predict", 8080, "kserve_v1", Broker::Sqs, predict())),
            Box::pin(one("infer", 9000, "kserve_v2", Broker::RabbitMq, infer())),
        )
        .map(drop)
    })
    .await;
}

/// BIND-50
#[tokio::test]
async fn model_answers_with_the_sidecar_in_its_pod_template() {
    Scenario::run("template", async |scenario| {
        let (name, broker) = (scenario.name("template"), Broker::RabbitMq);
        scenario.apply(&model("model", 8000)).await?;
        let target = ("apps/v1", "Deployment", "model");
        let mut actor = bound(&name, broker, target, Some("openai_chat"));
        actor["spec"]["binding"] = json!({"strategy": "Template"});
        answers(scenario, actor, broker, "app=model", chat()).await
    })
    .await;
}

async fn owner_of(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    (kind, target): (Kind, &Value),
) -> Result<Owner> {
    crds::install(scenario.cluster(), &[kind]).await?;
    let somebody = RecordingClient::new(scenario.client(), scenario.namespace(), "somebody");
    somebody.create(kind, target).await?;
    Ok(Owner::start(scenario, reconciler))
}

/// RES-15, RES-13
#[tokio::test]
async fn kserve_and_kaito_models_answer_from_their_own_pods() {
    Scenario::run("owners", async |scenario| {
        let kserve = async {
            let mut service = inference_service("iris", &json!({AUTOSCALER_CLASS: "external"}));
            let container = &mut service["spec"]["predictor"]["containers"][0];
            container["image"] = json!(PYTHON_IMAGE);
            container["args"] = json!(["/pods/model.py", "8080"]);
            container["env"] = json!([{"name": "MODEL", "value": "iris"}]);
            let owner = owner_of(scenario, Kserve, (INFERENCE_SERVICE, &service)).await?;
            let name = scenario.name("iris");
            let target = ("serving.kserve.io/v1beta1", "InferenceService", "iris");
            let actor = bound(&name, Broker::RabbitMq, target, None);
            let talk = (json!({"instances": [3]}), json!({"predictions": [6]}));
            let labels = "serving.kserve.io/inferenceservice=iris";
            answers(scenario, actor, Broker::RabbitMq, labels, talk).await?;
            drop(owner);
            Ok(())
        };
        let kaito = async {
            let owner = owner_of(scenario, Kaito, (WORKSPACE, &workspace("phi", "parrot"))).await?;
            let name = scenario.name("phi");
            let target = ("kaito.sh/v1beta1", "Workspace", "phi");
            let actor = bound(&name, Broker::Sqs, target, None);
            answers(
                scenario,
                actor,
                Broker::Sqs,
                "kaito.sh/workspace=phi",
                chat(),
            )
            .await?;
            drop(owner);
            Ok(())
        };
        tokio::try_join!(kserve, kaito).map(drop)
    })
    .await;
}
