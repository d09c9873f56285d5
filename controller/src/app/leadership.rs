//! The leader's lifecycle, from acquiring the lease to shutdown.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use asya_process::BoxError;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::operator::Operator;
use crate::admission;
use crate::args::Args;
use crate::certificates::trust::Trust;
use crate::certificates::{CertificateManager, CertificatePlan};
use crate::cluster::crd;
use crate::cluster::leader::{Candidate, Ended};
use crate::telemetry::health::PROCESS;

/// How long reconciles in flight may take after SIGTERM (FW-16).
const DRAIN: Duration = Duration::from_secs(10);
/// How long releasing the lease may take.
const RELEASE: Duration = Duration::from_secs(3);

/// What only the leader runs, besides reconciling actors.
pub struct Singletons {
    manages_crd: bool,
    certificates: Option<CertificateManager>,
    rules: Option<admission::WebhookConfigManager>,
}

impl Singletons {
    /// Configures them by the flags. `certificates` is the plan for the webhook's certificates, if the operator manages
    /// them.
    pub fn new(
        args: &Args,
        certificates: Option<CertificatePlan>,
        operator: &Operator,
        client: &Client,
    ) -> Self {
        let trust = Trust::default();
        let service = args.certificates.webhook_service.as_deref();
        let rules = args.rules.plan(
            service,
            &args.namespace,
            args.certificates.webhook_ca_spread,
        );
        if rules.is_none() {
            // Without webhook configurations of ours, none can trust another CA.
            trust.found([]);
        }
        Self {
            manages_crd: args.manage_crds,
            rules: rules.map(|plan| {
                admission::WebhookConfigManager::new(
                    plan,
                    trust.clone(),
                    client.clone(),
                    Arc::clone(&operator.context),
                    operator.queue.clone(),
                    operator.tasks.clone(),
                )
            }),
            certificates: certificates
                .map(|plan| CertificateManager::new(plan, trust, client.clone())),
        }
    }
}

/// Waits for leadership, then leads until SIGTERM, SIGINT or the loss of the lease.
pub async fn until_told(
    args: &Args,
    operator: Operator,
    candidate: Candidate,
    client: Client,
    singletons: Singletons,
) -> Result<ExitCode, BoxError> {
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let (queue, running) = (operator.queue.clone(), operator.readiness.gate(PROCESS));
    running.ready();
    let (release, acquired) = (CancellationToken::new(), CancellationToken::new());
    let election = tokio::spawn(elect(
        args.leader_elect,
        candidate,
        release.clone(),
        acquired.clone(),
    ));
    let tasks = operator.tasks.clone();
    let passes = tokio::spawn(lead(operator, client, singletons, acquired.clone()));
    tokio::pin!(election, passes);

    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        ended = &mut election => return Ok(gave_up(&ended)),
        ended = &mut passes => return Err(format!("the reconcile loop ended: {ended:?}").into()),
        ended = tasks.ended() => return Err(ended.into()),
    }
    info!("stopping");
    running.not_ready("stopping");
    queue.close();
    let drained = async {
        if acquired.is_cancelled() && timeout(DRAIN, &mut passes).await.is_err() {
            warn!("aborting reconciles that are still in flight");
        }
        release.cancel();
        let _ = timeout(RELEASE, &mut election).await;
    };
    tokio::select! {
        () = drained => Ok(ExitCode::SUCCESS),
        _ = term.recv() => Ok(ExitCode::FAILURE),
        _ = int.recv() => Ok(ExitCode::FAILURE),
    }
}

/// Runs leader election. Without it, the process leads from the start until it is stopped.
async fn elect(
    elects: bool,
    candidate: Candidate,
    release: CancellationToken,
    acquired: CancellationToken,
) -> Ended {
    if elects {
        return candidate.run(release, || acquired.cancel()).await;
    }
    acquired.cancel();
    release.cancelled().await;
    Ended::Released
}

/// Once leading, applies the CRD, starts the tasks for the webhook's certificates and configurations, and reconciles
/// actors as soon as every cache is synced.
async fn lead(
    operator: Operator,
    client: Client,
    singletons: Singletons,
    acquired: CancellationToken,
) {
    acquired.cancelled().await;
    if singletons.manages_crd {
        tokio::spawn(operator.tasks.ending("the CRD", keep_crd(client)));
    }
    if let Some(certificates) = singletons.certificates {
        let task = operator
            .tasks
            .unending("webhook certificates", certificates.run());
        tokio::spawn(task);
    }
    if let Some(rules) = singletons.rules {
        let task = operator
            .tasks
            .unending("webhook configurations", rules.run());
        tokio::spawn(task);
    }
    operator.readiness.reached().await;
    operator.lead().await;
}

/// Reconciles need a CRD, but not ours: a refused apply is logged and retried without blocking them.
async fn keep_crd(client: Client) {
    let mut delay = Duration::from_secs(1);
    while let Err(error) = crd::apply(client.clone()).await {
        warn!(%error, "CRD not applied; with --manage-crds=false you apply it yourself");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_mins(1));
    }
}

/// Exits at once: another replica may already lead, so nothing may be finished or drained.
fn gave_up(ended: &Result<Ended, tokio::task::JoinError>) -> ExitCode {
    error!(?ended, "lost leadership, exiting at once");
    std::process::exit(1)
}
