//! The HPA scales between one and many pods according to the behavior that the user configures.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::LATER;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::create;
use crate::binding::{bound_actor, condition, status_is};

/// The test's HPA controller evaluates every 2 s.
const PERIOD: Duration = Duration::from_secs(12);
const LOOKS: Duration = Duration::from_secs(2);
const PODS: i32 = 4;

async fn asked(scenario: &Scenario, name: &str) -> Result<Option<i32>> {
    let live = scenario.api::<Deployment>().get(name).await?;
    Ok(live.spec.and_then(|spec| spec.replicas))
}

/// SAFE-40, SAFE-22, SO-1, KEDA-2
#[tokio::test]
async fn target_with_many_pods_loses_them_by_the_steps_that_the_user_asks_for_and_none_below_the_least()
 {
    Scenario::run("steps", async |scenario| {
        let (name, target) = (scenario.name("bound"), "model");
        create(scenario, target, PODS).await?;
        let mut actor = bound_actor(&name, target);
        actor["spec"]["scaling"] = json!({
            "enabled": true, "minReplicas": 1, "maxReplicas": PODS, "pollingInterval": 1, "cooldownPeriod": 0,
            "behavior": {"scaleDown": {
                "stabilizationWindowSeconds": 0,
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": PERIOD.as_secs()}],
            }},
        });
        scenario.apply(&actor).await?;
        let mut seen = vec![(Instant::now(), PODS)];
        let ends = Instant::now() + LATER * 2;
        while seen.last().is_some_and(|(_, pods)| *pods > 1) {
            assert!(Instant::now() < ends, "{seen:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = asked(scenario, target).await?.unwrap_or_default();
            if seen.last().is_some_and(|(_, pods)| *pods != now) {
                seen.push((Instant::now(), now));
            }
        }
        let pods: Vec<_> = seen.iter().map(|(_, pods)| *pods).collect();
        assert_eq!(pods, [4, 3, 2, 1], "one at a time");
        // Skip the first step, which depends on when the first pod got the sidecar.
        for step in seen.windows(2).skip(1) {
            let apart = step[1].0 - step[0].0;
            assert!(apart + LOOKS >= PERIOD, "{apart:?} between {pods:?}");
        }
        let rests = |status: &Value| {
            condition(status, "ScalingReady") == ("True", "ScaledObjectReady")
                && status["desiredReplicas"] == 1
        };
        status_is(scenario, &name, "has its least", LATER, rests).await?;
        tokio::time::sleep(PERIOD).await;
        assert_eq!(asked(scenario, target).await?, Some(1));
        Ok(())
    })
    .await;
}
