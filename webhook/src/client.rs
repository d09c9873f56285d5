//! The clients of the API server. Nothing that answers a review uses one (ADM-7).

use std::time::Duration;

use asya_process::{BoxError, api_server};
use kube::Client;
use kube::client::ClientBuilder;

use crate::index::Contact;

/// Longer than the watch of actors lasts: a connection on which nothing comes for so long is dead.
const QUIET: Duration = Duration::from_secs(25);
/// The same of the other watches.
const QUIET_OTHERS: Duration = Duration::from_mins(1);

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
        let mut config = api_server::config(kubeconfig, QUIET).await?;
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
