//! Another controller keeps changing the replicas of an actor that does not scale.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::eventually;
use asya_tests::eventually::{LATER, check};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::binding::{condition, status_is};
use crate::minimal_actor;

/// The longest backoff delay fits twice.
const WATCHED: Duration = Duration::from_secs(80);
/// Five at once, then after 10 s, 20 s and 40 s, plus a few, because a reconcile may start before it observes the
/// status written by the previous one. Without backoff there would be one per second.
const MOST: usize = 14;

async fn replicas(scenario: &Scenario, name: &str) -> Result<Option<i32>> {
    let live = scenario.api::<Deployment>().get(name).await?;
    Ok(live.spec.and_then(|spec| spec.replicas))
}

/// Sets the replicas whenever they differ; returns how often.
async fn keeps_setting(scenario: &Scenario, name: &str, wanted: i32) -> Result<usize> {
    let params = PatchParams {
        field_manager: Some("night-shift".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"spec": {"replicas": wanted}}));
    let deployments = scenario.api::<Deployment>();
    let mut times = 0;
    let ends = tokio::time::Instant::now() + WATCHED;
    while tokio::time::Instant::now() < ends {
        if replicas(scenario, name).await? != Some(wanted) {
            deployments.patch_scale(name, &params, &patch).await?;
            times += 1;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(times)
}

/// WRK-8, WRK-3
#[tokio::test]
async fn client_that_repeatedly_sets_replicas_is_named_and_reverted_at_increasing_intervals() {
    Scenario::run_patiently("contention", async |scenario| {
        let name = scenario.name("calm");
        let mut actor = minimal_actor(&name);
        actor["spec"]["workload"]["replicas"] = json!(1);
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", LATER).await?;
        let times = keeps_setting(scenario, &name, 3).await?;
        assert!((2..=MOST).contains(&times), "{times}");
        let reported = |status: &Value| condition(status, "Conflict") == ("True", "FieldConflict");
        let status = status_is(scenario, &name, "it is reported", LATER, reported).await?;
        let text = status["conditions"].to_string();
        for part in [
            "spec.replicas was changed",
            "night-shift (Update)",
            "spec.workload.replicas",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(condition(&status, "Ready").0, "True", "{status}");
        scenario.event("FieldConflict", LATER).await?;

        // A change to the actor itself is applied without backoff.
        actor["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&actor).await?;
        eventually("the actor's new number counts", LATER, async || {
            let now = replicas(scenario, &name).await?;
            check(now == Some(2), format_args!("{now:?}"))
        })
        .await?;
        Ok(())
    })
    .await;
}
