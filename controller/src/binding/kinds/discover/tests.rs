use asya_shared::resolve::GroupKind;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use crate::cluster::watch_scope::WatchScope;

use super::{availability, find};
use crate::binding::KindAvailability;

/// A server whose group prefers v1beta1 to v1alpha1, that serves `Thing` in `served`, and responds to a read of its CRD
/// with `crd`.
fn server(served: &'static [&'static str], crd: (u16, Value)) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (status, body) = match request.uri().path() {
            "/apis/example.org" => (
                200,
                json!({
                    "name": "example.org",
                    "preferredVersion": {"version": "v1beta1", "groupVersion": "example.org/v1beta1"},
                    "versions": [
                        {"version": "v1alpha1", "groupVersion": "example.org/v1alpha1"},
                        {"version": "v1beta1", "groupVersion": "example.org/v1beta1"},
                    ],
                }),
            ),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org" => {
                crd.clone()
            }
            path if path.contains("/namespaces/") => {
                let is_allowed = path.contains("/granted/")
                    || path.contains("/actors-only/") && path.contains("asyncactors");
                let code = if is_allowed { 200 } else { 403 };
                let body = json!({
                    "metadata": {}, "items": [], "status": "Failure", "code": code, "reason": "Forbidden",
                });
                (code, body)
            }
            path => match path.strip_prefix("/apis/example.org/") {
                Some(version) if served.contains(&version) => (
                    200,
                    json!({"groupVersion": format!("example.org/{version}"), "resources": [
                        {"name": "things", "kind": "Thing", "namespaced": true, "singularName": "", "verbs": []},
                    ]}),
                ),
                _ => (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404}),
                ),
            },
        };
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = status.try_into().unwrap();
        std::future::ready(Ok::<_, BoxError>(response))
    });
    Client::new(service, "default")
}

fn crd(versions: &[(&str, bool, bool)]) -> (u16, Value) {
    let version = |(name, served, storage): &(&str, bool, bool)| json!({"name": name, "served": served, "storage": storage, "schema": {"any": 1}});
    let versions: Vec<_> = versions.iter().map(version).collect();
    (200, json!({"spec": {"versions": versions}}))
}

/// RES-1
#[tokio::test]
async fn kind_is_discovered_in_the_version_that_its_crd_stores() {
    let failure = |code: u16| {
        (
            code,
            json!({"kind": "Status", "status": "Failure", "code": code}),
        )
    };
    let both = &["v1alpha1", "v1beta1"][..];
    let stores = |alpha: bool| crd(&[("v1alpha1", true, alpha), ("v1beta1", true, !alpha)]);
    for (served, crd, expected) in [
        (both, stores(true), Ok("v1alpha1")),
        (both, stores(false), Ok("v1beta1")),
        // The stored version is not served, or no CRD is readable.
        (
            both,
            crd(&[("v1alpha1", false, true), ("v1beta1", true, false)]),
            Ok("v1beta1"),
        ),
        (both, failure(404), Ok("v1beta1")),
        (both, failure(403), Ok("v1beta1")),
        (&both[..1], failure(404), Ok("v1alpha1")),
        // Discovery lags behind the CRD.
        (&both[..1], stores(false), Err(404)),
        (both, failure(500), Err(500)),
    ] {
        let client = server(served, crd.clone());
        let kind = GroupKind {
            group: "example.org",
            kind: "Thing",
        };
        let found = match find(&client, kind).await {
            Ok(found) => Ok(found.unwrap().1),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(
            found.as_deref().map_err(|code| *code),
            expected,
            "{served:?} {crd:?}"
        );
    }
}

/// FW-12
#[tokio::test]
async fn namespace_without_rights_does_not_make_a_kind_unreadable() {
    let client = server(&["v1beta1"], crd(&[("v1beta1", true, true)]));
    for (namespaces, is_served) in [
        (&["granted"][..], true),
        (&["a-revoked"], false),
        (&["a-revoked", "b-revoked", "granted"], true),
        (&["a-revoked", "actors-only"], false),
        // Permissions are the same in all namespaces that have any, so one namespace answers for all.
        (&["a-revoked", "actors-only", "granted"], false),
    ] {
        let scopes = namespaces
            .iter()
            .map(|name| WatchScope::Namespace((*name).into()));
        let kind = GroupKind {
            group: "example.org",
            kind: "Thing",
        };
        let found = availability(&client, kind, &scopes.collect()).await;
        let found = found.unwrap();
        assert_eq!(
            matches!(found, KindAvailability::Served(_)),
            is_served,
            "{namespaces:?}: {found:?}"
        );
    }
}
