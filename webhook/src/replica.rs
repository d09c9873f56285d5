//! Composes one replica of the webhook, with the watches that fill its caches. The process adds listeners, probes and
//! shutdown.

use std::sync::Arc;

use asya_certs::serve::{Certificates, Trusted};
use asya_process::BoxError;
use asya_process::clock;
use asya_process::metrics::ExposedMetrics;
use asya_process::serve::Connections;
use asya_process::tasks::Tasks;
use axum::Router;
use tracing::warn;

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
use crate::{events, facts, index, routes, server};

/// A replica. Until [`Replica::start`] it watches and serves nothing.
pub struct Replica {
    index: Arc<Index>,
    last_response: LastResponse,
    facts: SharedFacts,
    pub(crate) certificates: Certificates,
    pub(crate) readiness: Readiness,
    pub(crate) connections: Connections,
    pub(crate) metrics: Arc<Metrics>,
}

impl Replica {
    /// Reads the installation's configuration.
    ///
    /// # Errors
    /// If the transports or settings are unusable.
    pub fn new(args: &Args) -> Result<Self, BoxError> {
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
        Ok(Self {
            metrics: build_metrics(&last_response, &certificates, &connections),
            index,
            last_response,
            facts,
            certificates,
            readiness,
            connections,
        })
    }

    /// Why reviews must not be sent to this replica yet; empty once it is ready.
    #[must_use]
    pub fn pending(&self) -> Vec<String> {
        self.readiness.pending()
    }

    /// Creates the clients whose responses show how recent the index is.
    pub(crate) async fn clients(&self, args: &Args) -> Result<Clients, BoxError> {
        Clients::new(args.kubeconfig.as_deref(), &self.last_response).await
    }

    /// Clients that send all requests through `client`.
    #[must_use]
    pub fn clients_in_process(&self, client: kube::Client) -> Clients {
        Clients::in_process(client, &self.last_response)
    }

    /// Starts the watches, and returns the review endpoints.
    pub fn start(&self, args: &Args, clients: Clients, tasks: &Tasks) -> Router {
        self.watch(args, &clients, tasks);
        let (events, writer) = events::channel(clients.others, &args.pod_name);
        tokio::spawn(tasks.run_to_completion("events", writer.run()));
        let dispatcher = Dispatcher {
            actors: ActorReviewer {
                mode: args.validation,
                namespace: args.namespace.clone(),
                index: Arc::clone(&self.index),
                last_response: self.last_response.clone(),
                facts: self.facts.clone(),
            },
            deletions: DeletionReviewer {
                mode: args.validation,
                index: Arc::clone(&self.index),
            },
            pods: PodReviewer {
                namespace: args.namespace.clone(),
                index: Arc::clone(&self.index),
            },
            events,
        };
        routes::routes(dispatcher, Arc::clone(&self.metrics))
    }

    /// Starts the watches of actors, `RayCluster`s, the certificate and the controller's facts.
    fn watch(&self, args: &Args, clients: &Clients, tasks: &Tasks) {
        let (index, certificates) = (&self.index, &self.certificates);
        let actors = index::follow(
            clients.actors.clone(),
            Arc::clone(index),
            self.last_response.clone(),
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
        let (index, certificates) = (Arc::clone(index), certificates.clone());
        let facts = self.facts.clone();
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
        metrics.certificates(&certificates.metrics(), clock::now());
        metrics.connections(connections.count());
    });
    metrics
}
