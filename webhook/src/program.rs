//! The process: tasks, listeners and shutdown.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use asya_certs::serve::{Certificates, Trusted};
use asya_process::metrics::ExposedMetrics;
use asya_process::serve::Connections;
use asya_process::tasks::Tasks;
use asya_process::{BoxError, listen, metrics as exposed, probes, program, serve};
use k8s_openapi::jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::actor::ActorReviewer;
use crate::args::Args;
use crate::client::Clients;
use crate::deletion::DeletionReviewer;
use crate::dispatch::Dispatcher;
use crate::facts::SharedFacts;
use crate::index::{Index, Installation, LastResponse};
use crate::metrics::Metrics;
use crate::pod::PodReviewer;
use crate::readiness::Readiness;
use crate::server::Shutdown;
use crate::{events, facts, index, routes, server};

/// How long to wait for in-flight reviews on shutdown (AVL-3).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the webhook until it is stopped.
pub async fn start(args: Args) -> ExitCode {
    // Must be installed before anything uses TLS.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let level = args.log_level.clone();
    program::run(&level, run(args, Tasks::default())).await
}

/// Runs until the process is stopped or one of `tasks` fails.
async fn run(args: Args, tasks: Tasks) -> Result<ExitCode, BoxError> {
    let installation = Installation {
        transports: args.installation.transports()?,
        settings: args.installation.settings()?,
    };
    for warning in &installation.transports.warnings {
        warn!(warning, "transport configuration");
    }
    let index = Arc::new(Index::new(installation));
    let (last_response, facts) = (LastResponse::default(), SharedFacts::default());
    let certificates = Certificates::new(args.tls_names.clone());
    let readiness = Readiness::new(
        &index,
        &last_response,
        &certificates,
        &facts,
        args.has_facts(),
    );
    let connections = Connections::new(server::MAX_CONNECTIONS);
    let metrics = build_metrics(&last_response, &certificates, &connections);
    let mut signals = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );

    let reviews = listen::bind(&args.webhook_bind_address, "--webhook-bind-address").await?;
    let probes = listen::bind(
        &args.health_probe_bind_address,
        "--health-probe-bind-address",
    )
    .await?;
    let pending = readiness.clone();
    let health = probes::routes(move || pending.pending());
    let health = health.merge(exposed::routes(Arc::clone(&metrics)));
    let health = serve::plain(probes, health, CancellationToken::new());
    tokio::spawn(tasks.run_forever("probes and metrics", health));

    let clients = Clients::new(args.kubeconfig.as_deref(), &last_response).await?;
    let watched = Watched {
        index: &index,
        last_response: &last_response,
        certificates: &certificates,
        facts: &facts,
    };
    watch(&args, &clients, &watched, &tasks);
    let (events, writer) = events::channel(clients.others, &args.pod_name);
    tokio::spawn(tasks.run_to_completion("events", writer.run()));
    let dispatcher = Dispatcher {
        actors: ActorReviewer {
            mode: args.validation,
            namespace: args.namespace.clone(),
            index: Arc::clone(&index),
            last_response,
            facts,
        },
        deletions: DeletionReviewer {
            mode: args.validation,
            index: Arc::clone(&index),
        },
        pods: PodReviewer {
            namespace: args.namespace.clone(),
            index,
        },
        events,
    };
    let tls = TlsAcceptor::from(Arc::new(asya_certs::serve::tls(
        certificates,
        args.clients(),
    )?));
    let shutdown = Shutdown::default();
    let routes = routes::routes(dispatcher, metrics);
    let server = server::serve(
        reviews,
        tls,
        routes,
        connections,
        shutdown.clone(),
        DRAIN_TIMEOUT,
    );
    let server = tokio::spawn(tasks.run_to_completion("reviews", server));
    info!(address = args.webhook_bind_address, "serving reviews");

    let failure = tokio::select! {
        _ = signals.0.recv() => None,
        _ = signals.1.recv() => None,
        failure = tasks.first_failure() => Some(failure),
    };
    info!("stopping");
    readiness.stop();
    shutdown.draining.cancel();
    let drain = async {
        tokio::time::sleep(args.shutdown_delay()).await;
        shutdown.stop.cancel();
        let _ = server.await;
    };
    tokio::select! {
        () = drain => failure.map_or(Ok(ExitCode::SUCCESS), |failure| Err(failure.into())),
        _ = signals.0.recv() => Ok(ExitCode::FAILURE),
        _ = signals.1.recv() => Ok(ExitCode::FAILURE),
    }
}

/// Creates the metrics, with gauges that are refreshed on each scrape.
fn build_metrics(
    last_response: &LastResponse,
    certificates: &Certificates,
    connections: &Connections,
) -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::new());
    let (last_response, certificates) = (last_response.clone(), certificates.clone());
    let connections = connections.clone();
    metrics.before_scrape(move |metrics| {
        metrics.reflector_age(last_response.age());
        metrics.certificates(&certificates.metrics(), Timestamp::now());
        metrics.connections(connections.count());
    });
    metrics
}

/// State that the watches fill.
#[derive(Clone, Copy)]
struct Watched<'a> {
    index: &'a Arc<Index>,
    last_response: &'a LastResponse,
    certificates: &'a Certificates,
    facts: &'a SharedFacts,
}

/// Starts the watches of actors, `RayCluster`s, the certificate and the controller's facts.
fn watch(args: &Args, clients: &Clients, watched: &Watched<'_>, tasks: &Tasks) {
    let Watched {
        index,
        last_response,
        certificates,
        facts,
    } = *watched;
    let actors = index::follow(
        clients.actors.clone(),
        Arc::clone(index),
        last_response.clone(),
    );
    tokio::spawn(tasks.run_forever("watch AsyncActor", actors));
    let clusters = index::ray::follow(clients.others.clone(), Arc::clone(index));
    tokio::spawn(tasks.run_forever("watch RayCluster", clusters));
    let (namespace, secret) = (args.namespace.clone(), args.tls_secret.clone());
    let certificate_watch = certificates.clone();
    let certificate_watch =
        certificate_watch.follow(clients.others.clone(), namespace.clone(), secret);
    tokio::spawn(tasks.run_forever("watch of the certificate", certificate_watch));
    if !args.has_facts() {
        certificates.trust(Trusted::All);
        return;
    }
    let (client, name) = (clients.others.clone(), args.facts_config_map.clone());
    let (index, certificates, facts) = (Arc::clone(index), certificates.clone(), facts.clone());
    let facts_watch = async move {
        let on_update = |facts_read| {
            let published = facts.set(facts_read);
            certificates.trust(Trusted::read(published.trusted.iter().map(String::as_str)));
            index.set_scripts_hash(published.scripts.as_deref().unwrap_or_default());
        };
        facts::follow(client, &namespace, &name, on_update).await;
    };
    tokio::spawn(tasks.run_forever("watch of facts", facts_watch));
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::time::timeout;

    use super::*;

    const UNREACHABLE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../process/tests/unreachable-api-server.yaml"
    );

    /// ADM-28
    #[tokio::test]
    async fn failed_task_ends_the_webhook_with_an_error() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let args = Args::parse_from([
            "asya-webhook",
            "--tls-names=webhook.test",
            "--webhook-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--shutdown-delay=0",
            "--kubeconfig",
            UNREACHABLE,
        ]);
        let tasks = Tasks::default();
        tokio::spawn(tasks.run_forever("watch AsyncActor", async {}));
        let ended = timeout(Duration::from_mins(1), run(args, tasks)).await;
        let ended = ended.expect("it ends").map_err(|error| error.to_string());
        assert_eq!(ended, Err("watch AsyncActor ended".to_owned()));
    }
}
