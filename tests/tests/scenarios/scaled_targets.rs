//! Bindings that scale by queue depth, with KEDA and the HPA controller.

pub(crate) mod all_kinds;
mod ends;
mod kinds;
mod served;
mod steps;

use std::time::Duration;

use asya_tests::eventually::{LATER, NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model, status_is};
use crate::scaling::of_keda;
use crate::steady::besides_lists;

/// BIND-40, SO-3
const FOLLOWS_WITHIN: Duration = Duration::from_secs(5);
/// KEDA polls fifteen times within this time.
const RESTS: Duration = Duration::from_secs(15);

fn scaled_actor(name: &str, deployment: &str) -> Value {
    let mut actor = bound_actor(name, deployment);
    actor["spec"]["scaling"] = json!({
        "enabled": true, "maxReplicas": 3, "pollingInterval": 1, "cooldownPeriod": 0,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    });
    actor
}

async fn create(scenario: &Scenario, name: &str, replicas: i32) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &model(name, replicas)?)
        .await?;
    Ok(())
}

async fn replicas(scenario: &Scenario, name: &str, what: &str, wanted: i32) -> Result<()> {
    eventually(format_args!("{name}: {what}"), LATER, async || {
        let live = scenario.api::<Deployment>().get(name).await?;
        let now = live.spec.and_then(|spec| spec.replicas);
        check(now == Some(wanted), format_args!("{now:?}"))
    })
    .await
}

/// Fails if the operator writes to the namespace, or queries the broker for the queue, within this time.
async fn at_rest(scenario: &Scenario, queue: &str, window: Duration) -> Result<(), String> {
    let cluster = scenario.cluster();
    let watched = async || {
        let (audit, rabbitmq) = (cluster.audit(), cluster.rabbitmq()?);
        let (writes, calls) = (audit.mark().await?, rabbitmq.access_log().mark()?);
        tokio::time::sleep(window).await;
        let user = cluster.operator_user()?;
        let mut writes = audit.writes_in(writes, scenario.namespace()).await?;
        writes.retain(|write| write.user == user);
        let calls = rabbitmq.access_log().calls_since(calls, rabbitmq.user())?;
        let mut calls = besides_lists(&rabbitmq, calls);
        // KEDA uses the same broker user.
        calls.retain(|call| call.path.contains(queue) && !call.agent.starts_with("Go-"));
        Ok::<_, Error>((writes, calls))
    };
    match watched().await {
        Ok((writes, calls)) if writes.is_empty() && calls.is_empty() => Ok(()),
        found => Err(format!("{found:?}")),
    }
}

/// SO-7: nothing happens once earlier changes have settled.
async fn nothing_happens(scenario: &Scenario, queue: &str) -> Result<()> {
    eventually("the operator comes to rest", LATER, async || {
        let rests = at_rest(scenario, queue, Duration::from_secs(2)).await;
        rests.map_err(NotYet::new)
    })
    .await?;
    assert_eq!(at_rest(scenario, queue, RESTS).await, Ok(()));
    Ok(())
}

/// SO-1, SO-2, SO-6, SO-7, KEDA-11
#[tokio::test]
async fn messages_scale_a_target_from_zero_and_it_keeps_a_pod_when_scaling_ends() {
    Scenario::run("scaled-target", async |scenario| {
        let (name, target) = (scenario.name("bound"), "model");
        create(scenario, target, 1).await?;
        scenario.apply(&scaled_actor(&name, target)).await?;
        let napping = |status: &Value| {
            condition(status, "ScalingReady") == ("True", "ScaledObjectReady")
                && status["status"] == "Napping"
        };
        let status = status_is(scenario, &name, "is scaled to zero", LATER, napping).await?;
        assert_eq!(
            (&status["scalingMode"], &status["maxReplicas"]),
            (&json!("KEDA"), &json!(3))
        );
        replicas(scenario, target, "has no pods", 0).await?;
        nothing_happens(scenario, &format!("asya-{name}")).await?;

        let (rabbitmq, queue) = (scenario.cluster().rabbitmq()?, format!("asya-{name}"));
        for number in 0..12 {
            assert!(rabbitmq.publish("", &queue, &number.to_string()).await?);
        }
        let scaled_up =
            |status: &Value| status["desiredReplicas"] == 3 && status["pods"]["matched"] == 3;
        let status = status_is(scenario, &name, "has three pods", LATER, scaled_up).await?;
        assert_eq!(status["lastScaleDirection"], "up");
        assert_eq!(rabbitmq.messages(&queue, 12, false).await?.len(), 12);
        status_is(scenario, &name, "is scaled to zero again", LATER, napping).await?;

        let audit = scenario.cluster().audit();
        let mark = audit.mark().await?;
        scenario.apply(&bound_actor(&name, target)).await?;
        replicas(scenario, target, "has a pod", 1).await?;
        let off = |status: &Value| condition(status, "ScalingReady") == ("", "");
        let status = status_is(scenario, &name, "is not scaled", LATER, off).await?;
        assert_eq!(status["scalingMode"], "Manual");
        let user = scenario.cluster().operator_user()?;
        let writes = audit.writes_since(mark, &user).await?;
        let scaled = writes.iter().filter(|write| {
            write.namespace == scenario.namespace()
                && (&*write.resource, &*write.subresource) == ("deployments", "scale")
        });
        assert_eq!(scaled.count(), 1, "{writes:?}");
        let left = of_keda(scenario, "ScaledObject").get_opt(&name).await?;
        assert!(left.is_none(), "{left:?}");

        scenario.apply(&scaled_actor(&name, target)).await?;
        status_is(
            scenario,
            &name,
            "is scaled to zero once more",
            LATER,
            napping,
        )
        .await?;
        replicas(scenario, target, "has no pods again", 0).await?;
        scenario.kubectl(&["delete", "asya", &name]).await?;
        scenario.actor_gone(&name, LATER).await?;
        replicas(scenario, target, "has a pod without its actor", 1).await?;
        Ok(())
    })
    .await;
}

/// SO-3, BIND-42
#[tokio::test]
async fn target_with_another_autoscaler_or_deleted_target_is_not_scaled() {
    Scenario::run("scaled-twice", async |scenario| {
        let (name, target) = (scenario.name("bound"), "model");
        create(scenario, target, 1).await?;
        let hpas = scenario.api::<HorizontalPodAutoscaler>();
        let autoscaler = serde_json::from_value(json!({
            "metadata": {"name": "theirs"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
                "minReplicas": 1, "maxReplicas": 2,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
            },
        }))?;
        hpas.create(&PostParams::default(), &autoscaler).await?;
        scenario.apply(&scaled_actor(&name, target)).await?;
        let refused = |status: &Value| {
            condition(status, "ScalingReady") == ("False", "RivalAutoscaler")
        };
        let status = status_is(scenario, &name, "has another autoscaler", LATER, refused).await?;
        assert_eq!(condition(&status, "TargetResolved"), ("True", "Resolved"));
        assert!(status.to_string().contains("HorizontalPodAutoscaler theirs already scales Deployment model"), "{status}");
        let ours = of_keda(scenario, "ScaledObject");
        assert!(ours.get_opt(&name).await?.is_none());

        status_is(scenario, &name, "its pods take messages", LATER, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["readyReplicas"] == 1
        })
        .await?;
        let follows = scenario.timed(async || {
            hpas.delete("theirs", &DeleteParams::default()).await?;
            eventually("our ScaledObject follows", FOLLOWS_WITHIN, async || {
                let found = ours.get_opt(&name).await?;
                check(found.is_some(), "there is none")
            })
            .await
        });
        follows.await?;

        let queue = format!("asya-{name}");
        let rabbitmq = scenario.cluster().rabbitmq()?;
        assert!(rabbitmq.publish("", &queue, "kept").await?);
        scenario
            .api::<Deployment>()
            .delete(target, &DeleteParams::default())
            .await?;
        eventually("our ScaledObject goes with the target", LATER, async || {
            let found = ours.get_opt(&name).await?;
            check(found.is_none(), "it is there")
        })
        .await?;
        assert_eq!(rabbitmq.messages(&queue, 1, false).await?, ["kept"]);

        // Its ScaledObject is created as soon as KEDA has removed its finalizer from the earlier one.
        create(scenario, target, 1).await?;
        eventually("the next target is scaled", LATER, async || {
            let found = ours.get_opt(&name).await?;
            check(found.is_some(), "there is none")
        })
        .await?;
        Ok(())
    })
    .await;
}
