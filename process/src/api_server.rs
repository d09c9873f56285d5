//! Client configuration for the API server.

use std::time::Duration;

use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why no client configuration could be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `--kubeconfig` names a file that cannot be used.
    #[error("--kubeconfig {path}: {source}")]
    Kubeconfig {
        /// Path of the kubeconfig file.
        path: String,
        /// Why the file cannot be used.
        source: KubeconfigError,
    },
    /// Neither an in-cluster service account nor a kubeconfig was found.
    #[error(
        "no API server configuration found, neither in the cluster nor through KUBECONFIG: {0}"
    )]
    Infer(#[from] InferConfigError),
}

/// Loads the kubeconfig file if one is given; otherwise infers the configuration from the pod's service account or
/// `KUBECONFIG`. Connections that are silent for `read_timeout` are closed, so it must be longer than a watch request.
///
/// # Errors
/// If there is no usable configuration.
pub async fn config(kubeconfig: Option<&str>, read_timeout: Duration) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        Some(path) => {
            let invalid = |source| Error::Kubeconfig {
                path: path.to_owned(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(invalid)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(invalid)?
        }
        None => Config::infer().await?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(read_timeout);
    // No client-side retries: the work queue and each watch have their own backoff.
    config.default_retry = false;
    Ok(config)
}
