//! Flags and environment variables. Transports and pod settings come from the same variables as the controller's. An
//! invalid value fails startup with an error that names it.

use std::time::Duration;

use asya_process::flags::InstallationFlags;
use clap::Parser;

use crate::actor::ValidationMode;

/// The admission webhook of Asya's `AsyncActors`.
#[derive(Parser, Debug)]
#[command(name = "asya-webhook", version)]
pub struct Args {
    /// Address that serves admission reviews, over TLS.
    #[arg(long, default_value = ":9443")]
    pub webhook_bind_address: String,

    /// Address that serves /healthz, /readyz and /metrics.
    #[arg(long, default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Name of the Secret with the certificate, in the operator's namespace.
    #[arg(long, default_value = "asya-webhook-tls")]
    pub tls_secret: String,

    /// Names that the certificate must contain, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub tls_names: Vec<String>,

    /// PEM of the CA that signs the client certificates of API servers. If set, the webhook serves only clients with a
    /// certificate of this CA; if empty, every client.
    #[arg(
        long,
        env = "ASYA_WEBHOOK_CLIENT_CA",
        default_value = "",
        hide_env_values = true
    )]
    pub client_ca: String,

    /// Name of the `ConfigMap` in the operator's namespace through which the controller publishes facts about the
    /// cluster. If empty, the webhook uses no facts, and accepts a certificate of any CA.
    #[arg(long, default_value = "")]
    pub facts_config_map: String,

    /// What happens to an `AsyncActor` that breaks a rule: Enforce (the default), Warn or Off.
    #[arg(long, value_enum, ignore_case = true, default_value_t)]
    pub validation: ValidationMode,

    /// Seconds for which the webhook keeps answering reviews after SIGTERM, until API servers no longer send any.
    #[arg(long, default_value_t = 10)]
    pub shutdown_delay: u64,

    /// Path of a kubeconfig file (default: the pod's service account, else KUBECONFIG).
    #[arg(long)]
    pub kubeconfig: Option<String>,

    /// Log level: error, warn, info, debug or trace; or a filter by module.
    #[arg(long, default_value = "info", value_parser = asya_process::logs::level)]
    pub log_level: String,

    /// Transports and settings of pods.
    #[command(flatten)]
    pub installation: InstallationFlags,

    /// Namespace of the operator.
    #[arg(long, env = "POD_NAMESPACE", default_value = "asya-system")]
    pub namespace: String,

    /// Name of the pod, for Events.
    #[arg(long, env = "POD_NAME", default_value = "asya-webhook")]
    pub pod_name: String,
}

impl Args {
    /// Whether the controller publishes facts.
    pub(crate) fn has_facts(&self) -> bool {
        !self.facts_config_map.is_empty()
    }

    /// See [`Args::client_ca`].
    pub(crate) fn clients(&self) -> Option<&str> {
        Some(self.client_ca.trim()).filter(|pem| !pem.is_empty())
    }

    /// See [`Args::shutdown_delay`].
    pub(crate) fn shutdown_delay(&self) -> Duration {
        Duration::from_secs(self.shutdown_delay)
    }
}
