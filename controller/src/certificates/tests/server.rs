//! An in-memory API server with two Secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use asya_certs::secret::TlsSecret;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

pub(super) const SECRET: &str = "asya-webhook-tls";
const KEYS: &str = "asya-webhook-tls-authority";

/// Outcome of the next write of the webhook's Secret.
#[derive(Clone, Default)]
pub(super) enum WriteOutcome {
    #[default]
    Stored,
    /// Another process writes this Secret first.
    PrecededBy(Box<Option<TlsSecret>>),
    /// The Secret is stored, but the response is an error.
    ResponseLost,
    /// The write is refused with this status code.
    Refused(u16),
}

/// How the webhook responds to the API server.
#[derive(Clone, Copy, Default)]
pub(super) enum Webhook {
    #[default]
    Refuses,
    Warns,
    Unreachable,
}

#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    secrets: BTreeMap<String, TlsSecret>,
    version: u64,
    next_write_outcome: WriteOutcome,
    /// Response to a dry run of an actor.
    pub(super) webhook: Webhook,
    pub(super) tries: usize,
    pub(super) reads: usize,
    pub(super) writes: usize,
}

impl Server {
    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, BoxError>(server.serve(request).await) }
        });
        Client::new(service, "asya-system")
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Both Secrets, merged into the webhook's.
    pub(super) fn secret(&self) -> TlsSecret {
        let [secret, keys] = [SECRET, KEYS].map(|name| self.state().secrets.get(name).cloned());
        let mut secret = secret.unwrap();
        if let Some(keys) = keys {
            secret.data = secret.data.with_ca_keys(&keys.data);
        }
        secret
    }

    /// One of the two Secrets.
    pub(super) fn one(&self, keys: bool) -> Option<TlsSecret> {
        let name = if keys { KEYS } else { SECRET };
        self.state().secrets.get(name).cloned()
    }

    /// Stores both Secrets, as the manager writes them.
    pub(super) fn put(&self, secret: Option<TlsSecret>) {
        self.state().store_both(secret);
    }

    /// Stores everything in the webhook's Secret, as older versions did.
    pub(super) fn put_in_one(&self, secret: TlsSecret) {
        self.state().store(SECRET, Some(secret));
    }

    pub(super) fn next_write(&self, outcome: WriteOutcome) {
        self.state().next_write_outcome = outcome;
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        if parts.uri.path().ends_with("/asyncactors") {
            assert_eq!(parts.uri.query(), Some("dryRun=All"));
            return self.state().review();
        }
        let path = parts.uri.path().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default();
        self.state().respond(&parts.method, name, &body)
    }
}

impl State {
    fn review(&mut self) -> Response<Body> {
        self.tries += 1;
        let text = "admission webhook \"validate.asyncactors.asya.sh\" denied the request: no";
        let warning = "299 - \"metadata.namespace: targets in asya-system cannot be bound\"";
        let (code, warning, text) = match self.webhook {
            Webhook::Refuses => (422, None, text),
            Webhook::Warns => (201, Some(warning), "{}"),
            Webhook::Unreachable => (201, None, "{}"),
        };
        let mut response = Response::builder().status(code);
        if let Some(warning) = warning {
            response = response.header("warning", warning);
        }
        response.body(Body::from(text.as_bytes().to_vec())).unwrap()
    }

    fn respond(&mut self, method: &Method, name: &str, body: &[u8]) -> Response<Body> {
        if *method == Method::GET {
            self.reads += usize::from(name == SECRET);
            return match self.secrets.get(name) {
                Some(stored) => Response::new(Body::from(serde_json::to_vec(stored).unwrap())),
                None => failure(404),
            };
        }
        if *method == Method::DELETE {
            let stored = &self.secrets[name].metadata;
            let params: serde_json::Value = serde_json::from_slice(body).unwrap();
            let expected =
                serde_json::json!({"uid": stored.uid, "resourceVersion": stored.resource_version});
            if params["preconditions"] != expected {
                return failure(409);
            }
            self.store(name, None);
            return Response::new(Body::from(
                br#"{"kind": "Status", "status": "Success"}"#.to_vec(),
            ));
        }
        let new: TlsSecret = serde_json::from_slice(body).unwrap();
        let name = new.metadata.name.clone().unwrap_or_default();
        let outcome = if name == SECRET {
            std::mem::take(&mut self.next_write_outcome)
        } else {
            WriteOutcome::Stored
        };
        match &outcome {
            WriteOutcome::PrecededBy(other) => self.store_both((**other).clone()),
            WriteOutcome::Refused(code) => return failure(*code),
            WriteOutcome::Stored | WriteOutcome::ResponseLost => {}
        }
        let version = |secret: &TlsSecret| secret.metadata.resource_version.clone();
        match self.secrets.get(&name) {
            Some(_) if *method == Method::POST => return failure(409),
            None if *method == Method::PUT => return failure(404),
            Some(stored) if version(stored) != version(&new) => return failure(409),
            Some(stored) if stored.immutable == Some(true) && stored.data != new.data => {
                return failure(422);
            }
            None if version(&new).is_some() => return failure(422),
            _ => {}
        }
        self.writes += usize::from(name == SECRET);
        self.store(&name, Some(new));
        match outcome {
            WriteOutcome::ResponseLost => failure(504),
            _ => Response::new(Body::from(
                serde_json::to_vec(&self.secrets[&name]).unwrap(),
            )),
        }
    }

    fn store_both(&mut self, secret: Option<TlsSecret>) {
        let mut keys = TlsSecret::default();
        let secret = secret.map(|mut secret| {
            (secret.data, keys.data) = secret.data.split_off_ca_keys();
            secret
        });
        let exists = secret.is_some();
        self.store(SECRET, secret);
        self.store(KEYS, exists.then_some(keys));
    }

    fn store(&mut self, name: &str, secret: Option<TlsSecret>) {
        self.version += 1;
        self.secrets.remove(name);
        if let Some(mut secret) = secret {
            secret.metadata.name = Some(name.to_owned());
            secret.metadata.resource_version = Some(self.version.to_string());
            self.secrets.insert(name.to_owned(), secret);
        }
    }
}

fn failure(code: u16) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "scripted", "reason": reason,
    });
    let body = Body::from(serde_json::to_vec(&status).unwrap());
    Response::builder().status(code).body(body).unwrap()
}
