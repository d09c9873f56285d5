//! The client of the API server, behind the fence.

use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;

use crate::fence::{Fence, FenceLayer, FencedExecutor};

/// Longer than a watch lasts ([`crate::watch`]): a connection on which nothing comes for so long is dead.
pub const READ_TIMEOUT: Duration = Duration::from_mins(1);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no client.
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
    Infer(#[from] kube::config::InferConfigError),
    /// The configuration names something that cannot be used.
    #[error("client of the API server: {0}")]
    Build(#[from] kube::Error),
}

/// Where the API server is and who we are there.
///
/// # Errors
/// When there is no usable configuration.
pub async fn config(kubeconfig: Option<&str>) -> Result<Config, Error> {
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
    config.read_timeout = Some(READ_TIMEOUT);
    // Retries are the work queue's: one place decides when an actor is tried again.
    config.default_retry = false;
    Ok(config)
}

/// A client whose every write passes the fence; `writes` counts them.
///
/// # Errors
/// When the configuration's credentials or certificates cannot be used.
pub fn fenced(config: Config, fence: &Fence, writes: Counter) -> Result<Client, Error> {
    let layer = FenceLayer::new(fence.clone(), writes);
    let connections = FencedExecutor(fence.clone());
    let builder = ClientBuilder::try_from((config, connections))?;
    Ok(builder.with_layer(&layer).build())
}

/// A client of its own connections, for the lease alone: a crowd of writes cannot delay a renewal.
///
/// # Errors
/// When the configuration's credentials or certificates cannot be used.
pub fn unfenced(config: Config) -> Result<Client, Error> {
    Ok(Client::try_from(config)?)
}
