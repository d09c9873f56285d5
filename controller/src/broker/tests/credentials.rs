//! Secrets, and a broker that changes the password it accepts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use asya_shared::config::SecretKeyRef;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, Config};
use tokio::net::TcpListener;

use super::*;
use crate::broker::Brokers;
use crate::broker::health::QueueObserver;
use crate::broker::http_client::{
    BuildHttpClient, BuildHttpClients, HttpClient, HttpRequest, HttpResponse, NoResponse,
};

/// An API server with Secrets, and a broker that accepts one password.
#[derive(Default)]
struct Fixture {
    /// Value of the key `password`, by `namespace/name`.
    secrets: Mutex<HashMap<String, String>>,
    read: Mutex<Vec<String>>,
    password: Mutex<String>,
    logins: Mutex<usize>,
    /// HTTP clients that were built for the broker.
    clients: AtomicUsize,
    /// The namespace whose Secrets the operator is not permitted to read.
    forbidden: Mutex<Option<String>>,
    /// Whether the actors' namespace is being deleted.
    terminating: AtomicBool,
}

type Shared = Arc<Fixture>;

async fn secret(
    State(fixture): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<String, (StatusCode, String)> {
    let key = format!("{namespace}/{name}");
    fixture.read.lock().unwrap().push(key.clone());
    if fixture.forbidden.lock().unwrap().as_ref() == Some(&namespace) {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403});
        return Err((StatusCode::FORBIDDEN, status.to_string()));
    }
    let Some(text) = fixture.secrets.lock().unwrap().get(&key).cloned() else {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        return Err((StatusCode::NOT_FOUND, status.to_string()));
    };
    let mut secret = Secret::default();
    secret.metadata.name = Some(name);
    secret.data = Some([("password".to_owned(), ByteString(text.into_bytes()))].into());
    Ok(serde_json::to_string(&secret).unwrap())
}

async fn namespace(State(fixture): State<Shared>, Path(name): Path<String>) -> String {
    let deleted = fixture
        .terminating
        .load(Ordering::Relaxed)
        .then_some("2026-01-01T00:00:00Z");
    json!({"metadata": {"name": name, "uid": "u", "deletionTimestamp": deleted}}).to_string()
}

/// Accepts user `guest` with the current password.
async fn login(State(fixture): State<Shared>, headers: HeaderMap) -> (StatusCode, &'static str) {
    *fixture.logins.lock().unwrap() += 1;
    let expected = fixture.password.lock().unwrap().clone();
    let given = headers["authorization"].to_str().unwrap().to_owned();
    // Let reqwest build the header, since there is no base64 encoder here.
    let request = reqwest::Client::new()
        .get("http://broker")
        .basic_auth("guest", Some(expected))
        .build()
        .unwrap();
    if request.headers()["authorization"] == given.as_str() {
        let absent = r#"{"error":"Object Not Found","reason":"Not Found"}"#;
        (StatusCode::NOT_FOUND, absent)
    } else {
        (StatusCode::UNAUTHORIZED, "")
    }
}

/// The Secret of a client that does not trust the broker, so that no connection is established.
const UNTRUSTING: &str = "untrusting";

/// A client of the broker, unless its Secret says otherwise.
struct TrustingOthers(Arc<dyn HttpClient>);

impl HttpClient for TrustingOthers {
    fn send<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> BoxFuture<'a, Result<HttpResponse, NoResponse>> {
        if request.login.1 == UNTRUSTING {
            return ready(Err(NoResponse::NotConnected)).boxed();
        }
        self.0.send(request)
    }
}

async fn start(secrets: &[(&str, &str)], password: &str) -> (Shared, Brokers, Transport) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let fixture = Shared::default();
    for (key, text) in secrets {
        fixture.set(key, text);
    }
    password.clone_into(&mut fixture.password.lock().unwrap());
    let routes = Router::new()
        .route("/api/v1/namespaces/{namespace}/secrets/{name}", get(secret))
        .route("/api/v1/namespaces/{namespace}", get(namespace))
        .fallback(login)
        .with_state(Arc::clone(&fixture));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let address = format!("http://127.0.0.1:{port}");
    let counted = Arc::clone(&fixture);
    let management_api: BuildHttpClient = Arc::new(move |settings| {
        counted.clients.fetch_add(1, Ordering::Relaxed);
        let inner = (over_network().management_api)(settings)?;
        Ok(Arc::new(TrustingOthers(inner)))
    });
    let kube = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
    let brokers = Brokers::new(
        kube,
        "asya-system",
        Fence::unrestricted(),
        Arc::default(),
        32,
        BuildHttpClients {
            management_api,
            ..over_network()
        },
    );
    let config = json!({
        "host": "127.0.0.1", "management": {"port": port},
        "passwordSecretRef": {"name": "mq", "key": "password"},
    });
    (fixture, brokers, transport("rabbitmq", &config))
}

impl Fixture {
    fn set(&self, key: &str, text: &str) {
        let mut secrets = self.secrets.lock().unwrap();
        secrets.insert(key.to_owned(), text.to_owned());
    }

    fn reads(&self) -> usize {
        self.read.lock().unwrap().len()
    }

    fn logins(&self) -> usize {
        *self.logins.lock().unwrap()
    }
}

async fn observe(brokers: &Brokers, transport: &Transport) -> Result<(), BrokerError> {
    observe_in("ns", brokers, transport).await
}

async fn observe_in(
    namespace: &str,
    brokers: &Brokers,
    transport: &Transport,
) -> Result<(), BrokerError> {
    let client = brokers.client(transport, namespace);
    client.observe(&queue_of(transport, "a")).await.map(drop)
}

/// SEC-1
#[tokio::test]
async fn secrets_are_read_from_the_operators_namespace_first() {
    let (fixture, brokers, transport) =
        start(&[("asya-system/mq", "right"), ("ns/mq", "wrong")], "right").await;
    observe(&brokers, &transport).await.unwrap();
    assert_eq!(*fixture.read.lock().unwrap(), ["asya-system/mq"]);

    let (fixture, brokers, transport) = start(&[("ns/mq", "right")], "right").await;
    observe(&brokers, &transport).await.unwrap();
    assert_eq!(*fixture.read.lock().unwrap(), ["asya-system/mq", "ns/mq"]);

    for secrets in [&[][..], &[("asya-system/mq", "")]] {
        let (fixture, brokers, transport) = start(secrets, "right").await;
        let missing = observe(&brokers, &transport).await.unwrap_err();
        assert!(
            matches!(&missing, BrokerError::CredentialsMissing(text)
            if text.contains("asya-system") && text.contains("ns;") && text.contains("mq")),
            "{missing:?}"
        );
        assert_eq!(fixture.logins(), 0);
    }
}

/// QUE-8 (d)
#[tokio::test]
async fn all_calls_with_the_same_credentials_share_a_client() {
    let (fixture, brokers, transport) = start(&[("asya-system/mq", "old")], "old").await;
    for _ in 0..5 {
        observe(&brokers, &transport).await.unwrap();
    }
    assert_eq!(fixture.clients.load(Ordering::Relaxed), 1);

    "new".clone_into(&mut fixture.password.lock().unwrap());
    fixture.set("asya-system/mq", "new");
    for _ in 0..5 {
        observe(&brokers, &transport).await.unwrap();
    }
    let clients = fixture.clients.load(Ordering::Relaxed);
    assert_eq!(clients, 2, "one for each password");
}

/// SEC-1
#[tokio::test]
async fn secret_that_may_not_be_read_counts_as_missing() {
    for (forbidden, found) in [("asya-system", true), ("ns", false)] {
        let (fixture, brokers, transport) = start(&[("ns/mq", "right")], "right").await;
        *fixture.forbidden.lock().unwrap() = Some(forbidden.to_owned());
        match observe(&brokers, &transport).await {
            Ok(()) => assert!(found, "{forbidden}"),
            Err(BrokerError::CredentialsMissing(_)) => assert!(!found, "{forbidden}"),
            Err(error) => panic!("{forbidden}: {error:?}"),
        }
    }
}

/// SEC-2
#[tokio::test]
async fn secrets_are_read_once_for_many_calls() {
    let (fixture, brokers, transport) = start(&[("asya-system/mq", "right")], "right").await;
    for _ in 0..5 {
        observe(&brokers, &transport).await.unwrap();
    }
    assert_eq!((fixture.reads(), fixture.logins()), (1, 5));
}

/// SEC-2
#[tokio::test]
async fn secret_in_the_actors_namespace_is_cached_across_calls() {
    let (fixture, brokers, transport) = start(&[("ns/mq", "right")], "right").await;
    for _ in 0..5 {
        observe(&brokers, &transport).await.unwrap();
    }
    assert_eq!(fixture.reads(), 2);
}

/// SEC-2, SQS-8
#[tokio::test]
async fn rejected_password_is_read_again_once() {
    let (fixture, brokers, transport) = start(&[("asya-system/mq", "old")], "old").await;
    observe(&brokers, &transport).await.unwrap();
    "new".clone_into(&mut fixture.password.lock().unwrap());
    let result = observe(&brokers, &transport).await;
    assert!(
        matches!(result, Err(BrokerError::AuthFailed(_))),
        "{result:?}"
    );
    assert_eq!(
        (fixture.reads(), fixture.logins()),
        (2, 2),
        "an unchanged password is not retried"
    );

    fixture.set("asya-system/mq", "new");
    observe(&brokers, &transport).await.unwrap();
    assert_eq!((fixture.reads(), fixture.logins()), (3, 4));
    observe(&brokers, &transport).await.unwrap();
    assert_eq!((fixture.reads(), fixture.logins()), (3, 5));
}

/// SEC-2, QUE-20: a failed list makes no actor ask the broker, which would read the Secret.
#[tokio::test]
async fn password_that_a_list_was_rejected_with_is_read_again_by_the_next() {
    let (fixture, brokers, transport) = start(&[("asya-system/mq", "old")], "old").await;
    let queues = || vec![queue_of(&transport, "a")];
    let count = async || {
        let counted = brokers.depths(&transport, queues()).await;
        counted.into_iter().next().unwrap().1
    };
    let check = async || {
        let checked = brokers.observe_many(&transport, queues()).await;
        checked.into_iter().next().unwrap().1
    };
    assert!(count().await.is_ok() && check().await.is_ok());
    for password in ["new", "newer"] {
        password.clone_into(&mut fixture.password.lock().unwrap());
        fixture.set("asya-system/mq", password);
        let rejected = match password {
            "new" => count().await.err(),
            _ => check().await.err(),
        };
        assert!(
            matches!(rejected, Some(BrokerError::AuthFailed(_))),
            "{rejected:?}"
        );
        assert!(count().await.is_ok() && check().await.is_ok());
    }
}

/// QUE-9, SEC-1: a namespace with its own Secret must not keep the others from a transport that all share.
#[tokio::test]
async fn client_that_cannot_connect_does_not_open_the_circuit_of_others() {
    let secrets = [("a/mq", UNTRUSTING), ("b/mq", "right")];
    let (_, brokers, transport) = start(&secrets, "right").await;
    for number in 0..50 {
        let error = observe_in("a", &brokers, &transport).await.unwrap_err();
        let is_called = matches!(error, BrokerError::Unreachable(_));
        assert_eq!(is_called, number < 5, "{number}: {error:?}");
    }
    observe_in("b", &brokers, &transport).await.unwrap();
}

/// SEC-2
#[tokio::test]
async fn rejected_password_of_one_namespace_is_not_read_again_in_another() {
    let secrets = [("a/mq", "wrong"), ("b/mq", "right")];
    let (fixture, brokers, transport) = start(&secrets, "right").await;
    for _ in 0..3 {
        observe_in("b", &brokers, &transport).await.unwrap();
        let result = observe_in("a", &brokers, &transport).await;
        assert!(
            matches!(result, Err(BrokerError::AuthFailed(_))),
            "{result:?}"
        );
    }
    let read = fixture.read.lock().unwrap();
    let of_b = read.iter().filter(|key| *key == "b/mq").count();
    assert_eq!(of_b, 1, "{read:?}");
}

/// FIN-5, SEC-2
#[tokio::test]
async fn deleted_secret_stays_in_use_only_while_its_namespace_terminates() {
    let (fixture, brokers, transport) = start(&[("ns/mq", "right")], "right").await;
    observe(&brokers, &transport).await.unwrap();
    fixture.secrets.lock().unwrap().clear();
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(6)).await;
    tokio::time::resume();
    let result = observe(&brokers, &transport).await;
    assert!(
        matches!(result, Err(BrokerError::CredentialsMissing(_))),
        "{result:?}"
    );
    fixture.terminating.store(true, Ordering::Relaxed);
    observe(&brokers, &transport).await.unwrap();
}

/// SAFE-42
#[tokio::test]
async fn secret_that_pods_need_is_looked_for_in_their_own_namespace() {
    let reference = |name: &str, key: &str| SecretKeyRef {
        name: name.to_owned(),
        key: key.to_owned(),
        optional: None,
    };
    let references = [reference("mq", "password"), reference("other", "password")];
    let operators = ("asya-system/mq", "right");
    for (secrets, forbidden, missing) in [
        (&[operators][..], false, Some(&references[0])),
        (&[("ns/mq", "right")], false, Some(&references[1])),
        (&[("ns/mq", ""), ("ns/other", "right")], false, None),
        (&[operators], true, None),
    ] {
        let (fixture, brokers, _) = start(secrets, "right").await;
        *fixture.forbidden.lock().unwrap() = forbidden.then(|| "ns".to_owned());
        let found = brokers.missing_secret("ns", &references).await.unwrap();
        assert_eq!(found, missing, "{secrets:?}");
    }
    let (_, brokers, _) = start(&[("ns/mq", "right")], "right").await;
    let other_key = [reference("mq", "url")];
    let found = brokers.missing_secret("ns", &other_key).await.unwrap();
    assert_eq!(found, Some(&other_key[0]));
}
