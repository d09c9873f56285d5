//! Waiting for CRDs that were just applied.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};

use crate::error::Result;
use crate::eventually::{NotYet, check, eventually};

/// The name of our CRD.
pub const ACTORS: &str = "asyncactors.asya.sh";

/// Waits until the API server has established the CRD `name`.
///
/// `kubectl wait` cannot: a new CRD has `status.conditions: null` until the API server first processes it, and kubectl
/// then gives up ("accessor error") instead of waiting.
///
/// # Errors
/// After `timeout`, with the CRD's conditions.
pub async fn established(client: &Client, name: &str, timeout: Duration) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    eventually(
        format_args!("CRD {name} is established"),
        timeout,
        async || is_established(&api, name).await,
    )
    .await
}

/// Checks once whether a CRD is established.
///
/// # Errors
/// If not, with its conditions.
pub(crate) async fn is_established(
    api: &Api<CustomResourceDefinition>,
    name: &str,
) -> Result<(), NotYet> {
    let conditions = api.get(name).await?.status.and_then(|it| it.conditions);
    let conditions = conditions.unwrap_or_default();
    let mut all = conditions.iter();
    let established = all.any(|it| it.type_ == "Established" && it.status == "True");
    check(established, format_args!("{conditions:?}"))
}
