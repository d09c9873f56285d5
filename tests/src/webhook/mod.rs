//! The webhook's replicas, as the chart's Deployment says, behind the chart's Service.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::ListParams;

use crate::cluster::Backend;
use crate::error::{Error, Result};
use crate::operator::{Instance, Launch, NAMESPACE, Operator};
use crate::process::Signal;

/// Longer than a replica may take from SIGTERM to its end.
const ENDED: Duration = Duration::from_secs(25);

/// The running replicas; killed when dropped.
pub struct Webhook {
    operator: Operator,
    replicas: Vec<Instance>,
    /// Replicas so far, those that are gone included.
    started: usize,
}

impl Webhook {
    /// Starts as many replicas as the Deployment says, and waits until all are ready and the Service leads to them.
    /// That needs a controller: it makes their certificate.
    ///
    /// # Errors
    /// When the chart installs no webhook, or one ends or does not become ready.
    pub async fn start(operator: &Operator) -> Result<Self> {
        let mut webhook = Self {
            operator: operator.clone(),
            replicas: Vec::new(),
            started: 0,
        };
        webhook.fill().await?;
        Ok(webhook)
    }

    /// The replicas that run.
    #[must_use]
    pub fn replicas(&self) -> &[Instance] {
        &self.replicas
    }

    /// The sum over all replicas of those samples of a metric whose labels contain each of `labels`.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let all = self.replicas.iter().map(|it| it.metric_of(name, labels));
        Ok(try_join_all(all).await?.into_iter().sum())
    }

    /// Replaces all replicas as a rollout does: each old one is stopped when a new one is ready, and nobody waits for its
    /// end before the next.
    ///
    /// # Errors
    /// When a new one does not become ready, or an old one does not end well.
    pub async fn roll(&mut self) -> Result<()> {
        let mut leaving = std::mem::take(&mut self.replicas);
        for number in 0..leaving.len() {
            let replica = self.launch().await?;
            replica.wait_ready().await?;
            self.replicas.push(replica);
            let (gone, kept) = leaving.split_at(number);
            // Those that leave are not ready, so nobody is sent to them.
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
    /// When the Service cannot be told.
    pub async fn kill(&mut self) -> Result<()> {
        for replica in self.replicas.drain(..) {
            replica.kill().await;
        }
        self.lead_to([]).await
    }

    /// Starts replicas until there are as many as the Deployment says.
    ///
    /// # Errors
    /// When one ends or does not become ready.
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

    /// Sends those who ask for the chart's Service to these replicas, as far as they are ready.
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

/// Whether a Service's selector fits pods with these labels.
fn selects(service: &ServiceSpec, labels: &std::collections::BTreeMap<String, String>) -> bool {
    let mut selector = service.selector.iter().flatten().peekable();
    selector.peek().is_some() && selector.all(|(key, value)| labels.get(key) == Some(value))
}
