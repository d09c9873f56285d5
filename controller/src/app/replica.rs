//! Composes one replica of the controller, and starts it.

use std::sync::Arc;

use asya_process::BoxError;
use asya_process::tasks::Tasks;
use asya_shared::backoff::Backoff;
use asya_shared::config::{self, TransportsConfig};
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;
use tracing::{info, warn};

use super::leadership::{self, Ending, LeaderTasks};
use super::namespaces::Namespaces;
use super::operator::Operator;
use super::watches::Watches;
use super::worker::RequeuePolicy;
use crate::app::args::Args;
use crate::broker::Brokers;
use crate::broker::health::CheckIntervals;
use crate::broker::http_client::{self, BuildHttpClients};
use crate::certificates::CertificateConfig;
use crate::cluster::client;
use crate::cluster::fence::Fence;
use crate::cluster::impersonation::Impersonation;
use crate::cluster::leader::{self, Candidate};
use crate::context::{Context, ContextParts, Deadlines, Installation};
use crate::runtime_script::config_map::RuntimeScript;
use crate::runtime_script::source;
use crate::telemetry::events;
use crate::telemetry::health::Readiness;
use crate::telemetry::metrics::Metrics;
use crate::work_queue::{RetryPolicy, WorkQueue, WorkQueueSettings};

/// How a replica reaches the API server and the brokers.
pub struct Connections {
    /// Only for the lease, so that a burst of writes cannot delay a renewal.
    lease: Client,
    api_server: ConnectToApiServer,
    brokers: BuildHttpClients,
}

/// Makes the client for everything except the lease. Its writes pass the fence, and are counted.
type ConnectToApiServer = Box<dyn FnOnce(&Fence, Counter) -> kube::Result<Client> + Send>;

impl Connections {
    /// Connections over the network, to the API server of `config`.
    ///
    /// # Errors
    /// If the configuration's credentials or certificates are unusable.
    pub(super) fn over_network(config: Config) -> kube::Result<Self> {
        Ok(Self {
            lease: client::unfenced(config.clone())?,
            api_server: Box::new(move |fence, writes| client::fenced(&config, fence, writes)),
            brokers: http_client::over_network(),
        })
    }

    /// Connections that do not use the network: all requests to the API server go through `api_server`, all to brokers
    /// through clients that `brokers` makes.
    #[must_use]
    pub fn in_process(api_server: Client, brokers: BuildHttpClients) -> Self {
        Self {
            lease: api_server.clone(),
            api_server: Box::new(move |fence, writes| {
                Ok(client::fenced_in_process(api_server, fence, writes))
            }),
            brokers,
        }
    }
}

/// A replica that has not started yet.
pub struct Replica {
    operator: Operator,
    watches: Watches,
    namespaces: Namespaces,
    candidate: Candidate,
    leader_tasks: LeaderTasks,
    client: Client,
    elects: bool,
}

/// Configuration from flags, variables and files. Read before the first connection, so that mistakes are reported
/// without a cluster.
pub struct ReplicaConfig {
    transports: TransportsConfig,
    settings: config::Settings,
    certificates: Option<CertificateConfig>,
    script: Arc<str>,
}

impl ReplicaConfig {
    /// Reads and validates the configuration.
    ///
    /// # Errors
    /// If a flag, the transport configuration or a file that a flag names is unusable.
    pub fn read(args: &Args) -> Result<Self, BoxError> {
        Ok(Self {
            transports: args.installation.transports()?,
            settings: args.installation.settings()?,
            certificates: args.certificates.config(&args.namespace)?,
            script: runtime_script(args)?,
        })
    }
}

impl Replica {
    /// Builds a replica and starts its watches.
    ///
    /// # Errors
    /// If a client cannot be made.
    pub fn new(
        args: &Args,
        configuration: ReplicaConfig,
        connections: Connections,
        tasks: Tasks,
    ) -> Result<Self, BoxError> {
        let ReplicaConfig {
            transports,
            settings,
            certificates,
            script,
        } = configuration;
        log_transports(&transports);
        let metrics = Arc::new(Metrics::new());
        let fence = fence(args);
        let client = (connections.api_server)(&fence, metrics.api_writes())?;
        let identity = leader::identity(&args.pod_name);
        let namespace = namespace(args);
        let context = Context::new(ContextParts {
            impersonation: Impersonation::new(
                client.clone(),
                args.impersonate.then_some(namespace),
            ),
            installation: installation(args, transports, settings, &script),
            brokers: brokers(args, &client, &fence, &metrics, connections.brokers),
            runtime_script: RuntimeScript::new(script, namespace),
            events: events::Events::new(client.clone(), &identity),
            metrics: Arc::clone(&metrics),
            max_rollouts: usize::from(args.max_rollouts),
            max_workload_rollouts: usize::from(args.max_workload_rollouts),
            retired_queue_interval: args.queue_health_check_interval,
            client: client.clone(),
        });
        let operator = operator(args, context, metrics, tasks);
        operator.register_gauges();

        let namespaces = Namespaces {
            named: args.watch_namespaces.clone(),
            file: args.watch_namespaces_file.clone(),
        };
        let mut watches = Watches::new(operator.clone(), client.clone());
        watches.set_scopes(&namespaces.read()?);
        let candidate = Candidate {
            readiness: operator.readiness.clone(),
            client: connections.lease,
            namespace: args.namespace.clone(),
            name: asya_shared::names::LEASE.to_owned(),
            identity,
            fence,
        };
        let leader_tasks = LeaderTasks::new(args, certificates);
        Ok(Self {
            operator,
            watches,
            namespaces,
            candidate,
            leader_tasks,
            client,
            elects: args.leader_elect,
        })
    }

    /// Components that are not ready yet.
    pub(super) fn readiness(&self) -> Readiness {
        self.operator.readiness.clone()
    }

    pub(super) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.operator.context.metrics)
    }

    /// Waits for leadership and leads, until `stop_requested` resolves or the lease is lost. A second request
    /// aborts what is still running.
    ///
    /// # Errors
    /// If an essential task ends.
    pub async fn run(self, stop_requested: impl AsyncFnMut()) -> Result<Ending, BoxError> {
        let tasks = self.operator.tasks.clone();
        let watches =
            tokio::spawn(tasks.run_forever("watches", self.namespaces.follow(self.watches)));
        let lead = leadership::Leadership {
            elects: self.elects,
            operator: self.operator,
            candidate: self.candidate,
            client: self.client,
            leader_tasks: self.leader_tasks,
        };
        let ending = lead.run_until_stopped(stop_requested).await;
        watches.abort();
        ending
    }
}

fn log_transports(transports: &TransportsConfig) {
    for warning in &transports.warnings {
        warn!(warning, "transport configuration");
    }
    let enabled: Vec<_> = transports
        .iter()
        .filter(|transport| transport.enabled)
        .map(|transport| &*transport.name)
        .collect();
    info!(enabled = enabled.join(","), "Transport registry loaded");
}

/// A replica that elects no leader may always write.
fn fence(args: &Args) -> Fence {
    if args.leader_elect {
        Fence::closed()
    } else {
        Fence::unrestricted()
    }
}

fn brokers(
    args: &Args,
    client: &Client,
    fence: &Fence,
    metrics: &Arc<Metrics>,
    build_http_clients: BuildHttpClients,
) -> Brokers {
    Brokers::new(
        client.clone(),
        &args.namespace,
        fence.clone(),
        Arc::clone(metrics),
        usize::from(args.max_concurrent_reconciles),
        build_http_clients,
    )
}

fn operator(args: &Args, context: Context, metrics: Arc<Metrics>, tasks: Tasks) -> Operator {
    Operator {
        context: Arc::new(context),
        queue: WorkQueue::with_observer(queue_settings(args), metrics),
        schedule: CheckIntervals {
            check: args.queue_health_check_interval,
            count: args.queue_metrics_interval,
        },
        requeue_policy: requeue_policy(args),
        readiness: Readiness::starting(),
        tasks,
    }
}

fn runtime_script(args: &Args) -> Result<Arc<str>, source::Error> {
    let [script, local] = [&args.runtime_script_path, &args.runtime_local_path];
    source::load(script.as_deref(), local.as_deref())
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
        webhook: configures_webhook(args),
        queues_managed: !args.disable_queue_management,
        deadlines: deadlines(args),
    }
}

/// Namespace that keeps the runtime script even without actors (RUN-3).
fn namespace(args: &Args) -> &str {
    let flag = args.runtime_namespace.as_deref();
    flag.filter(|name| !name.is_empty())
        .unwrap_or(&args.namespace)
}

/// Whether the operator configures the webhook that injects the sidecar into pods of bindings.
fn configures_webhook(args: &Args) -> bool {
    let service = args.certificates.webhook_service.as_deref();
    let propagation_delay = args.certificates.webhook_ca_spread;
    args.webhook_configs
        .settings(service, &args.namespace, propagation_delay)
        .is_some()
}

fn deadlines(args: &Args) -> Deadlines {
    Deadlines {
        unready: Some(args.unready_deadline).filter(|limit| !limit.is_zero()),
        hpa_metrics: Some(args.hpa_metrics_deadline).filter(|limit| !limit.is_zero()),
        conflict_backoff: args.conflict_wait,
    }
}

fn requeue_policy(args: &Args) -> RequeuePolicy {
    RequeuePolicy {
        resync: args.max_reconcile_interval,
        max_backoff: args.retry_max,
    }
}

/// Rate limits of reconciles of one actor and of all (FW-6, FW-8).
fn queue_settings(args: &Args) -> WorkQueueSettings {
    WorkQueueSettings {
        min_interval: args.min_reconcile_interval,
        workers: usize::from(args.max_concurrent_reconciles),
        retry: RetryPolicy {
            attempts: args.retry_attempts,
            ..RetryPolicy::new(
                Backoff::new(args.retry_initial, args.retry_max).with_factor(args.retry_multiplier),
            )
        },
    }
}
