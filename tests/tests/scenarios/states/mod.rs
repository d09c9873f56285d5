//! STATUS reports each of its 17 values, with the reason, within two seconds of the cause (STA-4 to STA-6).
//!
//! A cause is a write, timed from the API server's response. The scenario writes what a kubelet would report about a
//! pod that cannot run; the cluster itself writes everything else.

mod changes;
mod failures;
mod kubelet;
mod scaling;
mod status_recorder;
mod table;
mod volumes;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::SOON;
use asya_tests::operator::unvalidated;
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::{own_cluster_to_time, timed};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use self::status_recorder::StatusRecorder;
use self::table::Ended;
use crate::minimal_actor;

/// STA-6
const LIMIT: Duration = Duration::from_secs(2);

/// A value of STATUS, and the condition that explains it.
#[derive(Clone, Copy, Debug)]
struct Reported {
    state: &'static str,
    condition: &'static str,
    reason: &'static str,
}

/// `state`, with this reason of `WorkloadReady`.
fn workload(state: &'static str, reason: &'static str) -> Reported {
    Reported {
        state,
        condition: "WorkloadReady",
        reason,
    }
}

/// A scenario that watches actors.
struct Case<'a> {
    scenario: &'a Scenario,
    recorder: StatusRecorder,
}

impl Case<'_> {
    /// Runs the scenario of one value when the machine is not busy.
    async fn run(state: &'static str, body: impl AsyncFnOnce(&Case<'_>) -> Result<()>) {
        let _ended = Ended::of(state);
        Scenario::run_timed(&state.to_lowercase(), async |scenario| {
            let recorder = StatusRecorder::start(&scenario.actors()).await?;
            body(&Case { scenario, recorder }).await
        })
        .await;
    }

    /// Runs a scenario of several values, none of which is timed.
    async fn watch(name: &str, body: impl AsyncFnOnce(&Case<'_>) -> Result<()>) {
        Scenario::run(name, async |scenario| {
            let recorder = StatusRecorder::start(&scenario.actors()).await?;
            body(&Case { scenario, recorder }).await
        })
        .await;
    }

    /// Runs the scenario of one value on a dedicated cluster with an operator.
    async fn run_on_its_own(
        state: &'static str,
        options: Options,
        body: impl AsyncFnOnce(&Case<'_>, &mut RunningCluster) -> Result<()>,
    ) {
        let _turn = own_cluster_to_time().await;
        let _ended = Ended::of(state);
        let mut cluster = RunningCluster::start(options).await.unwrap();
        cluster.start_operator(unvalidated()).await.unwrap();
        let its_own = Ok((*cluster).clone());
        let _timed = timed().await;
        Scenario::run_on(its_own, &state.to_lowercase(), async |scenario| {
            let recorder = StatusRecorder::start(&scenario.actors()).await?;
            body(&Case { scenario, recorder }, &mut cluster).await
        })
        .await;
    }

    /// Applies the cause of a STATUS, and checks that it follows within the limit.
    async fn is_reported(
        &self,
        reported: Reported,
        why: &'static str,
        actor: &str,
        cause: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let mark = self.recorder.mark();
        cause.await?;
        let caused = std::time::Instant::now();
        let at = self.recorder.first(mark, actor, reported, SOON).await?;
        table::enter(reported, why, at.saturating_duration_since(caused));
        Ok(())
    }

    /// Waits until STATUS has this value, without a limit on its latency.
    async fn is(&self, reported: Reported, actor: &str) -> Result<()> {
        self.recorder
            .first(0, actor, reported, SOON)
            .await
            .map(drop)
    }

    /// Applies an actor; returns when the API server has responded.
    async fn apply(&self, actor: &Value) -> Result<()> {
        let name = actor["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply("scenario").force();
        let actors = self.scenario.actors();
        actors.patch(name, &params, &Patch::Apply(actor)).await?;
        Ok(())
    }
}

/// An actor with this many pods, all with this `mode`.
fn actor(name: &str, mode: &str, replicas: i32) -> Value {
    let mut actor = minimal_actor(name);
    let workload = &mut actor["spec"]["workload"];
    workload["replicas"] = json!(replicas);
    workload["template"]["metadata"]["labels"]["kwok.test/mode"] = json!(mode);
    actor
}
