//! The admission webhook of Asya's `AsyncActor`s.

mod actor;
mod args;
mod bodies;
mod client;
mod deletion;
mod events;
mod facts;
mod index;
mod judges;
mod metrics;
mod outcome;
mod pod;
mod readiness;
mod review;
mod routes;
mod server;
#[cfg(test)]
mod testing;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use asya_certs::serve::{Certificates, Trusted};
use asya_process::metrics::Exposed;
use asya_process::serve::Connections;
use asya_process::tasks::Tasks;
use asya_process::{BoxError, listen, metrics as exposed, probes, program, serve};
use clap::Parser;
use k8s_openapi::jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::actor::Actors;
use crate::args::Args;
use crate::client::Clients;
use crate::deletion::Deletions;
use crate::facts::Known;
use crate::index::{Contact, Index, Platform};
use crate::judges::Judges;
use crate::metrics::Metrics;
use crate::pod::Pods;
use crate::readiness::Readiness;
use crate::server::End;

/// How long in-flight reviews get to finish on shutdown (AVL-3).
const FINISH: Duration = Duration::from_secs(5);

// A review takes a fraction of a millisecond and each thread costs memory: four suffice even on a 64-core node.
#[tokio::main(worker_threads = 4)]
async fn main() -> ExitCode {
    let args = Args::parse();
    // Must be installed before anything uses TLS.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let level = args.log_level.clone();
    program::run(&level, run(args)).await
}

async fn run(args: Args) -> Result<ExitCode, BoxError> {
    let platform = Platform {
        transports: args.installation.transports()?,
        settings: args.installation.settings()?,
    };
    for warning in &platform.transports.warnings {
        warn!(warning, "transport configuration");
    }
    let index = Arc::new(Index::new(platform));
    let (contact, facts) = (Contact::default(), Known::default());
    let certificates = Certificates::new(args.tls_names.clone());
    let readiness = Readiness::new(&index, &contact, &certificates, &facts, args.has_facts());
    let connections = Connections::new(server::MOST_CONNECTIONS);
    let metrics = measured(&contact, &certificates, &connections);
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
    let tasks = Tasks::default();
    let health = serve::plain(probes, health, CancellationToken::new());
    tokio::spawn(tasks.unending("probes and metrics", health));

    let clients = Clients::new(args.kubeconfig.as_deref(), &contact).await?;
    let watched = Watched {
        index: &index,
        contact: &contact,
        certificates: &certificates,
        facts: &facts,
    };
    watch(&args, &clients, &watched, &tasks);
    let (told, writer) = events::events(clients.others, &args.pod_name);
    tokio::spawn(tasks.ending("events", writer.run()));
    let judges = Judges {
        actors: Actors {
            mode: args.validation,
            namespace: args.namespace.clone(),
            index: Arc::clone(&index),
            contact,
            facts,
        },
        deletions: Deletions {
            mode: args.validation,
            index: Arc::clone(&index),
        },
        pods: Pods {
            namespace: args.namespace.clone(),
            index,
        },
        events: told,
    };
    let tls = TlsAcceptor::from(Arc::new(asya_certs::serve::tls(
        certificates,
        args.clients(),
    )?));
    let end = End::default();
    let routes = routes::routes(judges, metrics);
    let served = server::serve(reviews, tls, routes, connections, end.clone(), FINISH);
    let served = tokio::spawn(tasks.ending("reviews", served));
    info!(address = args.webhook_bind_address, "serving reviews");

    let failed = tokio::select! {
        _ = signals.0.recv() => None,
        _ = signals.1.recv() => None,
        ended = tasks.ended() => Some(ended),
    };
    info!("stopping");
    readiness.stop();
    end.leaving.cancel();
    let drained = async {
        tokio::time::sleep(args.shutdown_delay()).await;
        end.stop.cancel();
        let _ = served.await;
    };
    tokio::select! {
        () = drained => failed.map_or(Ok(ExitCode::SUCCESS), |ended| Err(ended.into())),
        _ = signals.0.recv() => Ok(ExitCode::FAILURE),
        _ = signals.1.recv() => Ok(ExitCode::FAILURE),
    }
}

/// Creates the metrics, with gauges that are refreshed on each scrape.
fn measured(
    contact: &Contact,
    certificates: &Certificates,
    connections: &Connections,
) -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::new());
    let (contact, certificates) = (contact.clone(), certificates.clone());
    let connections = connections.clone();
    metrics.before_scrape(move |metrics| {
        metrics.reflector_age(contact.age());
        metrics.certificates(&certificates.shown(), Timestamp::now());
        metrics.connections(connections.count());
    });
    metrics
}

/// State that the watches fill.
#[derive(Clone, Copy)]
struct Watched<'a> {
    index: &'a Arc<Index>,
    contact: &'a Contact,
    certificates: &'a Certificates,
    facts: &'a Known,
}

/// Starts the watches of actors, `RayCluster`s, the certificate and the controller's facts.
fn watch(args: &Args, clients: &Clients, watched: &Watched<'_>, tasks: &Tasks) {
    let Watched {
        index,
        contact,
        certificates,
        facts,
    } = *watched;
    let actors = index::follow(clients.actors.clone(), Arc::clone(index), contact.clone());
    tokio::spawn(tasks.unending("watch AsyncActor", actors));
    let clusters = index::ray::follow(clients.others.clone(), Arc::clone(index));
    tokio::spawn(tasks.unending("watch RayCluster", clusters));
    let (namespace, secret) = (args.namespace.clone(), args.tls_secret.clone());
    let followed = certificates.clone();
    let followed = followed.follow(clients.others.clone(), namespace.clone(), secret);
    tokio::spawn(tasks.unending("watch of the certificate", followed));
    if !args.has_facts() {
        certificates.trust(Trusted::All);
        return;
    }
    let (client, name) = (clients.others.clone(), args.facts_config_map.clone());
    let (index, certificates, facts) = (Arc::clone(index), certificates.clone(), facts.clone());
    let told = async move {
        let heard = |told| {
            let told = facts.tell(told);
            certificates.trust(Trusted::read(told.trusted.iter().map(String::as_str)));
            index.scripts(told.scripts.as_deref().unwrap_or_default());
        };
        facts::follow(client, &namespace, &name, heard).await;
    };
    tokio::spawn(tasks.unending("watch of facts", told));
}
