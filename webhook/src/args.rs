//! Flags and environment; transports and what pods get come by the same variables as the controller's. A bad
//! value stops the start, naming it.

use std::time::Duration;

use asya_process::flags::InstallationFlags;
use clap::Parser;

use crate::actor::Mode;

/// The admission webhook of Asya's `AsyncActors`.
#[derive(Parser, Debug)]
#[command(name = "asya-webhook", version)]
pub struct Args {
    /// Address of the reviews, by TLS.
    #[arg(long, default_value = ":9443")]
    pub webhook_bind_address: String,

    /// Address of /healthz, /readyz and /metrics.
    #[arg(long, default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Secret of the operator's namespace with the certificate.
    #[arg(long, default_value = "asya-webhook-tls")]
    pub tls_secret: String,

    /// What the certificate must name, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub tls_names: Vec<String>,

    /// PEM of the CA whose certificates API servers present to webhooks; nobody else is served then. Empty: everybody is.
    #[arg(
        long,
        env = "ASYA_WEBHOOK_CLIENT_CA",
        default_value = "",
        hide_env_values = true
    )]
    pub client_ca: String,

    /// `ConfigMap` of the operator's namespace in which the controller tells what only it knows; empty: nobody tells,
    /// and any authority of the certificate will do.
    #[arg(long, default_value = "")]
    pub facts_config_map: String,

    /// What becomes of an `AsyncActor` that breaks a rule.
    #[arg(long, value_enum, ignore_case = true, default_value_t)]
    pub validation: Mode,

    /// How long reviews are still answered after SIGTERM, in seconds: so long it takes until nobody sends any.
    #[arg(long, default_value_t = 10)]
    pub shutdown_delay: u64,

    /// Kubeconfig file (default: the pod's service account, else KUBECONFIG).
    #[arg(long)]
    pub kubeconfig: Option<String>,

    /// error, warn, info, debug or trace; or a filter by module.
    #[arg(long, default_value = "info")]
    pub log_level: String,

    /// Transports, and what pods get.
    #[command(flatten)]
    pub installation: InstallationFlags,

    /// The operator's own namespace.
    #[arg(long, env = "POD_NAMESPACE", default_value = "asya-system")]
    pub namespace: String,

    /// The pod's name, for Events.
    #[arg(long, env = "POD_NAME", default_value = "asya-webhook")]
    pub pod_name: String,
}

impl Args {
    /// Whether somebody tells facts.
    pub fn has_facts(&self) -> bool {
        !self.facts_config_map.is_empty()
    }

    /// See [`Args::client_ca`].
    pub fn clients(&self) -> Option<&str> {
        Some(self.client_ca.trim()).filter(|pem| !pem.is_empty())
    }

    /// See [`Args::shutdown_delay`].
    pub fn shutdown_delay(&self) -> Duration {
        Duration::from_secs(self.shutdown_delay)
    }
}
