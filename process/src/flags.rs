//! Installation-wide flags and environment variables, shared by both programs (OPS-2, ADM-7).

use asya_shared::config::{ConfigError, Settings, TransportsConfig};
use clap::{ArgAction, Args};

/// Transports and settings of pods.
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

    /// URL to which sidecars report progress (default: none).
    #[arg(long, env = "ASYA_GATEWAY_URL")]
    gateway_url: Option<String>,

    /// Default image of sidecars, for actors that set none (default: the image of `asya-sidecar` of this release).
    #[arg(long, env = "ASYA_SIDECAR_IMAGE")]
    sidecar_image: Option<String>,

    /// Where the image of this release's `asya-sidecar` is.
    #[arg(long, env = "ASYA_OWN_SIDECAR_IMAGE")]
    own_sidecar_image: Option<String>,

    /// Default resources of sidecars as JSON, for actors that set none.
    #[arg(long, env = "ASYA_SIDECAR_DEFAULT_RESOURCES")]
    sidecar_default_resources: Option<String>,

    /// Allows actors to request a privileged sidecar.
    #[arg(long, env = "ASYA_PRIVILEGED_SIDECARS", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    privileged_sidecars: bool,

    /// Default image of the runtime container in pods of other controllers, for actors that set none; it needs Python
    /// only.
    #[arg(long, env = "ASYA_BINDING_RUNTIME_IMAGE")]
    binding_runtime_image: Option<String>,

    /// Adapts pods of other controllers to `OpenShift`, which assigns a range of user ids to each namespace: the
    /// containers that the operator adds then request no user id.
    #[arg(long, env = "ASYA_OPENSHIFT", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    openshift: bool,
}

impl InstallationFlags {
    /// Parses the configured transports.
    ///
    /// # Errors
    /// If the configuration is invalid; the error names the path of the offending key.
    pub fn transports(&self) -> Result<TransportsConfig, ConfigError> {
        TransportsConfig::parse(&self.transport_config)
    }

    /// Parses the settings that apply to all pods of the installation.
    ///
    /// # Errors
    /// If a value is invalid; the error names its variable.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let settings = Settings::parse(
            self.gateway_url.clone(),
            self.sidecar_image.clone(),
            self.sidecar_default_resources.as_deref(),
        )?;
        let settings = settings.with_own_sidecar(self.own_sidecar_image.clone());
        let settings = settings.with_privileged_sidecars(self.privileged_sidecars);
        Ok(settings.with_binding(self.binding_runtime_image.clone(), self.openshift))
    }
}
