//! The controller of Asya's `AsyncActor`s.

mod admission_rules;
mod applier;
mod args;
mod binding;
mod census;
mod certificates;
mod claims;
mod client;
mod config_maps;
mod crd;
mod events;
mod fence;
mod health;
mod health_pass;
mod keda;
mod leader;
mod metrics;
mod mounts;
mod namespaces;
mod objects;
mod operator;
mod pass;
mod patch;
mod queue;
mod reconcile;
mod record;
mod refusals;
mod runtime;
mod scaling;
mod script;
mod store;
mod watch;
mod work_queue;
mod workload;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::applier::Applier;
use crate::args::Args;
use crate::certificates::trust::Trust;
use crate::certificates::{Keeper, Plan};
use crate::claims::Claims;
use crate::config_maps::ConfigMaps;
use crate::fence::Fence;
use crate::health::Readiness;
use crate::keda::Keda;
use crate::leader::{Candidate, Ended};
use crate::metrics::Metrics;
use crate::namespaces::Namespaces;
use crate::objects::Objects;
use crate::operator::{Operator, Watches};
use crate::pass::Pace;
use crate::queue::Brokers;
use crate::queue::health::{Doubts, Schedule};
use crate::queue::looks::Looks;
use crate::reconcile::{Context, Deadlines, Installation, Stores};
use crate::runtime::RuntimeScript;
use crate::work_queue::{Backoff, Settings, WorkQueue};
use crate::workload::Workloads;

/// Passes in flight get this long after SIGTERM (FW-16).
const DRAIN: Duration = Duration::from_secs(10);
/// Giving the lease back may take this long.
const RELEASE: Duration = Duration::from_secs(3);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::read();
    // Before anything speaks TLS: reqwest takes what is installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if let Err(error) = start_logging(&args.log_level).and(Ok(())) {
        eprintln!("--log-level {}: {error}", args.log_level);
        return ExitCode::from(2);
    }
    match run(args).await {
        Ok(code) => code,
        Err(error) => {
            error!(%error, "stopped");
            ExitCode::FAILURE
        }
    }
}

/// JSON lines. kube's client logs whole answers that it cannot decode, Secrets among them: it is silenced.
fn start_logging(level: &str) -> Result<(), BoxError> {
    let filter = EnvFilter::try_new(level)?.add_directive("kube_client::client=off".parse()?);
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .try_init()
}

async fn run(args: Args) -> Result<ExitCode, BoxError> {
    let transports = args.transports()?;
    let settings = args.settings()?;
    let certificates = args.certificates.plan(&args.namespace)?;
    let script = script::load(&args)?;
    transports
        .warnings
        .iter()
        .for_each(|warning| warn!(warning, "transport configuration"));
    let enabled: Vec<_> = transports
        .iter()
        .filter(|transport| transport.enabled)
        .map(|transport| &*transport.name)
        .collect();
    info!(enabled = enabled.join(","), "Transport registry loaded");

    let metrics = Arc::new(Metrics::new());
    let fence = if args.leader_elect {
        Fence::closed()
    } else {
        Fence::open()
    };
    let config = client::config(args.kubeconfig.as_deref()).await?;
    let client = client::fenced(config.clone(), &fence, metrics.api_writes())?;
    let identity = leader::identity(&args.pod_name);
    let home = home(&args);
    let applier = Applier::new(client.clone(), args.impersonate.then_some(home));
    let context = Context {
        stores: Stores::default(),
        leading_since: OnceLock::new(),
        installation: Installation {
            transports,
            settings,
            runtime_hash: asya_shared::hash::of_bytes(script.as_bytes()),
            scripts_hash: script::hash_with_adapters(&script),
            namespace: args.namespace.clone(),
            queues_managed: !args.disable_queue_management,
            deadlines: deadlines(&args),
        },
        claims: Claims::default(),
        bindings: Arc::default(),
        doubts: Doubts::default(),
        looks: Looks::new(args.queue_health_check_interval),
        depths: Arc::default(),
        workloads: Workloads::new(&applier),
        service_accounts: Objects::new(&applier),
        scaled_objects: Objects::new(&applier),
        trigger_authentications: Objects::new(&applier),
        keda: Keda::default(),
        config_maps: ConfigMaps::new(&applier),
        brokers: Brokers::new(
            client.clone(),
            &args.namespace,
            fence.clone(),
            Arc::clone(&metrics),
            usize::from(args.max_concurrent_reconciles),
        ),
        runtime: RuntimeScript::new(script, home),
        applier,
        events: events::Events::new(client.clone(), &identity),
        metrics: Arc::clone(&metrics),
        client: client.clone(),
    };
    let readiness = Readiness::default();
    let operator = Operator {
        context: Arc::new(context),
        queue: WorkQueue::observed(pacing(&args), metrics.clone()),
        schedule: Schedule {
            check: args.queue_health_check_interval,
            count: args.queue_metrics_interval,
        },
        pace: pace(&args),
        readiness: readiness.clone(),
    };
    operator.measure();

    let stop = CancellationToken::new();
    serve(&args, &readiness, &metrics, &stop).await?;
    let namespaces = Namespaces {
        named: args.watch_namespaces.clone(),
        file: args.watch_namespaces_file.clone(),
    };
    let mut watches = Watches::new(operator.clone(), client.clone());
    watches.cover(&namespaces.read()?);
    let watches = tokio::spawn(namespaces.follow(watches));
    let candidate = Candidate {
        client: client::unfenced(config)?,
        namespace: args.namespace.clone(),
        name: asya_shared::names::LEASE.to_owned(),
        identity,
        fence,
    };
    let singletons = Singletons::new(&args, certificates, &operator, &client);
    let code = lead_until_told(&args, operator, candidate, client, singletons).await;
    watches.abort();
    stop.cancel();
    code
}

/// The namespace in which the runtime script stays without actors (RUN-3).
fn home(args: &Args) -> &str {
    let named = args.runtime_namespace.as_deref();
    named
        .filter(|name| !name.is_empty())
        .unwrap_or(&args.namespace)
}

/// After how long what may pass by itself counts.
fn deadlines(args: &Args) -> Deadlines {
    Deadlines {
        unready: Some(args.unready_deadline).filter(|limit| !limit.is_zero()),
        hpa_metrics: Some(args.hpa_metrics_deadline).filter(|limit| !limit.is_zero()),
    }
}

/// How often actors are seen without an event.
fn pace(args: &Args) -> Pace {
    Pace {
        resync: args.max_reconcile_interval,
        longest: args.retry_max,
    }
}

/// How passes over one actor and over all are spaced (FW-6, FW-8).
fn pacing(args: &Args) -> Settings {
    Settings {
        gap: args.min_reconcile_interval,
        workers: usize::from(args.max_concurrent_reconciles),
        retry: Backoff {
            initial: args.retry_initial,
            multiplier: args.retry_multiplier,
            max: args.retry_max,
            attempts: args.retry_attempts,
            ..Backoff::default()
        },
    }
}

/// Health and metrics, in every replica.
async fn serve(
    args: &Args,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) -> Result<(), BoxError> {
    let health = health::bind(
        &args.health_probe_bind_address,
        "--health-probe-bind-address",
    )
    .await?;
    let scraped = health::bind(&args.metrics_bind_address, "--metrics-bind-address").await?;
    let served = [
        (health, health::routes(readiness.clone())),
        (scraped, metrics::routes(Arc::clone(metrics))),
    ];
    for (listener, routes) in served {
        if let Some(listener) = listener {
            tokio::spawn(health::serve(listener, routes, stop.clone()));
        }
    }
    Ok(())
}

/// What only a leader does, besides passes over actors.
struct Singletons {
    manages_crd: bool,
    certificates: Option<Keeper>,
    rules: Option<admission_rules::Keeper>,
}

impl Singletons {
    fn new(args: &Args, certificates: Option<Plan>, operator: &Operator, client: &Client) -> Self {
        let trust = Trust::default();
        let service = args.certificates.webhook_service.as_deref();
        let rules = args.rules.plan(service, &args.namespace);
        let context = &operator.context;
        if rules.is_none() {
            // There is no webhook configuration of ours that could trust another CA.
            trust.found([]);
        }
        Self {
            manages_crd: args.manage_crds,
            rules: rules.map(|plan| {
                let (trust, context) = (trust.clone(), Arc::clone(context));
                admission_rules::Keeper::new(plan, trust, context, client.clone())
            }),
            certificates: certificates.map(|plan| Keeper::new(plan, trust, client.clone())),
        }
    }
}

/// Leads when it is our turn, until SIGTERM or until the lease is lost.
async fn lead_until_told(
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
    let (queue, running) = (operator.queue.clone(), operator.readiness.gate("process"));
    running.ready();
    let (release, acquired) = (CancellationToken::new(), CancellationToken::new());
    let election = tokio::spawn(elect(
        args.leader_elect,
        candidate,
        release.clone(),
        acquired.clone(),
    ));
    let passes = tokio::spawn(lead(operator, client, singletons, acquired.clone()));
    tokio::pin!(election, passes);

    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        ended = &mut election => return Ok(gave_up(&ended)),
        ended = &mut passes => return Err(format!("passes ended: {ended:?}").into()),
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
        tokio::spawn(keep_crd(client));
    }
    if let Some(certificates) = singletons.certificates {
        tokio::spawn(certificates.run());
    }
    if let Some(rules) = singletons.rules {
        tokio::spawn(rules.run());
    }
    operator.readiness.reached().await;
    operator.context.leading_since.get_or_init(Timestamp::now);
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
