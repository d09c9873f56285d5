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

/// What happens to the next write of the webhook's Secret.
#[derive(Clone, Default)]
pub(super) enum Fate {
    #[default]
    Stored,
    /// Another process writes this just before.
    Raced(Box<Option<TlsSecret>>),
    /// It is stored, but the response is an error.
    LosesAnswer,
    /// It is refused with this status code.
    Refused(u16),
}

/// How the webhook responds to the API server.
#[derive(Clone, Copy, Default)]
pub(super) enum Webhook {
    #[default]
    Refuses,
    Warns,
    Unreached,
}

#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    secrets: BTreeMap<String, TlsSecret>,
    version: u64,
    fate: Fate,
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

    /// The content of both, merged into the webhook's Secret.
    pub(super) fn secret(&self) -> TlsSecret {
        let [secret, keys] = [SECRET, KEYS].map(|name| self.state().secrets.get(name).cloned());
        let mut secret = secret.unwrap();
        if let Some(keys) = keys {
            secret.data = secret.data.with(&keys.data);
        }
        secret
    }

    /// One of the two.
    pub(super) fn one(&self, keys: bool) -> Option<TlsSecret> {
        let name = if keys { KEYS } else { SECRET };
        self.state().secrets.get(name).cloned()
    }

    /// Stores both, as we keep them.
    pub(super) fn put(&self, secret: Option<TlsSecret>) {
        self.state().store_both(secret);
    }

    /// Stores everything in the webhook's Secret, as older releases did.
    pub(super) fn put_in_one(&self, secret: TlsSecret) {
        self.state().store(SECRET, Some(secret));
    }

    pub(super) fn next_write(&self, fate: Fate) {
        self.state().fate = fate;
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        if parts.uri.path().ends_with("/asyncactors") {
            assert_eq!(parts.uri.query(), Some("dryRun=All"));
            return self.state().judge();
        }
        let path = parts.uri.path().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default();
        self.state().answer(&parts.method, name, &body)
    }
}

impl State {
    fn judge(&mut self) -> Response<Body> {
        self.tries += 1;
        let text = "admission webhook \"validate.asyncactors.asya.sh\" denied the request: no";
        let warning = "299 - \"metadata.namespace: targets in asya-system cannot be bound\"";
        let (code, warning, text) = match self.webhook {
            Webhook::Refuses => (422, None, text),
            Webhook::Warns => (201, Some(warning), "{}"),
            Webhook::Unreached => (201, None, "{}"),
        };
        let mut answer = Response::builder().status(code);
        if let Some(warning) = warning {
            answer = answer.header("warning", warning);
        }
        answer.body(Body::from(text.as_bytes().to_vec())).unwrap()
    }

    fn answer(&mut self, method: &Method, name: &str, body: &[u8]) -> Response<Body> {
        if *method == Method::GET {
            self.reads += usize::from(name == SECRET);
            return match self.secrets.get(name) {
                Some(secret) => Response::new(Body::from(serde_json::to_vec(secret).unwrap())),
                None => failure(404),
            };
        }
        let wanted: TlsSecret = serde_json::from_slice(body).unwrap();
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let fate = if name == SECRET {
            std::mem::take(&mut self.fate)
        } else {
            Fate::Stored
        };
        match &fate {
            Fate::Raced(other) => self.store_both((**other).clone()),
            Fate::Refused(code) => return failure(*code),
            Fate::Stored | Fate::LosesAnswer => {}
        }
        let version = |secret: &TlsSecret| secret.metadata.resource_version.clone();
        match self.secrets.get(&name) {
            Some(_) if *method == Method::POST => return failure(409),
            None if *method == Method::PUT => return failure(404),
            Some(secret) if version(secret) != version(&wanted) => return failure(409),
            _ => {}
        }
        self.writes += usize::from(name == SECRET);
        self.store(&name, Some(wanted));
        match fate {
            Fate::LosesAnswer => failure(504),
            _ => Response::new(Body::from(
                serde_json::to_vec(&self.secrets[&name]).unwrap(),
            )),
        }
    }

    fn store_both(&mut self, secret: Option<TlsSecret>) {
        let mut keys = TlsSecret::default();
        let secret = secret.map(|mut secret| {
            (secret.data, keys.data) = secret.data.split();
            secret
        });
        let is_there = secret.is_some();
        self.store(SECRET, secret);
        self.store(KEYS, is_there.then_some(keys));
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
