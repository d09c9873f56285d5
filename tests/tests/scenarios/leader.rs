//! One leader writes, whatever happens to it.

use std::time::{Duration, Instant};

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use serde_json::json;

use crate::{minimal_actor, own_cluster};

const SOON: Duration = Duration::from_secs(30);
const FROZEN: Duration = Duration::from_secs(20);

/// OPS-6
#[tokio::test]
async fn a_frozen_leader_writes_nothing_once_another_leads() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "leader", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let leases = Api::<Lease>::namespaced(cluster.client(), operator.namespace());
        let lease = async || -> Result<LeaseSpec, NotYet> {
            let lease = leases.get("asya-operator.asya.sh").await?;
            lease.spec.ok_or_else(|| NotYet::new("an empty lease"))
        };
        let first = operator.start("first").await?;
        eventually("the first one leads", SOON, async || {
            let holder = lease().await?.holder_identity.unwrap_or_default();
            check(holder.starts_with("first"), holder)
        })
        .await?;
        let second = operator.start("second").await?;
        let (before, during) = (scenario.name("before"), scenario.name("during"));
        let start = cluster.audit().mark().await?;
        scenario.apply(&minimal_actor(&before)).await?;
        scenario.actor_status(&before, "Running", SOON).await?;

        first.pause();
        let paused = Instant::now();
        // What the frozen one would still have to do when it wakes.
        scenario.apply(&minimal_actor(&during)).await?;
        let acquired = eventually("the second one leads", SOON, async || {
            let lease = lease().await?;
            let holder = lease.holder_identity.unwrap_or_default();
            check(holder.starts_with("second"), holder)?;
            lease
                .acquire_time
                .ok_or_else(|| NotYet::new("no acquireTime"))
        })
        .await?;
        scenario.actor_status(&during, "Running", SOON).await?;
        tokio::time::sleep(FROZEN.saturating_sub(paused.elapsed())).await;
        first.resume();
        let ended = tokio::time::timeout(SOON, first.process().wait()).await;
        assert!(
            ended.is_ok(),
            "the old leader goes on:\n{}",
            first.process().last_lines(20)
        );

        let writes = cluster
            .audit()
            .writes_since(start, &operator.user())
            .await?;
        let of = |credential: &str| {
            writes
                .iter()
                .filter(|write| write.credential == credential)
                .collect::<Vec<_>>()
        };
        assert!(
            !of(first.credential()).is_empty(),
            "the first leader's writes are not told apart"
        );
        assert!(
            !of(second.credential()).is_empty(),
            "the second leader's writes are not told apart"
        );
        let acquired: Timestamp = acquired.0;
        let late: Vec<_> = of(first.credential())
            .into_iter()
            .filter(|write| write.time > acquired)
            .collect();
        assert!(
            late.is_empty(),
            "after {acquired} the old leader wrote {late:#?}"
        );
        Ok(())
    })
    .await;
}
