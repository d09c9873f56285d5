//! The identity that applies children and writes targets: the operator's own or, with `--impersonate`, a
//! `ServiceAccount` in their namespace with the permissions that its users granted (FW-27, SAFE-34).

use std::sync::Arc;

use asya_shared::names::IMPERSONATED_SERVICE_ACCOUNT;
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::client::Body;
use kube::core::Status;
use kube::{Api, Client};

use crate::fault::{Error, Fault, Reason, Requeue, StepError};

const IMPERSONATE_USER: &str = "impersonate-user";

/// Selects the identity with which the operator writes in a namespace.
#[derive(Clone)]
pub struct Impersonation {
    /// The operator's own client.
    pub operator_client: Client,
    /// With impersonation, the installation's namespace: the only one in which the operator acts as itself.
    exempt_namespace: Option<Arc<str>>,
}

impl Impersonation {
    /// Writes as `operator_client` or, if a namespace is given, as an account of the object's namespace everywhere
    /// except there.
    pub fn new(operator_client: Client, exempt_namespace: Option<&str>) -> Self {
        Self {
            operator_client,
            exempt_namespace: exempt_namespace.map(Into::into),
        }
    }

    fn impersonates(&self, namespace: &str) -> bool {
        let exempt = self.exempt_namespace.as_deref();
        exempt.is_some_and(|exempt| exempt != namespace)
    }

    /// Returns the client that applies the children in a namespace. It shares the connections of the operator's own
    /// client.
    pub fn client(&self, namespace: &str) -> Client {
        let user = format!("system:serviceaccount:{namespace}:{IMPERSONATED_SERVICE_ACCOUNT}");
        // A namespace's name is always a valid header value.
        match HeaderValue::from_str(&user) {
            Ok(user) if self.impersonates(namespace) => impersonating(&self.operator_client, user),
            _ => self.operator_client.clone(),
        }
    }

    /// Checks that the account exists, because the API server also impersonates a missing one.
    ///
    /// # Errors
    /// If the account is missing, or the API server fails.
    pub async fn check(&self, namespace: &str) -> Result<(), StepError> {
        if !self.impersonates(namespace) {
            return Ok(());
        }
        let exists = self.account(namespace).await.map_err(Error::Api)?;
        exists.then_some(()).ok_or_else(|| {
            StepError::Fault(Fault {
            reason: Reason::NotAuthorized,
            message: format!(
                "ServiceAccount {namespace}/{IMPERSONATED_SERVICE_ACCOUNT} does not exist; with controller.impersonate this actor's objects \
                 are applied as this account: create it and bind it to a Role that may apply them"
            ),
            requeue: Requeue::SlowBackoff,
        })
        })
    }

    /// Returns the client that writes to targets in a namespace, after checking that the account exists: the API server
    /// also impersonates a missing one (SAFE-34).
    ///
    /// # Errors
    /// If the API server fails; 403, as for an account without permissions, if the account does not exist.
    pub async fn client_for(&self, namespace: &str) -> Result<Client, kube::Error> {
        if self.impersonates(namespace) && !self.account(namespace).await? {
            let text = format!(
                "ServiceAccount {namespace}/{IMPERSONATED_SERVICE_ACCOUNT} does not exist; with controller.impersonate targets of bindings \
                 are written as this account: create it and bind it to a Role with the rights that docs/security.md \
                 lists"
            );
            let forbidden = Status::failure(&text, "Forbidden").with_code(403);
            return Err(kube::Error::Api(forbidden.boxed()));
        }
        Ok(self.client(namespace))
    }

    async fn account(&self, namespace: &str) -> Result<bool, kube::Error> {
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.operator_client.clone(), namespace);
        Ok(accounts
            .get_metadata_opt(IMPERSONATED_SERVICE_ACCOUNT)
            .await?
            .is_some())
    }
}

fn impersonating(own: &Client, user: HeaderValue) -> Client {
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
    fn server(users: &Arc<Mutex<Vec<Option<String>>>>) -> Client {
        let users = Arc::clone(users);
        let service = tower::service_fn(move |request: Request<Body>| {
            let user = request.headers().get(IMPERSONATE_USER);
            let user = user.map(|user| user.to_str().unwrap().to_owned());
            users.lock().unwrap().push(user);
            let text =
                r#"{"status": "Failure", "code": 404, "message": "none", "reason": "NotFound"}"#;
            let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
            *response.status_mut() = StatusCode::NOT_FOUND;
            std::future::ready(Ok::<_, BoxError>(response))
        });
        Client::new(service, "default")
    }

    async fn send_request(client: Client) {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "team");
        accounts.get_opt("any").await.unwrap();
    }

    /// FW-27
    #[tokio::test]
    async fn children_are_applied_as_their_namespaces_account_only_with_impersonation() {
        let users = Arc::default();
        let own = server(&users);
        send_request(Impersonation::new(own.clone(), None).client("team")).await;
        let impersonation = Impersonation::new(own, Some("asya-system"));
        send_request(impersonation.client("team")).await;
        send_request(impersonation.client("asya-system")).await;
        let account = "system:serviceaccount:team:asya-applier".to_owned();
        assert_eq!(*users.lock().unwrap(), [None, Some(account), None]);
    }

    /// FW-27
    #[tokio::test]
    async fn missing_account_is_detected_and_named() {
        let users = Arc::default();
        let own = server(&users);
        Impersonation::new(own.clone(), None)
            .check("team")
            .await
            .unwrap();
        assert!(users.lock().unwrap().is_empty(), "no request is needed");
        let fault = Impersonation::new(own, Some("asya-system"))
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
        assert_eq!(*users.lock().unwrap(), [None]);
    }

    /// SAFE-34
    #[tokio::test]
    async fn targets_are_not_written_while_the_account_is_missing() {
        let users = Arc::default();
        let own = server(&users);
        assert!(
            Impersonation::new(own.clone(), None)
                .client_for("team")
                .await
                .is_ok()
        );
        assert!(users.lock().unwrap().is_empty(), "no request is needed");
        let impersonation = Impersonation::new(own, Some("asya-system"));
        let error = impersonation
            .client_for("team")
            .await
            .map(drop)
            .unwrap_err();
        let fault = StepError::of_write("Deployment/phi", error)
            .fault()
            .unwrap();
        assert!(
            fault.message.contains("team/asya-applier does not exist"),
            "{}",
            fault.message
        );
        assert!(impersonation.client_for("asya-system").await.is_ok());
    }
}
