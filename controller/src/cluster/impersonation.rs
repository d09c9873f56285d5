//! The identity that applies children and writes targets: the operator's own or, with `--impersonate`, a
//! `ServiceAccount` in their namespace with the rights that its users granted (FW-27, SAFE-34).

use std::sync::Arc;

use asya_shared::names::APPLIER;
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::client::Body;
use kube::core::Status;
use kube::{Api, Client};

use crate::fault::{Error, Fault, Reason, Requeue, StepError};

const IMPERSONATE_USER: &str = "impersonate-user";

/// Selects the identity that applies children.
#[derive(Clone)]
pub struct Applier {
    /// The operator's own client.
    pub own: Client,
    /// With impersonation, the installation's namespace: the only one in which the operator acts as itself.
    impersonates_outside: Option<Arc<str>>,
}

impl Applier {
    /// Applies children as `own` or, if a namespace is given, as an account of the children's namespace everywhere but
    /// there.
    pub fn new(own: Client, impersonates_outside: Option<&str>) -> Self {
        Self {
            own,
            impersonates_outside: impersonates_outside.map(Into::into),
        }
    }

    fn impersonates(&self, namespace: &str) -> bool {
        let home = self.impersonates_outside.as_deref();
        home.is_some_and(|home| home != namespace)
    }

    /// Returns the client that applies the children in a namespace. It shares the connections of the operator's own
    /// client.
    pub fn client(&self, namespace: &str) -> Client {
        let user = format!("system:serviceaccount:{namespace}:{APPLIER}");
        // A namespace's name is always a valid header value.
        match HeaderValue::from_str(&user) {
            Ok(user) if self.impersonates(namespace) => acting_as(&self.own, user),
            _ => self.own.clone(),
        }
    }

    /// Checks that the account exists, because the API server also impersonates one that does not.
    ///
    /// # Errors
    /// When the account is missing, or the API server fails.
    pub async fn check(&self, namespace: &str) -> Result<(), StepError> {
        if !self.impersonates(namespace) {
            return Ok(());
        }
        let found = self.account(namespace).await.map_err(Error::Api)?;
        found.then_some(()).ok_or_else(|| {
            StepError::Refused(Fault {
            reason: Reason::NotAuthorized,
            message: format!(
                "ServiceAccount {namespace}/{APPLIER} does not exist; with controller.impersonate this actor's objects \
                 are applied as this account: create it and bind it to a Role that may apply them"
            ),
            retry: Requeue::SlowBackoff,
        })
        })
    }

    /// Returns the client that writes to targets in a namespace, once the account is known to exist: the API server
    /// also impersonates one that does not (SAFE-34).
    ///
    /// # Errors
    /// When the API server fails; 403, as for an account without rights, when the account does not exist.
    pub async fn writer(&self, namespace: &str) -> Result<Client, kube::Error> {
        if self.impersonates(namespace) && !self.account(namespace).await? {
            let text = format!(
                "ServiceAccount {namespace}/{APPLIER} does not exist; with controller.impersonate targets of bindings \
                 are written as this account: create it and bind it to a Role with the rights that docs/security.md \
                 lists"
            );
            let refused = Status::failure(&text, "Forbidden").with_code(403);
            return Err(kube::Error::Api(refused.boxed()));
        }
        Ok(self.client(namespace))
    }

    async fn account(&self, namespace: &str) -> Result<bool, kube::Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.own.clone(), namespace);
        Ok(accounts.get_metadata_opt(APPLIER).await?.is_some())
    }
}

fn acting_as(own: &Client, user: HeaderValue) -> Client {
    let (own, namespace) = (own.clone(), own.default_namespace().to_owned());
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(IMPERSONATE_USER, user.clone());
        let own = own.clone();
        async move { own.send(request).await }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Response, StatusCode};
    use tower::BoxError;

    use super::*;

    /// A server without accounts, which records the impersonated user of each request.
    fn server(asked: &Arc<Mutex<Vec<Option<String>>>>) -> Client {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let user = request.headers().get(IMPERSONATE_USER);
            let user = user.map(|user| user.to_str().unwrap().to_owned());
            asked.lock().unwrap().push(user);
            let text =
                r#"{"status": "Failure", "code": 404, "message": "none", "reason": "NotFound"}"#;
            let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
            *response.status_mut() = StatusCode::NOT_FOUND;
            std::future::ready(Ok::<_, BoxError>(response))
        });
        Client::new(service, "default")
    }

    async fn ask(client: Client) {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "team");
        accounts.get_opt("any").await.unwrap();
    }

    /// FW-27
    #[tokio::test]
    async fn children_are_applied_as_their_namespaces_account_only_with_impersonation() {
        let asked = Arc::default();
        let own = server(&asked);
        ask(Applier::new(own.clone(), None).client("team")).await;
        let applier = Applier::new(own, Some("asya-system"));
        ask(applier.client("team")).await;
        ask(applier.client("asya-system")).await;
        let account = "system:serviceaccount:team:asya-applier".to_owned();
        assert_eq!(*asked.lock().unwrap(), [None, Some(account), None]);
    }

    /// FW-27
    #[tokio::test]
    async fn missing_account_is_detected_and_named() {
        let asked = Arc::default();
        let own = server(&asked);
        Applier::new(own.clone(), None).check("team").await.unwrap();
        assert!(asked.lock().unwrap().is_empty(), "nobody was to be asked");
        let fault = Applier::new(own, Some("asya-system"))
            .check("team")
            .await
            .unwrap_err()
            .fault()
            .unwrap();
        assert_eq!(fault.reason, Reason::NotAuthorized);
        assert!(
            fault.message.contains("team/asya-applier"),
            "{}",
            fault.message
        );
        assert_eq!(*asked.lock().unwrap(), [None]);
    }

    /// SAFE-34
    #[tokio::test]
    async fn targets_are_not_written_while_the_account_is_missing() {
        let asked = Arc::default();
        let own = server(&asked);
        assert!(Applier::new(own.clone(), None).writer("team").await.is_ok());
        assert!(asked.lock().unwrap().is_empty(), "nobody was to be asked");
        let applier = Applier::new(own, Some("asya-system"));
        let error = applier.writer("team").await.map(drop).unwrap_err();
        let refused = StepError::of_write("Deployment/phi", error);
        let fault = refused.fault().unwrap();
        assert!(
            fault.message.contains("team/asya-applier does not exist"),
            "{}",
            fault.message
        );
        assert!(applier.writer("asya-system").await.is_ok());
    }
}
