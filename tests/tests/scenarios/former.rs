//! Objects of the Go operator are adopted in place.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use asya_tests::crds;
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::{Operator, RABBITMQ_SECRET};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::steady::{RECONCILES, Writes};
use crate::{api, cluster_with_all, own_cluster};

/// The Go operator's field manager, which defaults to the name of its binary.
const MANAGER: &str = "manager";
const ROLE: &str = "arn:aws:iam::000000000000:role/reader";
/// Messages in each RabbitMQ queue.
const FILLED: u32 = 12;
/// One on RabbitMQ with two pods, one on RabbitMQ scaled by KEDA, and one on SQS with a role.
const ACTORS: [&str; 3] = ["worker", "scaled", "reader"];

/// The Go operator writes whole objects with PUT.
pub(crate) fn as_the_former() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// An actor as stored: with its defaults and the finalizer.
pub(crate) fn actor(name: &str) -> Value {
    let scaling = if name == "scaled" {
        json!({"enabled": true, "minReplicas": 0, "maxReplicas": 10, "queueLength": 5, "pollingInterval": 1, "cooldownPeriod": 60})
    } else {
        json!({"enabled": false})
    };
    json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": name, "finalizers": ["asya.sh/finalizer"]},
        "spec": {
            "transport": if name == "reader" { "sqs" } else { "rabbitmq" },
            "scaling": scaling,
            "sidecar": {"imagePullPolicy": "IfNotPresent", "resources": {}},
            "timeout": {"processing": 300, "gracefulShutdown": 30},
            "workload": {
                "kind": "Deployment",
                "replicas": if name == "worker" { 2 } else { 1 },
                "pythonExecutable": "python3",
                "template": {"metadata": {}, "spec": {"containers": [{
                    "name": "asya-runtime",
                    "image": "example.com/handler:1",
                    "env": [{"name": "ASYA_HANDLER", "value": "echo.handle"}],
                    "resources": {},
                }]}},
            },
        },
    })
}

/// A status as the Go operator wrote it, including fields that we do not write for every actor.
fn status(scenario: &Scenario, name: &str) -> Value {
    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "ok",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!({
        "observedGeneration": 1,
        "status": "Running",
        "conditions": [
            condition("TransportReady", "QueueReady"),
            condition("WorkloadReady", "WorkloadCreated"),
            condition("ScalingReady", "ScaledObjectCreated"),
        ],
        "readySummary": "3/3",
        "replicas": 2, "readyReplicas": 2, "totalReplicas": 2, "desiredReplicas": 2, "pendingReplicas": 0, "failingPods": 0,
        "replicasSummary": "2/2", "readyReplicasSummary": "2/2",
        "transportStatus": "Ready",
        "scalingMode": "KEDA",
        "queuedMessages": 7, "processingMessages": 1,
        "lastScaleTime": "2026-01-01T00:00:00Z", "lastScaleDirection": "up", "lastScaleFormatted": "5m ago (up)",
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "namespace": scenario.namespace()},
        "scaledObjectRef": {"name": name, "namespace": scenario.namespace()},
    })
}

fn owned(name: &str, uid: &str) -> Value {
    json!({"name": name, "ownerReferences": [{
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": owner(name), "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]})
}

/// The actor that owns a child, by the child's name.
fn owner(child: &str) -> &str {
    let child = child.strip_prefix("asya-").unwrap_or(child);
    child.strip_suffix("-trigger-auth").unwrap_or(child)
}

pub(crate) fn deployment(name: &str, uid: &str) -> Value {
    let labels = json!({"app": name, "asya.sh/asya": name, "asya.sh/workload": "deployment"});
    let mounts = json!([{"name": "socket-dir", "mountPath": "/var/run/asya"}, {"name": "tmp", "mountPath": "/tmp"}]);
    let mut deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owned(name, uid),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [
                        {
                            "name": "asya-runtime",
                            "image": "example.com/handler:1",
                            "command": ["python3", "/opt/asya/asya_runtime.py"],
                            "env": [
                                {"name": "ASYA_HANDLER", "value": "echo.handle"},
                                {"name": "ASYA_SOCKET_DIR", "value": "/var/run/asya"},
                                {"name": "DROPPED_LONG_AGO", "value": "1"},
                            ],
                            "volumeMounts": mounts,
                        },
                        {
                            "name": "asya-sidecar",
                            "image": "asya-sidecar:old",
                            "env": [{"name": "ASYA_ACTOR_NAME", "value": name}, {"name": "ASYA_OLD_SIDECAR", "value": "1"}],
                            "volumeMounts": mounts,
                        },
                    ],
                    "volumes": [{"name": "socket-dir", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
                    "terminationGracePeriodSeconds": 30,
                },
            },
        },
    });
    match name {
        "worker" => deployment["spec"]["replicas"] = json!(2),
        "reader" => {
            deployment["spec"]["replicas"] = json!(1);
            let pod = &mut deployment["spec"]["template"]["spec"];
            pod["serviceAccountName"] = json!("asya-reader");
        }
        // The replicas are left to the autoscaler.
        _ => {}
    }
    deployment
}

/// Everything that the Go operator created for an actor, except the queue.
fn children(scenario: &Scenario, name: &str, uid: &str) -> Vec<Value> {
    let mut children = Vec::new();
    if name == "reader" {
        let mut account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": owned("asya-reader", uid)});
        account["metadata"]["annotations"] = json!({"eks.amazonaws.com/role-arn": ROLE});
        children.push(account);
    }
    children.push(deployment(name, uid));
    if name == "scaled" {
        children.extend(scaling(scenario, name, uid));
    }
    children
}

fn scaling(scenario: &Scenario, name: &str, uid: &str) -> [Value; 2] {
    let rabbitmq = scenario.cluster().state().rabbitmq.clone();
    let (host, port) = rabbitmq.map(|it| (it.host, it.port)).unwrap_or_default();
    let secret = |parameter: &str| json!({"parameter": parameter, "name": RABBITMQ_SECRET, "key": parameter});
    let login = json!({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": owned(&format!("{name}-trigger-auth"), uid),
        "spec": {"secretTargetRef": [secret("username"), secret("password")]},
    });
    let mut scaled = json!({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": owned(name, uid),
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": 0, "maxReplicaCount": 10, "pollingInterval": 1, "cooldownPeriod": 60,
            "triggers": [{
                "type": "rabbitmq",
                "metadata": {"queueName": format!("asya-{name}"), "mode": "QueueLength", "value": "5", "protocol": "amqp", "host": format!("amqp://{host}:{port}")},
                "authenticationRef": {"name": format!("{name}-trigger-auth")},
            }],
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {
                "scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
            }}},
        },
    });
    scaled["metadata"]["annotations"] = json!({"asya.sh/source-generation": "1"});
    [login, scaled]
}

/// The runtime script, shared by all actors of the namespace.
fn script() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "asya-runtime", "labels": {
            "app.kubernetes.io/name": "asya-runtime", "app.kubernetes.io/component": "asya-runtime", "app.kubernetes.io/part-of": "asya",
        }},
        "data": {"asya_runtime.py": "print('the former script')\n"},
    })
}

/// Recreates the state that the Go operator left when it was stopped. Returns its objects.
async fn leave(scenario: &Scenario) -> Result<Vec<DynamicObject>> {
    let mut made = Vec::new();
    let create = async |object: &Value| {
        let api = api(scenario, object);
        let parsed = serde_json::from_value(object.clone())?;
        Ok::<_, Error>(api.create(&as_the_former(), &parsed).await?)
    };
    made.push(create(&script()).await?);
    for name in ACTORS {
        let stored = create(&actor(name)).await?;
        let mut told = actor(name);
        told["metadata"]["resourceVersion"] = json!(stored.resource_version());
        told["status"] = status(scenario, name);
        let told = serde_json::from_value(told)?;
        scenario
            .actors()
            .replace_status(name, &as_the_former(), &told)
            .await?;
        for child in children(scenario, name, &stored.uid().unwrap_or_default()) {
            made.push(create(&child).await?);
        }
    }
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let deployments = scenario.api::<Deployment>();
    deployments
        .patch_scale("scaled", &PatchParams::default(), &three)
        .await?;
    for (name, replicas) in [("worker", 2), ("scaled", 3), ("reader", 1)] {
        eventually(
            format_args!("{name} has its pods"),
            AFTER_START,
            async || {
                let ready = deployments.get(name).await?.status;
                let ready = ready.and_then(|status| status.ready_replicas);
                check(ready == Some(replicas), format_args!("{ready:?}"))
            },
        )
        .await?;
    }
    Ok(made)
}

async fn fill_queues(scenario: &Scenario) -> Result<()> {
    let rabbitmq = scenario.cluster().rabbitmq()?;
    for queue in ["asya-worker", "asya-scaled"] {
        rabbitmq.declare(queue, json!({})).await?;
        for number in 0..FILLED {
            assert!(rabbitmq.publish("", queue, &number.to_string()).await?);
        }
        // The broker updates its counts periodically: wait for them, or KEDA would scale an actor to zero whose
        // messages were never counted.
        eventually(
            format_args!("{queue} is counted"),
            AFTER_START,
            async || {
                let seen = rabbitmq.queue(queue).await?;
                let counted = seen.and_then(|it| it.messages_ready);
                check(counted == Some(FILLED.into()), format_args!("{counted:?}"))
            },
        )
        .await?;
    }
    let sqs = scenario.cluster().sqs()?;
    sqs.create("asya-reader").await?;
    sqs.send("asya-reader", &["kept".to_owned()]).await?;
    Ok(())
}

async fn queues_are_full(scenario: &Scenario) -> Result<()> {
    let rabbitmq = scenario.cluster().rabbitmq()?;
    let wanted: Vec<String> = (0..FILLED).map(|number| number.to_string()).collect();
    for queue in ["asya-worker", "asya-scaled"] {
        assert_eq!(rabbitmq.messages(queue, 99, true).await?, wanted, "{queue}");
    }
    let sqs = scenario.cluster().sqs()?;
    assert_eq!(sqs.receive_all("asya-reader").await?, ["kept"]);
    Ok(())
}

/// Every number of replicas that the Deployment requests from now on.
async fn replicas_of(scenario: &Scenario, name: &'static str) -> Result<Arc<Mutex<BTreeSet<i32>>>> {
    let deployments = scenario.api::<Deployment>();
    let from = deployments.get(name).await?.resource_version();
    let seen = Arc::<Mutex<BTreeSet<i32>>>::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let events = deployments.watch(&params, &from.unwrap_or_default()).await;
        let mut events = pin!(events.expect("Deployments can be watched"));
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Modified(found) = event {
                let replicas = found.spec.and_then(|spec| spec.replicas);
                noted.lock().unwrap().extend(replicas);
            }
        }
    });
    Ok(seen)
}

/// Waits until an actor is Running with our labels, and its pods have been rolled.
async fn taken_over(scenario: &Scenario, name: &str) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    eventually(
        format_args!("{name} is ours and rolled"),
        AFTER_START,
        async || {
            let found = deployments.get(name).await?;
            let labels = found.labels();
            check(
                labels
                    .get("app.kubernetes.io/managed-by")
                    .map(String::as_str)
                    == Some("asya-operator"),
                format_args!("{labels:?}"),
            )?;
            let (wanted, status) = (found.spec.and_then(|it| it.replicas), found.status);
            let updated = status.as_ref().and_then(|it| it.updated_replicas);
            let total = status.as_ref().and_then(|it| it.replicas);
            check(
                updated == wanted && total == wanted,
                format_args!("{wanted:?} {status:?}"),
            )
        },
    )
    .await?;
    scenario.actor_status(name, "Running", AFTER_START).await?;
    let messages = if name == "reader" { 1 } else { FILLED };
    eventually(
        format_args!("{name}'s numbers are reported"),
        AFTER_START,
        async || {
            let actor = scenario.actors().get(name).await?;
            let status = &actor.data["status"];
            let told = [&status["queuedMessages"], &status["pendingReplicas"]];
            check(told == [messages, 0], format_args!("{status}"))
        },
    )
    .await?;
    let sets = scenario.api::<ReplicaSet>();
    let list = ListParams::default().labels(&format!("app={name}"));
    let revisions = sets.list(&list).await?.items.len();
    assert_eq!(revisions, 2, "{name}: one template before us, one of ours");
    let pod = deployments
        .get(name)
        .await?
        .spec
        .and_then(|it| it.template.spec);
    let text = json!(pod).to_string();
    for dropped in ["DROPPED_LONG_AGO", "ASYA_OLD_SIDECAR", "asya-sidecar:old"] {
        assert!(
            !text.contains(dropped),
            "{name} still has {dropped}: {text}"
        );
    }
    Ok(())
}

/// Checks that every object of the Go operator still exists with its uid.
async fn in_place(scenario: &Scenario, made: &[DynamicObject]) -> Result<()> {
    for object in made {
        let text = json!(object);
        let found = api(scenario, &text).get(&object.name_any()).await?;
        assert_eq!(found.uid(), object.uid(), "{} was recreated", text["kind"]);
    }
    let scaled = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"});
    let scaled = api(scenario, &scaled).get("scaled").await?;
    assert_eq!(scaled.data["spec"]["scaleTargetRef"]["kind"], "Deployment");
    let triggers = scaled.data["spec"]["triggers"].as_array().map(Vec::len);
    assert_eq!(triggers, Some(1));
    assert_eq!(
        scaled.data["spec"]["triggers"][0]["metadata"]["protocol"],
        "http"
    );
    Ok(())
}

/// WRK-7, FIN-1, RUN-1, KEDA-1, KEDA-7, SA-1, QUE-6, STA-8
#[tokio::test]
async fn children_of_the_former_operator_are_adopted_without_losing_messages() {
    let _turn = own_cluster().await;
    let cluster = cluster_with_all().await;
    Scenario::run_on(Ok((*cluster).clone()), "former", async |scenario| {
        let crd = cluster.folder().join("former-crd.yaml");
        let text = asya_crds::yaml().map_err(Error::other)?;
        std::fs::write(&crd, text).map_err(Error::other)?;
        let crd = crd.display().to_string();
        cluster
            .kubectl(&["apply", "--server-side", "--filename", &crd])
            .await?;
        crds::established(&cluster.client(), crds::ACTORS, AFTER_START).await?;
        fill_queues(scenario).await?;
        let made = leave(scenario).await?;
        let replicas = [
            (replicas_of(scenario, "worker").await?, 2),
            (replicas_of(scenario, "scaled").await?, 3),
            (replicas_of(scenario, "reader").await?, 1),
        ];

        let role = json!({"transports": {"sqs": {"config": {"actorRoleArn": ROLE}}}});
        let operator = Operator::install(&cluster, role).await?;
        let mut instance = operator.start("operator").await?;
        for name in ACTORS {
            taken_over(scenario, name).await?;
        }
        in_place(scenario, &made).await?;
        for (seen, wanted) in &replicas {
            let seen = seen.lock().unwrap();
            assert_eq!(*seen, BTreeSet::from([*wanted]), "replicas did not stay");
        }
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let script = api(scenario, &config_map).get("asya-runtime").await?;
        let script = script.data["data"]["asya_runtime.py"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(!script.contains("former"), "{script}");

        let user = operator.user();
        let writes = Writes {
            audit: cluster.audit(),
            user: &user,
        };
        writes.end().await?;
        let rest = writes.audit.mark().await?;
        instance.stop().await?;
        instance.restart().await?;
        instance.wait_ready().await?;
        eventually("every actor is seen again", AFTER_START, async || {
            let reconciles = instance
                .metric(RECONCILES, &[])
                .await
                .map_err(NotYet::new)?;
            check(reconciles >= 3.0, format_args!("{reconciles} reconciles"))
        })
        .await?;
        writes.end().await?;
        assert_eq!(writes.since(rest).await?, []);
        // Last, because receiving messages makes them invisible for a while, which a status would show.
        queues_are_full(scenario).await
    })
    .await;
}
