//! The review endpoints. They reject bad requests before the handler, and catch panics, so that no review takes the
//! process down (ADM-1, ADM-3, AVL-6).

use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use asya_process::serve::Activity;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tracing::error;

use crate::body_budget::{BodyBudget, BodyReservation, Shed};
use crate::events::PodEvent;
use crate::metrics::{Metrics, ReviewLabels};
use crate::outcome::{EndpointPath, ReviewOutcome, ReviewReason, ReviewResult, operation};
use crate::review::AdmissionRequest;

/// Maximum body size: an UPDATE contains the object twice.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Memory that all in-flight bodies may take together, while they are read or decoded (ADM-22).
const MAX_BODIES_BYTES: usize = 32 << 20;
/// Bytes that a JSON value may take when decoded; an empty container of a pod is the worst case.
const DECODED_VALUE_BYTES: usize = 192;
/// How long a request may take to arrive in full. The API server waits for 5 s.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// A larger body takes milliseconds to decode, so it is reviewed on its own thread, one at a time; other reviews and
/// probes do not wait for it (ADM-22). Reviews of pods rarely exceed 50 KiB.
const MAX_INLINE_BYTES: usize = 256 << 10;

/// Reviews requests, without I/O and without waiting (ADM-7).
pub trait ReviewHandler: Send + Sync + 'static {
    fn handle(&self, path: EndpointPath, request: &AdmissionRequest<'_>) -> ReviewOutcome;

    /// Hands an Event to its writer, without waiting.
    fn publish(&self, event: PodEvent);
}

struct ReviewServer<H> {
    handler: H,
    metrics: Arc<Metrics>,
    bodies: BodyBudget,
    /// Its one permit is held while a large body is decoded.
    large_body: Arc<Semaphore>,
}

impl<H: ReviewHandler> ReviewServer<H> {
    fn new(handler: H, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            handler,
            metrics,
            bodies: BodyBudget::new(MAX_BODIES_BYTES),
            large_body: Arc::new(Semaphore::new(1)),
        })
    }
}

/// The routes of all review paths.
pub fn routes<H: ReviewHandler>(review_handler: H, metrics: Arc<Metrics>) -> Router {
    routes_of(ReviewServer::new(review_handler, metrics))
}

fn routes_of<H: ReviewHandler>(server: Arc<ReviewServer<H>>) -> Router {
    let mut router = Router::new();
    for path in EndpointPath::ALL {
        let handler = move |State(server): State<Arc<ReviewServer<H>>>, request: HttpRequest| async move {
            server.serve(path, request).await
        };
        router = router.route(path.label(), post(handler));
    }
    router.with_state(server)
}

/// A request that is rejected before it reaches the handler.
struct Rejection {
    status: StatusCode,
    reason: ReviewReason,
    text: String,
}

impl Rejection {
    fn new(status: StatusCode, reason: ReviewReason, text: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            text: text.into(),
        }
    }

    fn bad_request(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, ReviewReason::BadRequest, text)
    }
}

impl<H: ReviewHandler> ReviewServer<H> {
    async fn serve(self: &Arc<Self>, path: EndpointPath, request: HttpRequest) -> Response {
        match self.review(path, request).await {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(rejection) => {
                self.metrics.reviewed(&ReviewLabels {
                    path,
                    operation: operation(""),
                    result: ReviewResult::Error,
                    reason: rejection.reason,
                    dry_run: false,
                });
                (rejection.status, rejection.text).into_response()
            }
        }
    }

    async fn review(
        self: &Arc<Self>,
        path: EndpointPath,
        request: HttpRequest,
    ) -> Result<Vec<u8>, Rejection> {
        let (parts, body) = request.into_parts();
        let length = check_head(&parts.headers)?;
        let _in_flight = self.metrics.begin(path);
        let peer = parts.extensions.get::<Activity>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |activity| activity.peer);
        // Held until the response is encoded.
        let memory = self.bodies.register(peer);
        let received = async {
            let received = timeout(BODY_TIMEOUT, read(body, length, &memory)).await;
            let body = received.map_err(too_slow)??;
            let permit = self.large_body_permit(&body).await;
            Ok((body, permit))
        };
        let (body, permit) = tokio::select! {
            biased;
            () = memory.wait_until_shed() => Err(busy(Shed)),
            received = received => received,
        }?;
        self.metrics.review_bytes(body.len());
        let Some(permit) = permit else {
            return self.answer(path, &body);
        };
        let server = Arc::clone(self);
        let answered = spawn_blocking(move || {
            // Decoding does not end when the client leaves.
            let _held = (memory, permit);
            server.answer(path, &body)
        });
        answered
            .await
            .unwrap_or_else(|_| Err(internal("an internal error")))
    }

    /// Waits until no other large body is being decoded; `None` if this one is small.
    async fn large_body_permit(&self, body: &[u8]) -> Option<OwnedSemaphorePermit> {
        if body.len() <= MAX_INLINE_BYTES {
            return None;
        }
        Arc::clone(&self.large_body).acquire_owned().await.ok()
    }

    /// Decodes and handles a review, and encodes the response.
    fn answer(&self, path: EndpointPath, body: &[u8]) -> Result<Vec<u8>, Rejection> {
        let request = AdmissionRequest::read(body)
            .map_err(|error| Rejection::bad_request(StatusCode::BAD_REQUEST, error.to_string()))?;
        let outcome = self.handle_or_fall_back(path, &request);
        self.metrics.reviewed(&ReviewLabels {
            path,
            operation: operation(&request.operation),
            result: outcome.result(),
            reason: outcome.reason,
            dry_run: request.is_dry_run(),
        });
        if let Some(patch) = &outcome.response.patch {
            self.metrics.patch_bytes(patch.len());
        }
        let response = outcome
            .response
            .write(&request.uid)
            .map_err(|_| internal("cannot encode the response"))?;
        if let Some(event) = outcome.event {
            self.handler.publish(event);
        }
        Ok(response)
    }

    /// Handles the request; a panic affects only this request.
    fn handle_or_fall_back(
        &self,
        path: EndpointPath,
        request: &AdmissionRequest<'_>,
    ) -> ReviewOutcome {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.handler.handle(path, request)));
        outcome.unwrap_or_else(|_| {
            error!(path = path.label(), "a review panicked: this is a bug");
            ReviewOutcome {
                response: path.fallback_response("an internal error"),
                reason: ReviewReason::InternalError,
                event: None,
            }
        })
    }
}

/// Checks the headers; returns the announced content length.
fn check_head(headers: &HeaderMap) -> Result<Option<usize>, Rejection> {
    let media = headers.get(header::CONTENT_TYPE);
    let media = media
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        let text = "expected content-type application/json";
        return Err(Rejection::bad_request(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            text,
        ));
    }
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    Ok(length)
}

fn too_large() -> Rejection {
    let text = "expected a body of at most 8 MiB";
    Rejection::bad_request(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn too_slow(_: Elapsed) -> Rejection {
    let text = "the request did not arrive within 2 s";
    Rejection::new(
        StatusCode::SERVICE_UNAVAILABLE,
        ReviewReason::Deadline,
        text,
    )
}

fn internal(text: &str) -> Rejection {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Rejection::new(status, ReviewReason::InternalError, text)
}

fn busy(_: Shed) -> Rejection {
    let text = "too many bytes of reviews in flight";
    Rejection::new(StatusCode::SERVICE_UNAVAILABLE, ReviewReason::Busy, text)
}

/// Reads the whole body. Reserves memory as bytes arrive, because announcing a large length costs a client nothing.
async fn read(
    body: Body,
    length: Option<usize>,
    memory: &BodyReservation,
) -> Result<Vec<u8>, Rejection> {
    let expected = length.unwrap_or(MAX_BODY_BYTES);
    let (mut body, mut read, mut reserved, mut decoded) = (body, Vec::new(), 0, 0);
    while let Some(frame) = body.frame().await {
        let closed = |_| {
            Rejection::bad_request(
                StatusCode::BAD_REQUEST,
                "the connection closed before the end of the body",
            )
        };
        let Ok(data) = frame.map_err(closed)?.into_data() else {
            continue;
        };
        let needed = read.len() + data.len();
        if needed > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if needed > reserved {
            let grown = needed.max(expected.min(2 * reserved));
            memory.reserve(grown - reserved).await.map_err(busy)?;
            reserved = grown;
            read.reserve_exact(reserved - read.len());
        }
        decoded += values(&data) * DECODED_VALUE_BYTES;
        read.extend_from_slice(&data);
    }
    if decoded > MAX_BODIES_BYTES - reserved {
        let text = "the body has too many values";
        return Err(Rejection::bad_request(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    memory.reserve(decoded).await.map_err(busy)?;
    Ok(read)
}

/// Upper bound on the number of values in a JSON text.
fn values(text: &[u8]) -> usize {
    let starts = text
        .iter()
        .filter(|byte| matches!(byte, b'{' | b'[' | b','));
    starts.count()
}

#[cfg(test)]
mod tests;
