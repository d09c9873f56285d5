//! The controller of Asya's `AsyncActor`s.

mod admission;
mod app;
mod args;
mod binding;
mod broker;
mod certificates;
mod cluster;
mod context;
mod fault;
mod flags;
mod pods;
mod reconcile;
mod record;
mod runtime_script;
mod scaling;
mod telemetry;
mod work_queue;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asya_process::tasks::Tasks;
use asya_process::{BoxError, api_server, metrics as exposed, probes, program};
use asya_shared::config::{self, TransportsConfig};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::broker::retired_queue_schedule::RetiredQueueSchedule;
use crate::app::leadership;
use crate::app::leadership::Singletons;
use crate::app::namespaces::Namespaces;
use crate::app::operator::Operator;
use crate::app::uninstall;
use crate::app::watches::Watches;
use crate::app::worker::RequeuePolicy;
use crate::args::Args;
use crate::binding::rollout_slots::RolloutSlots;
use crate::broker::Brokers;
use crate::broker::claims::Claims;
use crate::broker::health::{QueueRechecks, Schedule};
use crate::cluster::config_maps::ConfigMaps;
use crate::cluster::fence::Fence;
use crate::cluster::impersonation::Applier;
use crate::cluster::keda::Keda;
use crate::cluster::leader::Candidate;
use crate::cluster::objects::Objects;
use crate::cluster::rollouts::WorkloadRollouts;
use crate::cluster::workload::Workloads;
use crate::cluster::{client, leader};
use crate::context::{Context, Deadlines, Installation, Stores};
use crate::pods::refusals::Refusals;
use crate::runtime_script::config_map::RuntimeScript;
use crate::runtime_script::source;
use crate::telemetry::health::Readiness;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::{events, health};
use crate::work_queue::{Backoff, Settings, WorkQueue};

/// How long `--check` waits for the URLs to become ready.
const CHECK: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::read();
    if !args.check.is_empty() {
        return check(&args.check).await;
    }
    // Before any use of TLS: reqwest takes the installed provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if args.check_uninstall {
        let namespaces = &args.watch_namespaces;
        return uninstall::check(args.kubeconfig.as_deref(), namespaces, &args.helm_rollback).await;
    }
    let level = args.log_level.clone();
    program::run(&level, run(args)).await
}

/// Reports by the exit code whether the processes behind these URLs are ready.
async fn check(urls: &[String]) -> ExitCode {
    match asya_process::check::ready(urls, CHECK).await {
        Ok(()) => {
            println!("ready: {}", urls.join(", "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("not ready: {error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime_script(args: &Args) -> Result<Arc<str>, source::Error> {
    let [script, local] = [&args.runtime_script_path, &args.runtime_local_path];
    source::load(script.as_deref(), local.as_deref())
}

async fn run(args: Args) -> Result<ExitCode, BoxError> {
    let transports = args.installation.transports()?;
    let settings = args.installation.settings()?;
    let certificates = args.certificates.plan(&args.namespace)?;
    let script = runtime_script(&args)?;
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
    let config = api_server::config(args.kubeconfig.as_deref(), client::READ_TIMEOUT).await?;
    let client = client::fenced(config.clone(), &fence, metrics.api_writes())?;
    let identity = leader::identity(&args.pod_name);
    let home = home(&args);
    let applier = Applier::new(client.clone(), args.impersonate.then_some(home));
    let workloads = Workloads::new(&applier);
    let context = Context {
        stores: Stores::default(),
        leading_since: OnceLock::new(),
        installation: installation(&args, transports, settings, &script),
        claims: Claims::default(),
        bindings: Arc::default(),
        rollout_slots: RolloutSlots::new(usize::from(args.max_rollouts)),
        rollouts: WorkloadRollouts::new(usize::from(args.max_workload_rollouts)),
        queue_rechecks: QueueRechecks::default(),
        retired_queue_schedule: RetiredQueueSchedule::new(args.queue_health_check_interval),
        depths: Arc::default(),
        refusals: Arc::new(Refusals::of(&workloads.stateful_sets.store)),
        workloads,
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
    let (readiness, tasks) = (Readiness::starting(), Tasks::default());
    let operator = Operator {
        context: Arc::new(context),
        queue: WorkQueue::observed(pacing(&args), metrics.clone()),
        schedule: Schedule {
            check: args.queue_health_check_interval,
            count: args.queue_metrics_interval,
        },
        pace: pace(&args),
        readiness: readiness.clone(),
        tasks: tasks.clone(),
    };
    operator.measure();

    let stop = CancellationToken::new();
    serve(&args, readiness, &metrics, &tasks, &stop).await?;
    let namespaces = Namespaces {
        named: args.watch_namespaces.clone(),
        file: args.watch_namespaces_file.clone(),
    };
    let mut watches = Watches::new(operator.clone(), client.clone());
    watches.cover(&namespaces.read()?);
    let watches = tokio::spawn(tasks.unending("watches", namespaces.follow(watches)));
    let candidate = Candidate {
        client: client::unfenced(config)?,
        namespace: args.namespace.clone(),
        name: asya_shared::names::LEASE.to_owned(),
        identity,
        fence,
    };
    let singletons = Singletons::new(&args, certificates, &operator, &client);
    let code = leadership::until_told(&args, operator, candidate, client, singletons).await;
    watches.abort();
    stop.cancel();
    code
}

fn installation(
    args: &Args,
    transports: TransportsConfig,
    settings: config::Settings,
    script: &str,
) -> Installation {
    Installation {
        transports,
        settings,
        runtime_hash: asya_shared::hash::of_bytes(script.as_bytes()),
        scripts_hash: source::hash_with_adapters(script),
        namespace: args.namespace.clone(),
        webhook: keeps_webhook(args),
        queues_managed: !args.disable_queue_management,
        deadlines: deadlines(args),
    }
}

/// Namespace that keeps the runtime script even without actors (RUN-3).
fn home(args: &Args) -> &str {
    let named = args.runtime_namespace.as_deref();
    named
        .filter(|name| !name.is_empty())
        .unwrap_or(&args.namespace)
}

/// Whether the operator configures the webhook that injects the sidecar into pods of bindings.
fn keeps_webhook(args: &Args) -> bool {
    let service = args.certificates.webhook_service.as_deref();
    let spread = args.certificates.webhook_ca_spread;
    args.rules.plan(service, &args.namespace, spread).is_some()
}

fn deadlines(args: &Args) -> Deadlines {
    Deadlines {
        unready: Some(args.unready_deadline).filter(|limit| !limit.is_zero()),
        hpa_metrics: Some(args.hpa_metrics_deadline).filter(|limit| !limit.is_zero()),
        conflict: args.conflict_wait,
    }
}

fn pace(args: &Args) -> RequeuePolicy {
    RequeuePolicy {
        resync: args.max_reconcile_interval,
        longest: args.retry_max,
    }
}

/// Pacing of reconciles of one actor and of all (FW-6, FW-8).
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

/// Serves probes and metrics, in every replica.
async fn serve(
    args: &Args,
    readiness: Readiness,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
    stop: &CancellationToken,
) -> Result<(), BoxError> {
    let health = health::bind(
        &args.health_probe_bind_address,
        "--health-probe-bind-address",
    )
    .await?;
    let scraped = health::bind(&args.metrics_bind_address, "--metrics-bind-address").await?;
    let served = [
        (health, probes::routes(move || readiness.pending())),
        (scraped, exposed::routes(Arc::clone(metrics))),
    ];
    for (listener, routes) in served {
        if let Some(listener) = listener {
            let served = asya_process::serve::plain(listener, routes, stop.clone());
            tokio::spawn(tasks.ending("probes and metrics", served));
        }
    }
    Ok(())
}
