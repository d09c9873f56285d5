//! The review endpoints: reject bad requests before they reach a judge, and contain panics, so that no review takes the
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
use tokio::time::timeout;
use tracing::error;

use crate::bodies::{Bodies, GivenUp, Memory};
use crate::events::Told;
use crate::metrics::{Metrics, Reviewed};
use crate::outcome::{Ended, Path, Reason, Verdict, operation};
use crate::review::Request;

/// Maximum body size: an UPDATE carries the object twice.
const LARGEST: usize = 8 << 20;
/// Memory that all in-flight bodies may take together, while they are read or decoded (ADM-22).
const BODIES: usize = 32 << 20;
/// Bytes that a JSON value may take when decoded; an empty container of a pod is the worst case.
const DECODED: usize = 192;
/// How long a request may take to arrive in full. The API server waits for 5 s.
const DEADLINE: Duration = Duration::from_secs(2);

/// Judges requests, without I/O and without waiting (ADM-7).
pub trait Judge: Send + Sync + 'static {
    fn judge(&self, path: Path, request: &Request<'_>) -> Verdict;

    /// Hands an Event to its writer, without waiting.
    fn tell(&self, told: Told);
}

struct Desk<J> {
    judge: J,
    metrics: Arc<Metrics>,
    bodies: Bodies,
}

/// The routes of all review paths.
pub fn routes<J: Judge>(judge: J, metrics: Arc<Metrics>) -> Router {
    let desk = Arc::new(Desk {
        judge,
        metrics,
        bodies: Bodies::new(BODIES),
    });
    let mut router = Router::new();
    for path in Path::ALL {
        let handler = move |State(desk): State<Arc<Desk<J>>>, request: HttpRequest| async move {
            desk.take(path, request).await
        };
        router = router.route(path.label(), post(handler));
    }
    router.with_state(desk)
}

/// A request that is rejected before it reaches the judge.
struct Refused {
    status: StatusCode,
    reason: Reason,
    text: String,
}

impl Refused {
    fn new(status: StatusCode, reason: Reason, text: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            text: text.into(),
        }
    }

    fn bad(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, Reason::BadRequest, text)
    }
}

impl<J: Judge> Desk<J> {
    async fn take(&self, path: Path, request: HttpRequest) -> Response {
        match self.review(path, request).await {
            Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
            Err(refused) => {
                self.metrics.reviewed(&Reviewed {
                    path,
                    operation: operation(""),
                    ended: Ended::Error,
                    reason: refused.reason,
                    dry_run: false,
                });
                (refused.status, refused.text).into_response()
            }
        }
    }

    async fn review(&self, path: Path, request: HttpRequest) -> Result<Vec<u8>, Refused> {
        let (head, body) = request.into_parts();
        let length = check_head(&head.headers)?;
        let _in_flight = self.metrics.begin(path);
        let peer = head.extensions.get::<Activity>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |it| it.peer);
        // Held until the response is encoded.
        let memory = self.bodies.begin(peer);
        let received = async {
            tokio::select! {
                biased;
                () = memory.given_up() => Err(busy(GivenUp)),
                read = read(body, length, &memory) => read,
            }
        };
        let received = timeout(DEADLINE, received).await;
        let too_slow = |_| {
            let text = "the request did not arrive within 2 s";
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, Reason::Deadline, text)
        };
        let body = received.map_err(too_slow)??;
        self.metrics.review_bytes(body.len());
        let request = Request::read(&body)
            .map_err(|error| Refused::bad(StatusCode::BAD_REQUEST, error.to_string()))?;
        let verdict = self.judge(path, &request);
        self.metrics.reviewed(&Reviewed {
            path,
            operation: operation(&request.operation),
            ended: verdict.ended(),
            reason: verdict.reason,
            dry_run: request.is_dry_run(),
        });
        if let Some(patch) = &verdict.answer.patch {
            self.metrics.patch_bytes(patch.len());
        }
        let unwritten = |_| {
            let text = "cannot encode the response";
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, Reason::Panicked, text)
        };
        let answer = verdict.answer.write(&request.uid).map_err(unwritten)?;
        if let Some(told) = verdict.told {
            self.judge.tell(told);
        }
        Ok(answer)
    }

    /// A panic while judging costs only this request its verdict.
    fn judge(&self, path: Path, request: &Request<'_>) -> Verdict {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge.judge(path, request)));
        judged.unwrap_or_else(|_| {
            error!(path = path.label(), "a review panicked: this is a bug");
            Verdict {
                answer: path.without_verdict("an internal error"),
                reason: Reason::Panicked,
                told: None,
            }
        })
    }
}

/// Checks the headers; returns the announced content length.
fn check_head(headers: &HeaderMap) -> Result<Option<usize>, Refused> {
    let media = headers.get(header::CONTENT_TYPE);
    let media = media.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        let text = "expected content-type application/json";
        return Err(Refused::bad(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > LARGEST) {
        return Err(too_large());
    }
    Ok(length)
}

fn too_large() -> Refused {
    let text = "expected a body of at most 8 MiB";
    Refused::bad(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn busy(_: GivenUp) -> Refused {
    let text = "too many bytes of reviews in flight";
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, Reason::Busy, text)
}

/// Reads the whole body. Memory is reserved as bytes arrive, because announcing a large length costs a client nothing.
async fn read(body: Body, length: Option<usize>, memory: &Memory) -> Result<Vec<u8>, Refused> {
    let most = length.unwrap_or(LARGEST);
    let (mut body, mut read, mut room) = (body, Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let broke = |_| {
            Refused::bad(
                StatusCode::BAD_REQUEST,
                "the connection closed before the end of the body",
            )
        };
        let Ok(data) = frame.map_err(broke)?.into_data() else {
            continue;
        };
        let wanted = read.len() + data.len();
        if wanted > LARGEST {
            return Err(too_large());
        }
        if wanted > room {
            let grown = wanted.max(most.min(2 * room));
            memory.take(grown - room).await.map_err(busy)?;
            room = grown;
            read.reserve_exact(room - read.len());
        }
        read.extend_from_slice(&data);
    }
    let decoded = values(&read) * DECODED;
    if decoded > BODIES - room {
        let text = "the body has too many values";
        return Err(Refused::bad(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    memory.take(decoded).await.map_err(busy)?;
    Ok(read)
}

/// Upper bound on the number of values in a JSON text.
fn values(text: &[u8]) -> usize {
    let starts = text.iter().filter(|it| matches!(it, b'{' | b'[' | b','));
    starts.count()
}

#[cfg(test)]
mod tests;
