//! Failed requests as one line that says what to do.

use std::error::Error;

use crate::answer::Failure;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiFailure {
    /// What is wrong and what to do.
    pub text: String,
}

impl ApiFailure {
    /// `action` says what was tried, for example `list pods in namespace models`.
    pub fn new(action: &str, server: &str, error: kube::Error) -> Self {
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
        Self { text }
    }
}

fn of_response(action: &str, code: u16, message: &str) -> String {
    match code {
        401 => "the API server does not accept your credentials; log in again".to_owned(),
        403 => format!("you may not {action}; ask an administrator for that permission"),
        404 if message.starts_with("namespaces ") => {
            format!("cannot {action}: the namespace does not exist; choose another with -n")
        }
        404 if action.contains("asya.sh") => format!(
            "cannot {action}: AsyncActors are not installed in this cluster; install the operator's chart, or choose \
             another --context"
        ),
        404 => format!("cannot {action}: {message}"),
        409 | 422 => format!("the API server rejects to {action}: {message}"),
        _ => format!("cannot {action}: {message} ({code})"),
    }
}

impl From<ApiFailure> for Failure {
    fn from(failure: ApiFailure) -> Self {
        Self::new(failure.text)
    }
}

/// The cause at the bottom, for example that a connection was refused: those above only say that a request failed.
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
