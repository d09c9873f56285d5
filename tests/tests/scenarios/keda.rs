//! The objects that make KEDA scale, on a real KEDA: what it takes, does and
//! leaves untouched.

use std::time::Duration;

use asya_shared::api::{AsyncActorSpec, WorkloadKind};
use asya_shared::applied::Sealed;
use asya_shared::config::TransportsConfig;
use asya_shared::names::manager;
use asya_shared::scaling::{ScaleTarget, ScalingInputs, ScalingObjects, hpa_name, scaling_objects};
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::RABBITMQ_SECRET;
use asya_tests::rabbitmq::OPERATOR;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::own_cluster;

const SOON: Duration = Duration::from_mins(1);
const QUEUE: &str = "asya-foo";

fn api(scenario: &Scenario, object: &Value) -> Api<DynamicObject> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .rsplit_once('/')
        .unwrap_or(("", text("apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
    Api::namespaced_with(scenario.client(), scenario.namespace(), &resource)
}

async fn apply(scenario: &Scenario, object: &Value, params: PatchParams) -> Result<DynamicObject> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let applied = api(scenario, object)
        .patch(name, &params, &Patch::Apply(object))
        .await;
    applied.map_err(|error| Error::Other(format!("{} {name}: {error}", object["kind"])))
}

/// The entry of ours in an object's `managedFields`.
fn owned(object: &DynamicObject) -> Value {
    let fields = object.metadata.managed_fields.iter().flatten();
    let ours = fields
        .filter(|entry| entry.manager.as_deref() == Some(manager::SCALED_OBJECT))
        .filter(|entry| entry.operation.as_deref() == Some("Apply"));
    json!(ours.map(|entry| &entry.fields_v1).collect::<Vec<_>>())
}

fn sealed(objects: &ScalingObjects) -> impl Iterator<Item = &Sealed> {
    let others = [&objects.config_map, &objects.trigger_authentication];
    others.into_iter().flatten().chain([&objects.scaled_object])
}

/// Applies all objects and waits until KEDA says that it scales by them.
async fn scale(scenario: &Scenario, objects: &ScalingObjects) -> Result<()> {
    let params = PatchParams::apply(manager::SCALED_OBJECT).force();
    let mut before = Vec::new();
    for Sealed { object, .. } in sealed(objects) {
        before.push(owned(&apply(scenario, object, params.clone()).await?));
    }
    let scaled = &objects.scaled_object.object;
    let name = scaled["metadata"]["name"].as_str().unwrap_or_default();
    eventually("KEDA takes the ScaledObject", SOON, async || {
        let status = &api(scenario, scaled).get(name).await?.data["status"];
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions
            .iter()
            .any(|it| it["type"] == "Ready" && it["status"] == "True");
        check(ready && status["hpaName"].is_string(), status)
    })
    .await?;
    for (Sealed { object, .. }, before) in sealed(objects).zip(before) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let now = api(scenario, object).get(name).await?;
        assert_eq!(owned(&now), before, "KEDA took fields of ours: {now:?}");
    }
    Ok(())
}

async fn replicas(scenario: &Scenario, workload: &Value) -> Result<i64, NotYet> {
    let name = workload["metadata"]["name"].as_str().unwrap_or_default();
    let found = api(scenario, workload).get(name).await?;
    found.data["spec"]["replicas"]
        .as_i64()
        .ok_or_else(|| NotYet::new("no replicas"))
}

async fn reaches(scenario: &Scenario, workload: &Value, wanted: i64) -> Result<()> {
    eventually(
        format_args!("the workload has {wanted} replicas"),
        SOON,
        async || {
            let seen = replicas(scenario, workload).await?;
            check(seen == wanted, format_args!("{seen} replicas"))
        },
    )
    .await
}

fn workload(kind: &str, name: &str) -> Value {
    let mut workload = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "asya-runtime", "image": "me/handler:1"}]},
            },
        },
    });
    if kind == "StatefulSet" {
        workload["spec"]["serviceName"] = json!(name);
        workload["spec"]["podManagementPolicy"] = json!("Parallel");
    }
    workload
}

fn objects(
    scenario: &Scenario,
    actor: &str,
    kind: WorkloadKind,
    transport: &Value,
    queue_url: Option<&str>,
) -> ScalingObjects {
    let config = json!({"transports": {"mq": transport}}).to_string();
    let transports = TransportsConfig::parse(&config).unwrap();
    let transport = transports.usable("mq").unwrap();
    let spec: AsyncActorSpec = serde_json::from_value(json!({
        "transport": "mq",
        "scaling": {"enabled": true, "pollingInterval": 1, "cooldownPeriod": 0},
    }))
    .unwrap();
    scaling_objects(&ScalingInputs {
        namespace: scenario.namespace(),
        actor,
        uid: "1b6c0a35-6a9a-4f0e-8d59-2d3a1a4f5b60",
        scaling: spec.scaling_in_force().unwrap(),
        target: ScaleTarget::workload(kind, actor),
        transport,
        names: &transport.names_of(scenario.namespace(), actor),
        queue_url,
    })
    .unwrap()
}

async fn rabbitmq_wakes_a_deployment(scenario: &Scenario) -> Result<()> {
    let rabbitmq = scenario.cluster().rabbitmq()?;
    rabbitmq.declare(QUEUE, json!({})).await?;
    let state = rabbitmq.state();
    let transport = json!({"type": "rabbitmq", "enabled": true, "config": {
        "host": state.host,
        "username": OPERATOR,
        "passwordSecretRef": {"name": RABBITMQ_SECRET, "key": "password"},
        "management": {"port": state.management_port},
    }});
    let deployment = workload("Deployment", "foo");
    let as_test = PatchParams::apply("test");
    apply(scenario, &deployment, as_test).await?;
    let objects = objects(scenario, "foo", WorkloadKind::Deployment, &transport, None);
    scale(scenario, &objects).await?;

    for number in 0..30 {
        assert!(rabbitmq.publish("", QUEUE, &number.to_string()).await?);
    }
    reaches(scenario, &deployment, 6).await?;
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"});
    let hpa = api(scenario, &hpa).get(&hpa_name("foo")).await?;
    let labels = hpa.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("asya.sh/actor").map(String::as_str), Some("foo"));
    assert_eq!(
        labels
            .get("app.kubernetes.io/managed-by")
            .map(String::as_str),
        Some("keda-operator")
    );
    assert_eq!(
        hpa.data["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"],
        300
    );
    assert_eq!(rabbitmq.messages(QUEUE, 30, false).await?.len(), 30);
    reaches(scenario, &deployment, 0).await
}

/// A call of the SQS server, which believes any signature.
async fn sqs(url: &str, action: &str, body: &Value) -> Result<Value> {
    let answer = reqwest::Client::builder().no_proxy().build()?
        .post(url)
        .header("x-amz-target", format!("AmazonSQS.{action}"))
        .header("content-type", "application/x-amz-json-1.0")
        .header(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=id/20260101/eu-central-1/sqs/aws4_request, SignedHeaders=host, Signature=0",
        )
        .body(body.to_string())
        .send()
        .await?
        .error_for_status()?;
    let text = answer.text().await?;
    Ok(if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text)?
    })
}

async fn sqs_wakes_a_stateful_set(scenario: &Scenario) -> Result<()> {
    // Long enough for an HPA name of its own.
    let name = format!("bar-{}", "x".repeat(52));
    let server = scenario.cluster().state().sqs.clone();
    let server = server.ok_or_else(|| Error::other("this cluster has no SQS"))?;
    let queue = json!({"QueueName": format!("asya-{name}")});
    let made = sqs(&server, "CreateQueue", &queue).await?;
    let url = made["QueueUrl"].as_str().unwrap_or_default().to_owned();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "aws"},
        "stringData": {"id": "test", "secret": "test"},
    });
    apply(scenario, &secret, PatchParams::apply("test")).await?;
    let transport = json!({"type": "sqs", "enabled": true, "config": {
        "region": "eu-central-1",
        "endpoint": server,
        "credentials": {
            "accessKeyIdSecretRef": {"name": "aws", "key": "id"},
            "secretAccessKeySecretRef": {"name": "aws", "key": "secret"},
        },
    }});
    let stateful_set = workload("StatefulSet", &name);
    apply(scenario, &stateful_set, PatchParams::apply("test")).await?;
    let objects = objects(
        scenario,
        &name,
        WorkloadKind::StatefulSet,
        &transport,
        Some(&url),
    );
    scale(scenario, &objects).await?;
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"});
    api(scenario, &hpa).get(&name).await?;

    for number in 0..12 {
        let message = json!({"QueueUrl": url, "MessageBody": number.to_string()});
        sqs(&server, "SendMessage", &message).await?;
    }
    reaches(scenario, &stateful_set, 3).await?;
    sqs(&server, "PurgeQueue", &json!({"QueueUrl": url})).await?;
    reaches(scenario, &stateful_set, 0).await
}

/// Every form of the objects: the API server knows all their fields.
async fn every_form_is_accepted(scenario: &Scenario) -> Result<()> {
    let texts = [
        include_str!("../../../shared/src/scaling/golden_rabbitmq.json"),
        include_str!("../../../shared/src/scaling/golden_sqs.json"),
    ];
    for text in texts {
        let list: Vec<Value> = serde_json::from_str(text)?;
        for mut object in list {
            object["metadata"]["namespace"] = json!(scenario.namespace());
            let params = PatchParams::apply("test").dry_run();
            apply(scenario, &object, params).await?;
        }
    }
    let transports = [
        json!({"type": "rabbitmq", "config": {"host": "h"}}),
        json!({"type": "rabbitmq", "config": {"host": "h", "management": {"scheme": "https", "caSecretRef": {"name": "s", "key": "k"}}}}),
        json!({"type": "rabbitmq", "config": {"host": "h", "keda": {"protocol": "amqp"}}}),
        json!({"type": "sqs", "config": {"region": "eu-west-1", "accountId": "1", "keda": {"identityOwner": "workload"}}}),
        json!({"type": "sqs", "config": {"region": "eu-west-1", "accountId": "1", "keda": {"roleArn": "arn:aws:iam::1:role/r"}}}),
    ];
    for mut transport in transports {
        transport["enabled"] = json!(true);
        let built = objects(scenario, "dry", WorkloadKind::Deployment, &transport, None);
        for Sealed { object, .. } in sealed(&built) {
            let params = PatchParams::apply("test").dry_run();
            apply(scenario, object, params).await?;
        }
    }
    Ok(())
}

/// KEDA-1 to KEDA-7: messages bring workloads from zero and back, for both
/// brokers and both kinds; no field of ours is lost to KEDA.
#[tokio::test]
async fn messages_scale_a_workload_from_zero_and_back() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options {
        sqs: true,
        keda: true,
        ..Options::default()
    })
    .await
    .unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "keda", async |scenario| {
        every_form_is_accepted(scenario).await?;
        rabbitmq_wakes_a_deployment(scenario).await?;
        sqs_wakes_a_stateful_set(scenario).await
    })
    .await;
}

/// The harness itself: KEDA comes and goes while the cluster runs, and a
/// namespace can be deleted after that.
#[tokio::test]
async fn keda_comes_and_goes_while_the_cluster_runs() {
    let _turn = own_cluster().await;
    let mut cluster = RunningCluster::start(Options {
        rabbitmq: false,
        ..Options::default()
    })
    .await
    .unwrap();
    let served = async |cluster: &RunningCluster| {
        let resources = ["api-resources", "--api-group=keda.sh", "--output=name"];
        cluster.kubectl(&resources).await.unwrap()
    };
    assert_eq!(served(&cluster).await, "");
    cluster.start_keda().await.unwrap();
    let names = served(&cluster).await;
    assert!(names.contains("scaledobjects.keda.sh"), "{names}");
    cluster.remove_keda().await.unwrap();
    assert_eq!(served(&cluster).await, "");
    let kubectl = ["create", "namespace", "after"];
    cluster.kubectl(&kubectl).await.unwrap();
    let kubectl = ["delete", "namespace", "after", "--timeout=30s"];
    cluster.kubectl(&kubectl).await.unwrap();
}
