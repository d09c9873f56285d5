//! Pods of any controller.

use asya_shared::resolve::Selector;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::record::UNFINISHED;

/// Lists the unfinished pods with these labels.
///
/// # Errors
/// When the API server fails.
pub async fn list_unfinished(
    client: &Client,
    namespace: &str,
    labels: &Selector,
) -> Result<Vec<Pod>, kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default()
        .labels(&labels.to_string())
        .fields(UNFINISHED);
    api.list(&params).await.map(|list| list.items)
}
