//! Only the leader writes, whatever happens to it, and another takes over soon.

use std::time::{Duration, Instant};

use asya_tests::audit::{Mark, Write};
use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::{Instance, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::{own_cluster_to_time, timed};
use asya_tests::{Error, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{all_running, minimal_actor, own_cluster};

const FROZEN: Duration = Duration::from_secs(20);
/// FW-11: from the loss of a leader until the first reconcile of the next.
const TAKEOVER: Duration = Duration::from_secs(12);
/// Followers check the lease once a second.
const HANDOVER: Duration = Duration::from_secs(3);

/// Two instances, of which the first is the leader.
struct Pair {
    cluster: Cluster,
    operator: Operator,
    first: Instance,
    second: Instance,
    start: Mark,
}

impl Pair {
    async fn start(cluster: Cluster) -> Result<Self> {
        let operator = Operator::install(&cluster, json!({})).await?;
        let start = cluster.audit().mark().await?;
        let first = operator.start("first").await?;
        let client = cluster.client();
        leads(client, operator.namespace(), &first).await?;
        let second = operator.start("second").await?;
        Ok(Self {
            cluster,
            operator,
            first,
            second,
            start,
        })
    }

    /// Waits until this instance leads; returns since when.
    async fn leads(&self, instance: &Instance) -> Result<Timestamp> {
        leads(self.cluster.client(), self.operator.namespace(), instance).await
    }

    /// An instance's writes so far.
    async fn writes(&self, of: &Instance) -> Result<Vec<Write>> {
        let audit = self.cluster.audit();
        let mut writes = audit
            .writes_since(self.start, &self.operator.user())
            .await?;
        writes.retain(|write| write.credential == of.credential());
        assert!(
            !writes.is_empty(),
            "the writes of {} are not told apart",
            of.name()
        );
        Ok(writes)
    }

    /// Checks that only the second instance has written since then.
    async fn only_the_second_wrote_since(&self, acquired: Timestamp) -> Result<()> {
        let late: Vec<_> = self
            .writes(&self.first)
            .await?
            .into_iter()
            .filter(|write| write.time > acquired)
            .collect();
        assert!(
            late.is_empty(),
            "after {acquired} the old leader wrote {late:#?}"
        );
        let early: Vec<_> = self
            .writes(&self.second)
            .await?
            .into_iter()
            .filter(|write| write.time < acquired)
            .collect();
        assert!(
            early.is_empty(),
            "before {acquired} the next leader wrote {early:#?}"
        );
        Ok(())
    }
}

async fn leads(client: Client, namespace: &str, instance: &Instance) -> Result<Timestamp> {
    let leases = Api::<Lease>::namespaced(client, namespace);
    let what = format!("{} leads", instance.name());
    eventually(what, SOON, async || {
        let lease: LeaseSpec = leases
            .get("asya-operator.asya.sh")
            .await?
            .spec
            .ok_or_else(|| NotYet::new("an empty lease"))?;
        let holder = lease.holder_identity.unwrap_or_default();
        let leads = holder.starts_with(&format!("{}_", instance.name()));
        check(leads, holder)?;
        let acquired = lease
            .acquire_time
            .ok_or_else(|| NotYet::new("no acquireTime"))?;
        Ok(acquired.0)
    })
    .await
}

/// Enough actors to keep an operator busy for seconds.
fn work(scenario: &Scenario, base: &str, count: usize) -> (Vec<String>, Vec<Value>) {
    let names: Vec<String> = (0..count)
        .map(|n| scenario.name(&format!("{base}-{n}")))
        .collect();
    let actors = names.iter().map(|name| minimal_actor(name)).collect();
    (names, actors)
}

/// Waits until some of these actors have been reconciled, so that more reconciles are in flight.
async fn begun(scenario: &Scenario, names: &[String]) -> Result<()> {
    eventually("work has begun", SOON, async || {
        let actors = scenario.actors().list(&ListParams::default()).await?;
        let begun = actors
            .iter()
            .filter(|actor| actor.metadata.finalizers.is_some())
            .filter_map(|actor| actor.metadata.name.as_ref())
            .filter(|name| names.contains(name))
            .count();
        check(begun > 0, "nothing")
    })
    .await
}

/// OPS-6; architecture, "One fence"
#[tokio::test]
async fn frozen_leader_writes_nothing_after_handover() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "frozen", async |scenario| {
        let pair = Pair::start(cluster.clone()).await?;
        let (before, actors) = work(scenario, "before", 40);
        let applying = scenario.apply_all(&actors);
        let freezing = async {
            begun(scenario, &before).await?;
            pair.first.pause();
            Ok::<_, Error>(Instant::now())
        };
        let (applied, paused) = tokio::join!(applying, freezing);
        let paused = paused?;
        applied?;
        // Work that the frozen leader would pick up when it resumes.
        let (during, actors) = work(scenario, "during", 10);
        scenario.apply_all(&actors).await?;
        let acquired = pair.leads(&pair.second).await?;
        all_running(scenario, &before).await?;
        all_running(scenario, &during).await?;

        tokio::time::sleep(FROZEN.saturating_sub(paused.elapsed())).await;
        pair.first.resume();
        let ended = tokio::time::timeout(SOON, pair.first.process().wait()).await;
        let ended = ended.map(|status| status.code());
        assert_eq!(
            ended,
            Ok(Some(1)),
            "the old leader:\n{}",
            pair.first.process().last_lines(20)
        );
        pair.only_the_second_wrote_since(acquired).await
    })
    .await;
}

/// FW-11, FW-16
#[tokio::test]
async fn stopped_leader_hands_over_at_once() {
    let _turn = own_cluster_to_time().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    let _timed = timed().await;
    Scenario::run_on(Ok(cluster.clone()), "handover", async |scenario| {
        let pair = Pair::start(cluster.clone()).await?;
        let (names, actors) = work(scenario, "work", 40);
        let applying = scenario.apply_all(&actors);
        let stopping = async {
            begun(scenario, &names).await?;
            let told = Instant::now();
            let status = pair.first.stop().await?;
            let ended = Instant::now();
            let acquired = pair.leads(&pair.second).await?;
            Ok::<_, Error>((status, ended - told, ended.elapsed(), acquired))
        };
        let (applied, stopped) = tokio::join!(applying, stopping);
        applied?;
        let (status, stopping, leading, acquired) = stopped?;
        eprintln!("SIGTERM during work: ended after {stopping:?}, the next led {leading:?} later");
        assert_eq!(
            status.code(),
            Some(0),
            "{}",
            pair.first.process().last_lines(20)
        );
        assert!(leading < HANDOVER, "the next led only after {leading:?}");
        all_running(scenario, &names).await?;
        pair.only_the_second_wrote_since(acquired).await?;

        // A follower has no lease to hand over.
        let third = pair.operator.start("third").await?;
        let status = third.stop().await?;
        assert_eq!(status.code(), Some(0), "{}", third.process().last_lines(20));
        Ok(())
    })
    .await;
}

/// FW-11
#[tokio::test]
async fn killed_leader_is_replaced_within_twelve_seconds() {
    let _turn = own_cluster_to_time().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    let _timed = timed().await;
    Scenario::run_on(Ok(cluster.clone()), "killed", async |scenario| {
        let pair = Pair::start(cluster.clone()).await?;
        let (before, actors) = work(scenario, "before", 5);
        scenario.apply_all(&actors).await?;
        all_running(scenario, &before).await?;

        pair.first.kill().await;
        let killed = Timestamp::now();
        let (after, actors) = work(scenario, "after", 5);
        scenario.apply_all(&actors).await?;
        let acquired = pair.leads(&pair.second).await?;
        all_running(scenario, &after).await?;
        let writes = pair.writes(&pair.second).await?;
        let first = writes
            .iter()
            .map(|write| write.time)
            .min()
            .unwrap_or(killed);
        let (lost, idle) = (
            acquired.duration_since(killed),
            first.duration_since(killed),
        );
        eprintln!("SIGKILL: the next led after {lost:#}, and wrote first after {idle:#}");
        assert!(
            idle.unsigned_abs() <= TAKEOVER,
            "the next wrote only after {idle:#}"
        );
        pair.only_the_second_wrote_since(acquired).await
    })
    .await;
}
