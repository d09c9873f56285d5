//! Adds the request to the errors of a client: connection errors say neither what was called nor, in their outermost
//! text, what went wrong.

use std::error::Error;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path}: {}", text_of(source.as_ref()))]
pub struct RequestError {
    method: Method,
    path: String,
    source: BoxError,
}

/// The error's text and those of its sources. An error that repeats its source's text contributes once.
fn text_of(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// Wraps a client's service, so that its errors are [`RequestError`]s.
#[derive(Clone, Copy, Debug)]
pub struct NamedErrorsLayer;

impl<S> Layer<S> for NamedErrorsLayer {
    type Service = NamedErrors<S>;

    fn layer(&self, inner: S) -> Self::Service {
        NamedErrors(inner)
    }
}

/// A client's service, whose errors name the request.
#[derive(Clone, Debug)]
pub struct NamedErrors<S>(S);

impl<S> Service<Request<Body>> for NamedErrors<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let response = self.0.call(request);
        Box::pin(async move {
            response.await.map_err(|error| {
                RequestError {
                    method,
                    path,
                    source: error.into(),
                }
                .into()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::{Body, ClientBuilder};
    use kube::{Api, Client};
    use tower::{BoxError, service_fn};

    use super::NamedErrorsLayer;
    use crate::fault::Fenced;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Connect(#[source] std::io::Error);

    /// FW-31: an error of the connection is logged with the call, and with its cause.
    #[tokio::test]
    async fn error_of_a_connection_names_the_request_and_the_cause() {
        type Cause = fn() -> BoxError;
        let cases: [(Cause, &str, bool); 2] = [
            (
                || Connect(std::io::ErrorKind::ConnectionRefused.into()).into(),
                "client error (Connect): connection refused",
                false,
            ),
            (
                || Fenced.into(),
                "not the leader (any more): nothing was written",
                true,
            ),
        ];
        for (error, text, is_fenced) in cases {
            let broken = service_fn(move |_: Request<Body>| async move {
                Err::<Response<Body>, BoxError>(error())
            });
            let client: Client = ClientBuilder::new(broken, "default")
                .with_layer(&NamedErrorsLayer)
                .build();
            let api: Api<ConfigMap> = Api::default_namespaced(client);
            let error = api.get("scripts").await.unwrap_err();
            let expected = format!("GET /api/v1/namespaces/default/configmaps/scripts: {text}");
            assert!(error.to_string().ends_with(&expected), "{error}");
            assert_eq!(Fenced::is_cause_of(&error), is_fenced, "{error}");
        }
    }
}
