//! A user's own autoscaler on the workload of an actor that does not scale.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{condition, status_is};
use crate::minimal_actor;

/// If they contended, the number would change about once a second.
const WATCHED: Duration = Duration::from_mins(2);
const FEWER_THAN: usize = 5;

async fn replicas(scenario: &Scenario, name: &str) -> Result<Option<i32>> {
    let live = scenario.api::<Deployment>().get(name).await?;
    Ok(live.spec.and_then(|spec| spec.replicas))
}

/// The numbers of replicas meanwhile, polled ten times a second.
async fn changes(scenario: &Scenario, name: &str) -> Result<Vec<Option<i32>>> {
    let mut seen = vec![replicas(scenario, name).await?];
    let ends = tokio::time::Instant::now() + WATCHED;
    while tokio::time::Instant::now() < ends {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = replicas(scenario, name).await?;
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    Ok(seen)
}

/// SAFE-25, KEDA-9
#[tokio::test]
async fn number_of_pods_is_left_to_the_users_own_autoscaler_which_is_named_with_both_ways_out() {
    Scenario::run_patiently("own-hpa", async |scenario| {
        let name = scenario.name("own");
        let mut actor = minimal_actor(&name);
        actor["spec"]["workload"]["replicas"] = json!(1);
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", LATER).await?;

        let hpas = scenario.api::<HorizontalPodAutoscaler>();
        let theirs = serde_json::from_value(json!({
            "metadata": {"name": "theirs"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 3, "maxReplicas": 4,
            },
        }))?;
        hpas.create(&PostParams::default(), &theirs).await?;
        let seen = changes(scenario, &name).await?;
        assert!(seen.len() <= FEWER_THAN, "{seen:?}");
        assert_eq!(seen.last(), Some(&Some(3)), "it is followed");
        let told = |reason: (&'static str, &'static str)| {
            move |status: &Value| condition(status, "ScalingReady") == reason
        };
        let refused = told(("False", "RivalAutoscaler"));
        let status = status_is(scenario, &name, "it is reported", LATER, refused).await?;
        let text = status.to_string();
        for part in [
            "HorizontalPodAutoscaler theirs scales Deployment",
            "delete HorizontalPodAutoscaler theirs",
            "remove spec.workload.replicas",
        ] {
            assert!(text.contains(part), "{text}");
        }

        actor["spec"]["workload"]["replicas"] = Value::Null;
        scenario.apply(&actor).await?;
        let left = told(("True", "ScaledByOther"));
        status_is(scenario, &name, "it is left to it", LATER, left).await?;

        actor["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&actor).await?;
        hpas.delete("theirs", &DeleteParams::default()).await?;
        eventually("the actor's number counts again", LATER, async || {
            let now = replicas(scenario, &name).await?;
            check(now == Some(2), format_args!("{now:?}"))
        })
        .await?;
        status_is(
            scenario,
            &name,
            "nothing is reported",
            LATER,
            told(("", "")),
        )
        .await?;
        Ok(())
    })
    .await;
}
