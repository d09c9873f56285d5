//! Actors whose workload belongs to another controller.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::admission::{gets_sidecar, pod_of};

/// Unbinding evicts the pods one by one.
const UNBOUND: Duration = Duration::from_mins(1);
/// BIND-40, BIND-41, BIND-45
const BOUND_WITHIN: Duration = Duration::from_secs(5);

/// An actor that binds a Deployment.
pub(crate) fn bound_actor(name: &str, deployment: &str) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": name},
        "spec": {
            "transport": "rabbitmq",
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
        },
    })
}

/// A user's Deployment.
pub(crate) fn model(name: &str, replicas: i32) -> Result<Deployment> {
    let labels = json!({"app": name});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "model", "image": "model:1", "ports": [{"containerPort": 8000}]},
            ]}},
        },
    }))?)
}

async fn create(scenario: &Scenario, name: &str, replicas: i32) -> Result<Deployment> {
    let deployments = scenario.api::<Deployment>();
    Ok(deployments
        .create(&PostParams::default(), &model(name, replicas)?)
        .await?)
}

/// Waits until the actor's status satisfies the predicate.
pub(crate) async fn status_is(
    scenario: &Scenario,
    actor: &str,
    what: &str,
    within: Duration,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    eventually(format_args!("{actor}: {what}"), within, async || {
        let found = scenario.actors().get(actor).await?;
        let status = found.data["status"].clone();
        check(is_so(&status), &status)?;
        Ok(status)
    })
    .await
}

/// Status and reason of a condition.
pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let all = status["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let found = all.iter().find(|each| each["type"] == kind);
    let text = |key: &str| found.and_then(|it| it[key].as_str()).unwrap_or_default();
    (text("status"), text("reason"))
}

fn reasons(status: &Value) -> Vec<(&str, i64)> {
    let all = status["pods"]["reasons"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let told = all.iter().map(|it| {
        let reason = it["reason"].as_str().unwrap_or_default();
        (reason, it["count"].as_i64().unwrap_or_default())
    });
    told.collect()
}

async fn has_pods(scenario: &Scenario, app: &str, count: usize) -> Result<()> {
    let selector = ListParams::default().labels(&format!("app={app}"));
    eventually(format_args!("{app} has {count} pods"), SOON, async || {
        let pods = scenario.api::<Pod>().list(&selector).await?;
        let lives = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none();
        let seen = pods.iter().filter(lives).count();
        check(seen == count, seen)
    })
    .await
}

/// Restarts the target's pods, and waits until status reports them.
async fn restarted(scenario: &Scenario, name: &str, target: &str) -> Result<()> {
    let restart = ["rollout", "restart", &format!("deployment/{target}")];
    scenario.kubectl(&restart).await?;
    // Pods of the previous template may still run beside new ones, all with the sidecar.
    let pods = json!({"matched": 3, "injected": 3, "notInjected": 0, "outdated": 0});
    status_is(scenario, name, "all pods are injected", SOON, |status| {
        condition(status, "Injected") == ("True", "AllPodsInjected")
            && condition(status, "Ready") == ("True", "AllReady")
            && status["status"] == "Running"
            && status["pods"] == pods
            && (&status["readySummary"], &status["replicasSummary"])
                == (&json!("3/3"), &json!("3/3"))
    })
    .await
    .map(drop)
}

/// BIND-3 to BIND-8, BIND-47, VAC-7
#[tokio::test]
async fn binding_creates_queue_and_script_and_reports_target_and_pods() {
    Scenario::run("binding", async |scenario| {
        let (name, target) = (scenario.name("bound"), "model");
        let made = create(scenario, target, 2).await?;
        has_pods(scenario, target, 2).await?;
        let mark = scenario.cluster().audit().mark().await?;
        let mut actor = bound_actor(&name, target);
        actor["spec"]["binding"] = json!({"rollout": "OnRestart"});
        scenario.apply(&actor).await?;
        let status = status_is(scenario, &name, "both pods are reported", SOON, |status| {
            status["pods"]["matched"] == 2 && status["boundSince"].is_string()
        })
        .await?;
        assert_eq!(status["mode"], "Binding");
        let stored = scenario.actors().get(&name).await?;
        assert_eq!(stored.data["spec"], actor["spec"], "no default is written");
        assert_eq!(condition(&status, "TransportReady"), ("True", "QueueReady"));
        assert_eq!(condition(&status, "TargetResolved"), ("True", "Resolved"));
        assert_eq!(condition(&status, "Injected"), ("False", "PodsNotInjected"));
        assert_eq!(condition(&status, "Conflict"), ("False", "NoConflict"));
        assert_eq!(reasons(&status), [("StartedBeforeBinding", 2)]);
        assert_eq!(
            (&status["readySummary"], &status["replicasSummary"]),
            (&json!("2/3"), &json!("0/2"))
        );
        let resolved = &status["resolvedTarget"];
        assert_eq!(resolved["uid"], json!(made.metadata.uid));
        assert_eq!(resolved["podSelector"], "app=model");
        assert_eq!(resolved["chain"], json!(["Deployment/model"]));
        let queue = format!("asya-{name}");
        assert!(
            scenario
                .cluster()
                .rabbitmq()?
                .queue(&queue)
                .await?
                .is_some()
        );
        scenario.api::<ConfigMap>().get("asya-runtime").await?;

        let labels = json!({"app": target, "pod-template-hash": "0"});
        let pod = pod_of("ReplicaSet", &format!("{target}-0"), &labels)?;
        gets_sidecar(scenario, &pod).await?;
        let deployments = scenario.api::<Deployment>();
        let patch = |spec: Value| Patch::Merge(json!({"spec": spec}));
        deployments
            .patch(
                target,
                &PatchParams::default(),
                &patch(json!({"replicas": 3})),
            )
            .await?;
        status_is(
            scenario,
            &name,
            "the third pod is reported",
            SOON,
            |status| {
                status["pods"]["injected"] == 1 && reasons(status) == [("StartedBeforeBinding", 2)]
            },
        )
        .await?;

        restarted(scenario, &name, target).await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, UNBOUND).await?;
        assert!(
            scenario
                .cluster()
                .rabbitmq()?
                .queue(&queue)
                .await?
                .is_none()
        );
        let left = deployments.get(target).await?;
        assert_eq!(left.metadata.uid, made.metadata.uid);
        assert_eq!(left.metadata.owner_references, None);
        let writes = scenario
            .cluster()
            .audit()
            .writes_in(mark, scenario.namespace())
            .await?;
        let touched = |kind: &str| {
            let of_kind = |write: &&asya_tests::audit::Write| {
                write.resource == kind && write.user.ends_with(":asya-operator")
            };
            writes.iter().filter(of_kind).count()
        };
        assert_eq!(
            touched("deployments"),
            2,
            "by whom it is bound, and no more"
        );
        Ok(())
    })
    .await;
}

/// BIND-40, BIND-41, BIND-42
#[tokio::test]
async fn recreated_target_is_bound_again() {
    Scenario::run("comeback", async |scenario| {
        let (name, target) = (scenario.name("waits"), "late");
        scenario.apply(&bound_actor(&name, target)).await?;
        let status = status_is(scenario, &name, "it waits", SOON, |status| {
            condition(status, "TargetResolved") == ("False", "TargetNotFound")
                && status["boundSince"].is_string()
        })
        .await?;
        assert_eq!(status["status"], "Creating");
        let mut before: Option<String> = None;
        for _ in 0..2 {
            let bound = scenario.timed(async || {
                let made = create(scenario, target, 1).await?;
                let status = status_is(scenario, &name, "it is bound", BOUND_WITHIN, |status| {
                    status["resolvedTarget"]["uid"] == json!(made.metadata.uid)
                        && status["pods"]["matched"] == 1
                });
                Ok((status.await?, made))
            });
            let (status, made) = bound.await?;
            assert_ne!(
                std::mem::replace(&mut before, made.metadata.uid.clone()),
                made.metadata.uid
            );
            assert_eq!(status["conflictCount"], 0);
            let foreground = DeleteParams::foreground();
            scenario
                .api::<Deployment>()
                .delete(target, &foreground)
                .await?;
            status_is(scenario, &name, "it is lost", SOON, |status| {
                status["status"] == "WorkloadError"
                    && condition(status, "TargetResolved") == ("False", "TargetNotFound")
                    && status["resolvedTarget"].is_null()
            })
            .await?;
            assert!(
                scenario
                    .cluster()
                    .rabbitmq()?
                    .queue(&format!("asya-{name}"))
                    .await?
                    .is_some()
            );
        }
        Ok(())
    })
    .await;
}

/// Waits until the next actor would be younger: creation timestamps have a resolution of one second.
pub(crate) async fn older_than_the_next(scenario: &Scenario, actor: &str) -> Result<()> {
    eventually("a second has passed", SOON, async || {
        let found = scenario.actors().get(actor).await?;
        let made = found.metadata.creation_timestamp;
        let age = made.map(|made| jiff::Timestamp::now().as_second() - made.0.as_second());
        check(age > Some(1), format_args!("{age:?}"))
    })
    .await
}

/// BIND-2, BIND-5, BIND-45
#[tokio::test]
async fn target_is_bound_by_one_actor_until_that_is_deleted() {
    Scenario::run("two-actors", async |scenario| {
        let (first, second) = (scenario.name("first"), scenario.name("second"));
        create(scenario, "shared", 1).await?;
        scenario.apply(&bound_actor(&first, "shared")).await?;
        status_is(scenario, &first, "the first is bound", SOON, |status| {
            condition(status, "TargetResolved").1 == "Resolved"
        })
        .await?;
        older_than_the_next(scenario, &first).await?;
        scenario.apply(&bound_actor(&second, "shared")).await?;
        let status = status_is(scenario, &second, "the second is not", SOON, |status| {
            condition(status, "TargetResolved") == ("False", "AlreadyBound")
        })
        .await?;
        assert_eq!(status["boundSince"], Value::Null);
        let message = status["conditions"].to_string();
        assert!(message.contains(&first), "{message}");
        let bound = scenario.timed(async || {
            scenario.kubectl(&["delete", "asya", &first]).await?;
            scenario.actor_gone(&first, SOON).await?;
            status_is(scenario, &second, "now it is", BOUND_WITHIN, |status| {
                condition(status, "TargetResolved").1 == "Resolved"
                    && status["boundSince"].is_string()
            })
            .await
        });
        bound.await.map(drop)
    })
    .await;
}
