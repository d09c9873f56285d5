//! The cluster's identity at brokers: the uid of namespace `kube-system`, which exists in every cluster and is unique
//! to each (QUE-32).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::sync::OnceCell;

use super::BrokerError;

const NAMESPACE: &str = "kube-system";

/// This cluster's identity, read once. No queue may be touched without it.
pub struct ClusterIdentity {
    client: Client,
    uid: OnceCell<Arc<str>>,
}

impl ClusterIdentity {
    /// Reads through `client` on first use.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            uid: OnceCell::new(),
        }
    }

    /// The uid of namespace `kube-system`.
    ///
    /// # Errors
    /// `PrerequisiteMissing` if the operator is not permitted to read the namespace, `Unreachable` if the API server
    /// does not respond.
    pub async fn uid(&self) -> Result<Arc<str>, BrokerError> {
        self.uid.get_or_try_init(|| self.read()).await.cloned()
    }

    async fn read(&self) -> Result<Arc<str>, BrokerError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get_metadata(NAMESPACE).await {
            Ok(namespace) => {
                let uid = namespace.metadata.uid.filter(|uid| !uid.is_empty());
                let missing_uid = || {
                    let text =
                        format!("the API server returned namespace {NAMESPACE} without a uid");
                    BrokerError::Unreachable(text)
                };
                uid.map(Into::into).ok_or_else(missing_uid)
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                Err(BrokerError::PrerequisiteMissing(format!(
                    "the operator may not get namespace {NAMESPACE}, whose uid identifies this cluster's queues at \
                     brokers: grant its ServiceAccount get on namespaces with resourceNames [{NAMESPACE}]"
                )))
            }
            Err(_) => Err(BrokerError::Unreachable(format!(
                "cannot read namespace {NAMESPACE}: the API server does not respond"
            ))),
        }
    }
}
