//! What a leader does, from the lease to the end.

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
use crate::certificates::{CertificateManager, Plan};
use crate::cluster::crd;
use crate::cluster::leader::{Candidate, Ended};
use crate::telemetry::health::PROCESS;

/// Passes in flight get this long after SIGTERM (FW-16).
const DRAIN: Duration = Duration::from_secs(10);
/// Giving the lease back may take this long.
const RELEASE: Duration = Duration::from_secs(3);

/// What only a leader does, besides passes over actors.
pub struct Singletons {
    manages_crd: bool,
    certificates: Option<CertificateManager>,
    rules: Option<admission::WebhookConfigManager>,
}

impl Singletons {
    /// As the flags say; `certificates`: how the webhook's are cared for, if they are.
    pub fn new(
        args: &Args,
        certificates: Option<Plan>,
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
            // There is no webhook configuration of ours that could trust another CA.
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

/// Leads when it is our turn, until SIGTERM or until the lease is lost.
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
        ended = &mut passes => return Err(format!("passes ended: {ended:?}").into()),
        ended = tasks.ended() => return Err(ended.into()),
    }
    info!("stopping");
    running.not_ready("stopping");
    queue.close();
    let drained = async {
        if acquired.is_cancelled() && timeout(DRAIN, &mut passes).await.is_err() {
            warn!("passes in flight are cut off");
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

/// Without election the process leads from the start until it is told to stop.
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

/// What a leader does: the CRD, the webhook's certificates and configurations, then passes over actors as soon as every store has been filled.
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

/// Passes need no CRD of ours, only one that is there: a refusal is told and does not hold them up.
async fn keep_crd(client: Client) {
    let mut delay = Duration::from_secs(1);
    while let Err(error) = crd::apply(client.clone()).await {
        warn!(%error, "CRD not applied; --manage-crds=false leaves it to you");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_mins(1));
    }
}

/// Another may lead by now: nothing may be finished, and nothing drained.
fn gave_up(ended: &Result<Ended, tokio::task::JoinError>) -> ExitCode {
    error!(?ended, "leadership is gone, exiting at once");
    std::process::exit(1)
}
