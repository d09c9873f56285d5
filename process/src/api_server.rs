//! Where the API server is and who we are there.

use std::time::Duration;

use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `--kubeconfig` names a file that cannot be used.
    #[error("--kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// Neither a pod's service account nor a kubeconfig.
    #[error("no way to the API server, neither from inside a pod nor by KUBECONFIG: {0}")]
    Infer(#[from] InferConfigError),
}

/// By a kubeconfig file if one is named, else by the pod's service account or `KUBECONFIG`. A connection on which nothing
/// comes for `quiet` is given up: longer than a watch lasts.
///
/// # Errors
/// When there is no usable configuration.
pub async fn config(kubeconfig: Option<&str>, quiet: Duration) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        Some(path) => {
            let wrong = |source| Error::Kubeconfig {
                path: path.to_owned(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(wrong)?
        }
        None => Config::infer().await?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(quiet);
    // Who asks knows best when to ask again: the work queue, and each watch's own backoff.
    config.default_retry = false;
    Ok(config)
}
