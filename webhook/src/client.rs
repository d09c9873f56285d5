//! Clients of the API server. Reviews never use them (ADM-7).

use std::time::Duration;

use asya_process::{BoxError, api_server};
use kube::Client;
use kube::client::ClientBuilder;
use tower::Layer;

use crate::index::LastResponse;

/// Read timeout of the watch of actors. Longer than one watch request, so a connection silent for this long is dead.
const ACTORS_READ_TIMEOUT: Duration = Duration::from_secs(25);
/// Read timeout of the other watches.
const OTHERS_READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The clients of a replica.
pub struct Clients {
    /// Watches actors, and reports every response to `last_response`.
    pub(crate) actors: Client,
    /// Watches everything else, and writes Events.
    pub(crate) others: Client,
}

impl Clients {
    /// Uses a kubeconfig if one is given, otherwise the pod's service account.
    ///
    /// # Errors
    /// If there is no usable configuration.
    pub(crate) async fn new(
        kubeconfig: Option<&str>,
        last_response: &LastResponse,
    ) -> Result<Self, BoxError> {
        let mut config = api_server::config(kubeconfig, ACTORS_READ_TIMEOUT).await?;
        let actors = ClientBuilder::try_from(config.clone())?
            .with_layer(last_response)
            .build();
        config.read_timeout = Some(OTHERS_READ_TIMEOUT);
        Ok(Self {
            actors,
            others: Client::try_from(config)?,
        })
    }

    /// Sends all requests through `client`.
    pub(crate) fn in_process(client: Client, last_response: &LastResponse) -> Self {
        let namespace = client.default_namespace().to_owned();
        let others = client.clone();
        let service = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        Self {
            actors: Client::new(last_response.layer(service), namespace),
            others,
        }
    }
}
