//! Clients of the API server. Nothing that answers a review uses them (ADM-7).

use std::time::Duration;

use asya_process::{BoxError, api_server};
use kube::Client;
use kube::client::ClientBuilder;

use crate::index::Contact;

/// Read timeout, longer than a watch of actors lasts: a connection that is silent for this long is dead.
const QUIET: Duration = Duration::from_secs(25);
/// Read timeout of the other watches.
const QUIET_OTHERS: Duration = Duration::from_mins(1);

pub struct Clients {
    /// Watches actors, and reports every response to `contact`.
    pub actors: Client,
    /// Watches everything else, and writes Events.
    pub others: Client,
}

impl Clients {
    /// Uses a kubeconfig if one is given, otherwise the pod's service account.
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
