//! The leader's lifecycle, from acquiring the lease to shutdown.

use std::sync::Arc;
use std::time::Duration;

use asya_process::BoxError;
use asya_shared::backoff::Backoff;
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::operator::Operator;
use crate::admission;
use crate::app::args::Args;
use crate::certificates::trust::SharedTrust;
use crate::certificates::{CertificateConfig, CertificateManager};
use crate::cluster::crd;
use crate::cluster::leader::{Candidate, LeadershipEnd, LeadershipPhase, Phase};
use crate::telemetry::health::PROCESS;

/// How long reconciles in flight may take after SIGTERM (FW-16).
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other writes in flight and then the release of the lease may take. Otherwise the lease expires.
const LEASE_RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Tasks of the leader, besides reconciling actors. They start whenever this replica acquires the lease.
pub struct LeaderTasks {
    manages_crd: bool,
    certificates: Option<CertificateConfig>,
    webhook_configs: Option<admission::WebhookConfigSettings>,
    trust: SharedTrust,
}

impl LeaderTasks {
    /// Configures the tasks from the flags. `certificates` configures the webhook's certificates, if the operator
    /// manages them.
    pub fn new(args: &Args, certificates: Option<CertificateConfig>) -> Self {
        let trust = SharedTrust::default();
        let service = args.certificates.webhook_service.as_deref();
        let webhook_configs = args.webhook_configs.settings(
            service,
            &args.namespace,
            args.certificates.webhook_ca_spread,
        );
        if webhook_configs.is_none() {
            // Without our own webhook configurations, none can trust another CA.
            trust.report_bundles([]);
        }
        Self {
            manages_crd: args.manage_crds,
            webhook_configs,
            certificates,
            trust,
        }
    }

    /// Starts applying the CRD and managing the webhook's certificates and configurations.
    /// `crd_attempted` is cancelled once the CRD is applied or was refused, or if nothing is to be applied.
    fn start(
        &self,
        operator: &Operator,
        client: &Client,
        crd_attempted: CancellationToken,
    ) -> JoinSet<()> {
        let tasks = &operator.tasks;
        let mut started = JoinSet::new();
        if self.manages_crd {
            let apply = apply_crd(client.clone(), crd_attempted);
            started.spawn(tasks.run_to_completion("the CRD", apply));
        } else {
            crd_attempted.cancel();
        }
        if let Some(config) = self.certificates.clone() {
            let manager = CertificateManager::new(config, self.trust.clone(), client.clone());
            started.spawn(tasks.run_forever("webhook certificates", manager.run()));
        }
        if let Some(settings) = self.webhook_configs.clone() {
            let manager = admission::WebhookConfigManager::new(
                settings,
                self.trust.clone(),
                client.clone(),
                Arc::clone(&operator.context),
                operator.queue.clone(),
                tasks.clone(),
            );
            started.spawn(tasks.run_forever("webhook configurations", manager.run()));
        }
        started
    }
}

/// How a replica ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It stopped on request.
    Stopped,
    /// A second request ended it before it had stopped.
    Aborted,
    /// Another replica may already lead: the process must exit immediately, without draining.
    LeaseLost,
}

/// A replica's candidacy, and what it does once it leads.
pub struct Leadership {
    /// Whether there is an election; otherwise the replica leads from the start.
    pub elects: bool,
    pub operator: Operator,
    pub candidate: Candidate,
    pub client: Client,
    pub leader_tasks: LeaderTasks,
}

impl Leadership {
    /// Waits for leadership, then leads until `stop_requested` resolves or the lease is lost.
    ///
    /// # Errors
    /// If an essential task ends.
    pub async fn run_until_stopped(
        self,
        mut stop_requested: impl AsyncFnMut(),
    ) -> Result<Ending, BoxError> {
        let queue = self.operator.queue.clone();
        let process_check = self.operator.readiness.check(PROCESS);
        process_check.ready();
        let release = CancellationToken::new();
        let phase = LeadershipPhase::default();
        let election = tokio::spawn(elect(
            self.elects,
            self.candidate,
            release.clone(),
            phase.clone(),
        ));
        let tasks = self.operator.tasks.clone();
        let leader = tokio::spawn(lead(
            self.operator,
            self.client,
            self.leader_tasks,
            phase.clone(),
        ));
        tokio::pin!(election, leader);

        tokio::select! {
            () = stop_requested() => {}
            ended = &mut election => {
                error!(?ended, "lost leadership, exiting immediately");
                return Ok(Ending::LeaseLost);
            }
            ended = &mut leader => return Err(format!("the reconcile loop ended: {ended:?}").into()),
            ended = tasks.first_failure() => return Err(ended.into()),
        }
        info!("stopping");
        process_check.not_ready("stopping");
        queue.close();
        let drain = async {
            // Before that, nothing reconciles, and another replica may be ready to.
            let reconciles = phase.phase() == Phase::Leading;
            if reconciles && timeout(SHUTDOWN_TIMEOUT, &mut leader).await.is_err() {
                warn!("aborting reconciles that are still in flight");
            }
            release.cancel();
            let _ = timeout(LEASE_RELEASE_TIMEOUT, &mut election).await;
        };
        tokio::select! {
            () = drain => Ok(Ending::Stopped),
            () = stop_requested() => Ok(Ending::Aborted),
        }
    }
}

/// Runs leader election. Without it, the process leads from the start until it is stopped.
async fn elect(
    elects: bool,
    candidate: Candidate,
    release: CancellationToken,
    phase: LeadershipPhase,
) -> LeadershipEnd {
    if elects {
        return candidate.run(release, phase).await;
    }
    phase.advance(Phase::Standby, Phase::Preparing);
    release.cancelled().await;
    LeadershipEnd::Released
}

/// While this replica holds the lease, runs the leader's tasks, and reconciles actors as soon as every cache is synced.
/// If that takes too long, the lease goes back to the other candidates.
async fn lead(
    operator: Operator,
    client: Client,
    leader_tasks: LeaderTasks,
    phase: LeadershipPhase,
) {
    loop {
        phase.reaches(Phase::Preparing).await;
        let crd_attempted = CancellationToken::new();
        let mut tasks = leader_tasks.start(&operator, &client, crd_attempted.clone());
        let ready = async {
            // The API server refuses status fields that are newer than its schema.
            let _ = timeout(CRD_TIMEOUT, crd_attempted.cancelled()).await;
            operator.readiness.all_ready().await;
        };
        let is_ready = tokio::select! {
            // In a fixed order, so that a simulation can be repeated.
            biased;
            () = ready => true,
            () = phase.reaches(Phase::GivenBack) => false,
        };
        if is_ready && phase.advance(Phase::Preparing, Phase::Leading) {
            // They end with the process, after the writes in flight.
            tasks.detach_all();
            return operator.lead().await;
        }
        // Only now: an aborted write might arrive after the lease was released.
        phase.reaches(Phase::GivenBack).await;
        tasks.shutdown().await;
        phase.advance(Phase::GivenBack, Phase::Standby);
    }
}

/// How long reconciles wait for the first attempt to apply the CRD (SAFE-38).
const CRD_TIMEOUT: Duration = Duration::from_secs(5);
/// Backoff between attempts to apply the CRD.
const CRD_RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// Reconciles need a CRD, but not necessarily this version: a refused apply is logged and retried in the background.
/// `attempted` is cancelled after the first attempt.
async fn apply_crd(client: Client, attempted: CancellationToken) {
    let mut failures = 0;
    loop {
        let applied = crd::apply(client.clone()).await;
        attempted.cancel();
        let Err(error) = applied else { return };
        warn!(%error, "CRD not applied; with --manage-crds=false you apply it yourself");
        tokio::time::sleep(CRD_RETRY.after(failures)).await;
        failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::app::operator::tests::operator_of;
    use crate::cluster::fence::Fence;
    use crate::reconcile::tests::fixtures::context_of;

    /// An API server that refuses every request after `delay`, if there is one, or never answers.
    fn api_server(delay: Option<u64>) -> Client {
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| async move {
            match delay {
                Some(seconds) => sleep(Duration::from_secs(seconds)).await,
                None => pending().await,
            }
            let refused = http::Response::builder().status(403);
            Ok::<_, BoxError>(refused.body(kube::client::Body::empty())?)
        });
        Client::new(service, "default")
    }

    fn leader_tasks(manages_crd: bool) -> LeaderTasks {
        LeaderTasks {
            manages_crd,
            certificates: None,
            webhook_configs: None,
            trust: SharedTrust::default(),
        }
    }

    /// How, and after how many seconds, a leader ends whose API server never answers, if it is told to stop after these
    /// delays.
    async fn ending(is_ready: bool, delays: &[u64]) -> (Ending, u64) {
        let operator = operator_of(context_of(api_server(None)));
        let client = operator.context.client.clone();
        let watch = operator.readiness.check("watch");
        if is_ready {
            watch.ready();
        }
        let leadership = Leadership {
            elects: false,
            candidate: Candidate {
                readiness: operator.readiness.clone(),
                client: client.clone(),
                namespace: "asya-system".to_owned(),
                name: "asya-operator".to_owned(),
                identity: "a".to_owned(),
                fence: Fence::unrestricted(),
            },
            leader_tasks: leader_tasks(false),
            client,
            operator,
        };
        let started = Instant::now();
        let mut delays = delays.iter();
        let stop_requested = async || match delays.next() {
            Some(delay) => sleep(Duration::from_secs(*delay)).await,
            None => pending().await,
        };
        let ending = leadership.run_until_stopped(stop_requested).await;
        (ending.unwrap(), started.elapsed().as_secs())
    }

    /// FW-16
    #[tokio::test(start_paused = true)]
    async fn stopping_leader_waits_ten_seconds_for_its_work_or_until_it_is_told_again() {
        assert_eq!(ending(true, &[5]).await, (Ending::Stopped, 15));
        assert_eq!(ending(true, &[5, 3]).await, (Ending::Aborted, 8));
    }

    /// SAFE-38
    #[tokio::test(start_paused = true)]
    async fn leader_reconciles_after_its_first_attempt_to_apply_the_crd() {
        for (manages_crd, delay, expected) in [
            (true, Some(2), 2),
            (true, None, 5),
            (true, Some(20), 5),
            (false, None, 0),
        ] {
            let client = api_server(delay);
            let phase = LeadershipPhase::default();
            assert!(phase.advance(Phase::Standby, Phase::Preparing));
            let started = Instant::now();
            let leader = tokio::spawn(lead(
                operator_of(context_of(client.clone())),
                client,
                leader_tasks(manages_crd),
                phase.clone(),
            ));
            phase.reaches(Phase::Leading).await;
            let waited = started.elapsed().as_secs();
            assert_eq!(waited, expected, "{manages_crd} {delay:?}");
            leader.abort();
        }
    }

    /// FW-16: it has begun no reconcile.
    #[tokio::test(start_paused = true)]
    async fn leader_that_is_not_ready_stops_at_once() {
        assert_eq!(ending(false, &[5]).await, (Ending::Stopped, 5));
    }
}
