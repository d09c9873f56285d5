//! The webhook's replicas, as configured by the chart's Deployment, behind the chart's Service.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::ListParams;

use crate::cluster::Backend;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::operator::{Instance, Launch, NAMESPACE, Operator};
use crate::process::Signal;

/// Longer than a replica may take to exit after SIGTERM.
const ENDED: Duration = Duration::from_secs(25);

/// The running replicas; killed when dropped.
pub struct Webhook {
    operator: Operator,
    replicas: Vec<Instance>,
    /// The number of replicas started so far, including stopped ones.
    started: usize,
}

impl Webhook {
    /// Starts the Deployment's number of replicas, and waits until all are ready and the Service routes to them. Needs
    /// a controller, which issues the serving certificate.
    ///
    /// # Errors
    /// When the chart installs no webhook, or a replica exits or does not become ready.
    pub async fn start(operator: &Operator) -> Result<Self> {
        let mut webhook = Self {
            operator: operator.clone(),
            replicas: Vec::new(),
            started: 0,
        };
        webhook.fill().await?;
        Ok(webhook)
    }

    /// The running replicas.
    #[must_use]
    pub fn replicas(&self) -> &[Instance] {
        &self.replicas
    }

    /// The metrics of all replicas.
    ///
    /// # Errors
    /// When a replica does not respond with metrics.
    pub async fn read_metrics(&self) -> Result<Metrics> {
        let pages = self.replicas.iter().map(Instance::read_metrics);
        Ok(Metrics::concat(try_join_all(pages).await?))
    }

    /// The sum, over all replicas, of the samples of a metric that have all of `labels`.
    ///
    /// # Errors
    /// When there is none, or a replica does not respond with metrics.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        self.read_metrics().await?.get(name, labels)
    }

    /// Replaces all replicas like a rollout: each old replica is stopped once a new one is ready, and the rollout
    /// continues without waiting for it to exit.
    ///
    /// # Errors
    /// When a new replica does not become ready, or an old one exits with an error.
    pub async fn roll(&mut self) -> Result<()> {
        let mut leaving = std::mem::take(&mut self.replicas);
        for number in 0..leaving.len() {
            let replica = self.launch().await?;
            replica.wait_ready().await?;
            self.replicas.push(replica);
            let (gone, kept) = leaving.split_at(number);
            // Replicas that are shutting down are not ready, so they get no requests.
            self.lead_to(self.replicas.iter().chain(kept).chain(gone))
                .await?;
            leaving[number].process().signal(Signal::TERM);
        }
        for replica in leaving.drain(..) {
            let ended = tokio::time::timeout(ENDED, replica.process().wait()).await;
            if !ended.is_ok_and(|status| status.success()) {
                return Err(Error::Other(format!(
                    "{} did not end well",
                    replica.process().name()
                )));
            }
        }
        self.lead_to(&self.replicas).await
    }

    /// Kills all replicas at once.
    ///
    /// # Errors
    /// When the route cannot be updated.
    pub async fn kill(&mut self) -> Result<()> {
        for replica in self.replicas.drain(..) {
            replica.kill().await;
        }
        self.lead_to([]).await
    }

    /// Starts replicas up to the Deployment's number.
    ///
    /// # Errors
    /// When a replica exits or does not become ready.
    pub async fn fill(&mut self) -> Result<()> {
        let wanted = self.operator.webhook()?.replicas;
        while self.replicas.len() < wanted {
            let replica = self.launch().await?;
            self.replicas.push(replica);
        }
        try_join_all(self.replicas.iter().map(Instance::wait_ready)).await?;
        self.lead_to(&self.replicas).await
    }

    async fn launch(&mut self) -> Result<Instance> {
        let name = format!("asya-operator-webhook-{}", self.started);
        self.started += 1;
        self.operator.launch_webhook(&name, Launch::default()).await
    }

    /// Routes the Services that select the webhook's pods to these replicas; only ready ones get requests.
    async fn lead_to(&self, replicas: impl IntoIterator<Item = &Instance> + Clone) -> Result<()> {
        let (cluster, program) = (self.operator.cluster(), self.operator.webhook()?);
        let services = Api::<Service>::namespaced(cluster.client(), NAMESPACE);
        for service in services.list(&ListParams::default()).await? {
            let (name, spec) = (
                service.metadata.name.unwrap_or_default(),
                service.spec.unwrap_or_default(),
            );
            if !selects(&spec, &program.labels) {
                continue;
            }
            for port in spec.ports.into_iter().flatten() {
                let target = match port.target_port {
                    Some(IntOrString::String(name)) => program.port(&name),
                    Some(IntOrString::Int(number)) => number.try_into().ok(),
                    None => port.port.try_into().ok(),
                };
                let target = target.ok_or_else(|| {
                    Error::Other(format!("Service {name} leads to no port of the pods"))
                })?;
                let backend = |replica: &Instance| {
                    Some(Backend {
                        address: replica.address_of(target)?.to_owned(),
                        ready: Some(format!("{}/readyz", replica.health())),
                    })
                };
                let backends: Vec<_> = replicas.clone().into_iter().filter_map(backend).collect();
                let port = port.port.try_into().map_err(Error::other)?;
                cluster.set_route(NAMESPACE, &name, port, &backends)?;
            }
        }
        Ok(())
    }
}

/// Whether a Service's selector matches pods with these labels.
fn selects(service: &ServiceSpec, labels: &std::collections::BTreeMap<String, String>) -> bool {
    let mut selector = service.selector.iter().flatten().peekable();
    selector.peek().is_some() && selector.all(|(key, value)| labels.get(key) == Some(value))
}
