//! Failed requests, as one line that says what to do.

use std::error::Error;
use std::path::Path;

use kube::config::KubeconfigError;

use crate::answer::Failure;
use crate::manifests::parse_problem;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiFailure {
    /// The problem, and its remedy.
    pub text: String,
    /// Problems of the object itself, if the API server rejects the request because of them.
    pub rejection: Option<String>,
    /// Another client has written the object meanwhile: read it again and retry.
    pub is_conflict: bool,
    /// The API server knows the user, but refuses the request.
    pub is_forbidden: bool,
}

impl ApiFailure {
    /// `action` is what was attempted, such as `list pods in namespace models`.
    pub fn new(action: &str, server: &str, error: kube::Error) -> Self {
        let rejection = match &error {
            kube::Error::Api(status) if is_rejection(status.code, &status.message) => {
                Some(status.message.clone())
            }
            _ => None,
        };
        let is_conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
        let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
        let text = match error {
            kube::Error::Api(status) => of_response(action, status.code, &status.message),
            kube::Error::Auth(error) => {
                format!("no credentials for {server}: {error}; log in again")
            }
            kube::Error::SerdeError(error) => {
                format!(
                    "cannot {action}: {server} does not answer like a Kubernetes API server ({error})"
                )
            }
            error => format!(
                "cannot reach {server}: {}; check --context, your network, and `kubectl version`",
                innermost(&error)
            ),
        };
        Self {
            text,
            rejection,
            is_conflict,
            is_forbidden,
        }
    }
}

fn of_response(action: &str, code: u16, message: &str) -> String {
    match code {
        401 => "the API server does not accept your credentials; log in again".to_owned(),
        403 if !is_missing_permission(message) => {
            format!("the API server refused to {action}: {message}")
        }
        403 => format!("you may not {action}; ask an administrator for that permission"),
        404 if message.starts_with("namespaces ") => {
            format!("cannot {action}: the namespace does not exist; choose another with -n")
        }
        404 if action.contains("asya.sh") && !names_missing_object(message) => format!(
            "cannot {action}: AsyncActors are not installed in this cluster; install the operator's chart, or choose \
             another --context"
        ),
        404 => format!("cannot {action}: {message}"),
        409 | 422 => format!("the API server refused to {action}: {message}"),
        _ => format!("cannot {action}: {message} ({code})"),
    }
}

/// Whether the error is about a missing object; if the kind is unknown, the API server names no object.
fn names_missing_object(message: &str) -> bool {
    message.ends_with("\" not found")
}

/// Whether the API server, a webhook, a policy or a quota rejects the object itself. A webhook that cannot review a dry
/// run says nothing about the object.
fn is_rejection(code: u16, message: &str) -> bool {
    match code {
        403 => !is_missing_permission(message),
        400 | 413 | 422 => !message.contains("does not support dry run"),
        _ => false,
    }
}

/// Whether the user lacks a permission. Quotas and policies respond with the same code, but always with a reason.
fn is_missing_permission(message: &str) -> bool {
    let has_reason = message.contains(" is forbidden: ") || message.contains("denied");
    let names_permission = message.contains(" cannot ") && message.contains(" resource ");
    names_permission || !has_reason
}

impl From<ApiFailure> for Failure {
    fn from(failure: ApiFailure) -> Self {
        Self::new(failure.text)
    }
}

/// Why a kubeconfig cannot be used, where `given` is the one that the user has named.
pub fn unusable(error: &KubeconfigError, given: Option<&Path>) -> Failure {
    let given = given.map_or_else(
        || "kubeconfig".to_owned(),
        |it| format!("kubeconfig {}", it.display()),
    );
    Failure::new(match error {
        KubeconfigError::ReadConfig(error, path) => format!(
            "cannot read kubeconfig {}: {error}; pass --kubeconfig, or set KUBECONFIG",
            path.display()
        ),
        KubeconfigError::Parse(error) => format!(
            "{given}: {}; pass another --kubeconfig, or set KUBECONFIG",
            parse_problem(error)
        ),
        KubeconfigError::CurrentContextNotSet => {
            format!(
                "{given}: no context is chosen; pass --context, or use `kubectl config use-context`"
            )
        }
        KubeconfigError::LoadContext(name) => {
            format!("{given}: there is no context {name}; `kubectl config get-contexts` lists all")
        }
        KubeconfigError::ParseNoProxy(error) => format!("NO_PROXY: {error}; correct or unset it"),
        KubeconfigError::ParseProxyUrl(error) => {
            format!("proxy-url of {given}, or else HTTPS_PROXY: {error}; correct or unset it")
        }
        error => format!("{given}: {error}; pass --kubeconfig or --context, or set KUBECONFIG"),
    })
}

/// The innermost cause, such as a refused connection: the outer ones only say that a request failed.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_namespace_is_told_from_a_missing_crd() {
        let found = of_response(
            "create asyncactors.asya.sh in namespace models",
            404,
            "namespaces \"models\" not found",
        );
        assert_eq!(
            found,
            "cannot create asyncactors.asya.sh in namespace models: the namespace does not exist; choose another with -n"
        );
    }

    /// docs/cli.md: an error says what is wrong and what to do.
    #[test]
    fn missing_actor_is_told_from_a_missing_crd() {
        for (message, expected) in [
            (
                "asyncactors.asya.sh \"embed\" not found",
                "cannot patch asyncactors.asya.sh in namespace models: asyncactors.asya.sh \"embed\" not found",
            ),
            (
                "404 page not found",
                "cannot patch asyncactors.asya.sh in namespace models: AsyncActors are not installed in this cluster; \
                 install the operator's chart, or choose another --context",
            ),
        ] {
            let found = of_response(
                "patch asyncactors.asya.sh in namespace models",
                404,
                message,
            );
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn rejections_are_told_from_missing_permissions() {
        let rbac = "pods is forbidden: User \"u\" cannot create resource \"pods\" in API group \"\" in the namespace \"n\"";
        for (code, message, expected) in [
            (403, rbac, false),
            (403, "pods \"p\" is forbidden: exceeded quota: q", true),
            (403, "admission webhook \"w\" denied the request: no", true),
            (422, "AsyncActor.asya.sh \"a\" is invalid", true),
            (
                400,
                "admission webhook \"w\" does not support dry run",
                false,
            ),
            (404, "not found", false),
            (500, "failed calling webhook", false),
        ] {
            assert_eq!(is_rejection(code, message), expected, "{message}");
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        for (code, text) in [
            (
                403,
                "you may not list asyncactors.asya.sh in namespace models; ask an administrator for that permission",
            ),
            (
                401,
                "the API server does not accept your credentials; log in again",
            ),
            (
                404,
                "cannot list asyncactors.asya.sh in namespace models: AsyncActors are not installed in this cluster; \
                 install the operator's chart, or choose another --context",
            ),
            (
                500,
                "cannot list asyncactors.asya.sh in namespace models: boom (500)",
            ),
        ] {
            let found = of_response("list asyncactors.asya.sh in namespace models", code, "boom");
            assert_eq!(found, text);
        }
    }
}
