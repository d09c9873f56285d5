//! Flags and environment of an installation, which both programs read alike (OPS-2, ADM-7).

use asya_shared::config::{ConfigError, Settings, TransportsConfig};
use clap::{ArgAction, Args};

/// Transports, and what pods get.
#[derive(Args, Clone, Debug)]
pub struct InstallationFlags {
    /// Transports as JSON: {"transports": {NAME: {type, enabled, config}}}.
    #[arg(
        long,
        env = "ASYA_TRANSPORT_CONFIG",
        default_value = "",
        hide_env_values = true
    )]
    transport_config: String,

    /// Where sidecars report progress.
    #[arg(long, env = "ASYA_GATEWAY_URL")]
    gateway_url: Option<String>,

    /// Image of sidecars whose actor names none.
    #[arg(long, env = "ASYA_SIDECAR_IMAGE")]
    sidecar_image: Option<String>,

    /// Resources of sidecars whose actor sets none, as JSON.
    #[arg(long, env = "ASYA_SIDECAR_DEFAULT_RESOURCES")]
    sidecar_default_resources: Option<String>,

    /// Whether an actor may ask for a privileged sidecar.
    #[arg(long, env = "ASYA_PRIVILEGED_SIDECARS", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    privileged_sidecars: bool,

    /// Image of the runtime that pods of other controllers get unless their actor names its own; it needs Python only.
    #[arg(long, env = "ASYA_BINDING_RUNTIME_IMAGE")]
    binding_runtime_image: Option<String>,

    /// Whether the cluster is `OpenShift`, which gives the containers of each namespace user ids of its own.
    #[arg(long, env = "ASYA_OPENSHIFT", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    openshift: bool,
}

impl InstallationFlags {
    /// The configured transports.
    ///
    /// # Errors
    /// Names the path of the wrong key.
    pub fn transports(&self) -> Result<TransportsConfig, ConfigError> {
        TransportsConfig::parse(&self.transport_config)
    }

    /// What pods get from the installation.
    ///
    /// # Errors
    /// Names the wrong variable.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let settings = Settings::parse(
            self.gateway_url.clone(),
            self.sidecar_image.clone(),
            self.sidecar_default_resources.as_deref(),
        )?;
        let settings = settings.with_privileged_sidecars(self.privileged_sidecars);
        Ok(settings.with_binding(self.binding_runtime_image.clone(), self.openshift))
    }
}
