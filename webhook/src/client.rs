//! The clients of the API server. Nothing that answers a review uses one (ADM-7).

use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::BoxError;
use crate::index::Contact;

/// Longer than the watch of actors lasts: a connection on which nothing comes for so long is dead.
const QUIET: Duration = Duration::from_secs(25);
/// The same of the other watches.
const QUIET_OTHERS: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The clients of this process.
pub struct Clients {
    /// Watches actors, and tells `contact` of every answer.
    pub actors: Client,
    /// Watches the certificate and the facts, and writes Events.
    pub others: Client,
}

impl Clients {
    /// By the pod's service account, or by a kubeconfig.
    ///
    /// # Errors
    /// When there is no usable configuration.
    pub async fn new(kubeconfig: Option<&str>, contact: &Contact) -> Result<Self, BoxError> {
        let mut config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            None => Config::infer().await?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // Each watch has its own backoff.
        config.default_retry = false;
        config.read_timeout = Some(QUIET);
        let actors = ClientBuilder::try_from(config.clone())?
            .with_layer(contact)
            .build();
        config.read_timeout = Some(QUIET_OTHERS);
        Ok(Self {
            actors,
            others: Client::try_from(config)?,
        })
    }
}
