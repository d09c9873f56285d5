//! Whether the API server reaches and trusts the webhook (CERT-4 (3)).

use asya_shared::admission::VALIDATION_ENTRY;
use http::header::{CONTENT_TYPE, WARNING};
use http::{HeaderMap, Request};
use kube::Client;
use kube::client::Body;
use serde_json::json;

/// Dry-runs the creation of an object that the webhook denies: a binding in the operator's own namespace (BIND-2).
///
/// # Errors
/// Why it is not certain that the webhook was called.
pub(super) async fn check_webhook_reachable(
    client: &Client,
    namespace: &str,
) -> Result<(), String> {
    let actor = json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": "asya-webhook-is-reached", "namespace": namespace},
        "spec": {
            "transport": "none",
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
        },
    });
    let path = format!("/apis/asya.sh/v1alpha1/namespaces/{namespace}/asyncactors?dryRun=All");
    let request = Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(actor.to_string().into_bytes()));
    let request = request.map_err(|error| error.to_string())?;
    let response = client.send(request).await;
    let (response, body) = response.map_err(|error| error.to_string())?.into_parts();
    if response.status.is_success() {
        return if has_validation_warning(&response.headers) {
            Ok(())
        } else {
            Err("the webhook was not called, or validates nothing".to_owned())
        };
    }
    let text = body.collect_bytes().await;
    let text = text.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&text);
    if text.contains(VALIDATION_ENTRY) {
        return Ok(());
    }
    Err(format!("{}: {}", response.status, excerpt(&text)))
}

/// In mode Warn, the webhook returns a warning where it would otherwise deny (VAC-3).
fn has_validation_warning(headers: &HeaderMap) -> bool {
    let mut warnings = headers.get_all(WARNING).iter();
    warnings.any(|warning| {
        warning
            .to_str()
            .is_ok_and(|warning| warning.contains("metadata.namespace"))
    })
}

fn excerpt(text: &str) -> String {
    text.chars().take(300).collect()
}
