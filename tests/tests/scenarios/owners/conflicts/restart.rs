//! Conflicts survive a restart of the operator.

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::operator::Operator;
use asya_tests::owners::reverter::Reverter;
use asya_tests::owners::{Kind, Owner};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{GIVEN_UP, Stage, conflict, settle, slow};
use crate::admission::control;
use crate::binding::{condition, status_is};
use crate::own_cluster;
use crate::owners::somebody;

/// When the annotation will be written again.
fn retry_time(status: &Value) -> Result<Timestamp> {
    let time = conflict(status)["retryTime"].as_str().unwrap_or_default();
    time.parse().map_err(asya_tests::Error::other)
}

/// CONF-6, BIND-48
#[tokio::test]
async fn backoff_of_a_conflict_survives_a_restart() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "resumed", async |scenario| {
        let values = json!({"controller": {"conflictWait": "10s"}});
        let operator = Operator::install(&cluster, values).await?;
        let first = control(&operator, "first", &[]).await?;
        let _webhook = Webhook::start(&operator).await?;
        let _owner = Owner::start(scenario, Reverter::new(vec!["team"]));
        somebody(scenario).create(Kind::DEPLOYMENT, &slow()).await?;
        settle(scenario).await?;
        let workload = (Kind::DEPLOYMENT, "model".to_owned());
        let stage = Stage::bind(scenario, (Kind::DEPLOYMENT, "model"), workload, 2).await?;
        let lost = async |times: i64| {
            let what = format!("lost {times} times");
            status_is(scenario, &stage.actor, &what, GIVEN_UP, |status| {
                status["conflictCount"] == times
            })
            .await
        };
        let status = lost(1).await?;
        let until = retry_time(&status)?;
        first.kill().await;
        let _second = control(&operator, "second", &[]).await?;
        let status = lost(2).await?;
        let now = Timestamp::now();
        assert!(now >= until, "{now} is before {until}");
        assert_eq!(condition(&status, "Conflict"), ("True", "BindingConflict"));
        assert_eq!(conflict(&status)["losses"], 2, "{status}");
        // Two attempts, and one write that records who binds the target.
        assert_eq!(stage.writes_by(&operator.user()).await?, 2 + 1);
        Ok(())
    })
    .await;
}
