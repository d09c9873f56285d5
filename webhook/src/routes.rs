//! The paths of reviews: what is refused before anybody decides, and that nobody's fault takes the
//! process with it (ADM-1, ADM-3, AVL-6).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tracing::error;

use crate::events::Told;
use crate::metrics::{Ended, Metrics, Reviewed};
use crate::outcome::{Path, Reason, Verdict, operation};
use crate::review::Request;

/// Largest body: an UPDATE carries an object twice.
const LARGEST: usize = 8 << 20;
/// Reviews that are answered at once; each may hold a body.
const AT_ONCE: usize = 256;
/// How long one waits to be among them.
const WAIT: Duration = Duration::from_secs(1);
/// By then a request is there as a whole, or it is given up. The API server waits for 5 s.
const DEADLINE: Duration = Duration::from_secs(2);

/// Who judges requests. It calls nobody and waits for nobody (ADM-7).
pub trait Judge: Send + Sync + 'static {
    /// The verdict on a request that came in by this path.
    fn judge(&self, path: Path, request: &Request<'_>) -> Verdict;

    /// Leaves what users are to be told to somebody, and waits for nothing.
    fn tell(&self, told: Told);
}

struct Desk<J> {
    judge: J,
    metrics: Arc<Metrics>,
    places: Semaphore,
}

/// All paths of reviews.
pub fn routes<J: Judge>(judge: J, metrics: Arc<Metrics>) -> Router {
    let desk = Arc::new(Desk {
        judge,
        metrics,
        places: Semaphore::new(AT_ONCE),
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

/// Why there is no review to judge.
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
        check_head(&head.headers)?;
        let received = async {
            let place = self.place().await?;
            let in_flight = self.metrics.begin(path);
            Ok((read(body).await?, place, in_flight))
        };
        let received = timeout(DEADLINE, received).await;
        let too_slow = |_| {
            let text = "the request did not arrive within 2 s";
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, Reason::Deadline, text)
        };
        let (body, _place, _in_flight) = received.map_err(too_slow)??;
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
            let text = "the answer cannot be written";
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, Reason::Panicked, text)
        };
        let answer = verdict.answer.write(&request.uid).map_err(unwritten)?;
        if let Some(told) = verdict.told {
            self.judge.tell(told);
        }
        Ok(answer)
    }

    async fn place(&self) -> Result<SemaphorePermit<'_>, Refused> {
        match timeout(WAIT, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::Busy,
                "too many reviews at once",
            )),
        }
    }

    /// A fault of ours while judging costs this request its verdict, and nobody else anything.
    fn judge(&self, path: Path, request: &Request<'_>) -> Verdict {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge.judge(path, request)));
        judged.unwrap_or_else(|_| {
            error!(path = path.label(), "a review was given up: this is a bug");
            Verdict {
                answer: path.without_verdict("an internal fault"),
                reason: Reason::Panicked,
                told: None,
            }
        })
    }
}

fn check_head(headers: &HeaderMap) -> Result<(), Refused> {
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
    Ok(())
}

fn too_large() -> Refused {
    let text = "expected a body of at most 8 MiB";
    Refused::bad(StatusCode::PAYLOAD_TOO_LARGE, text)
}

/// The whole body; no more is read than may be there.
async fn read(body: Body) -> Result<Bytes, Refused> {
    axum::body::to_bytes(body, LARGEST).await.map_err(|error| {
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(it) = cause {
            if it.is::<http_body_util::LengthLimitError>() {
                return too_large();
            }
            cause = it.source();
        }
        Refused::bad(StatusCode::BAD_REQUEST, "the body broke off")
    })
}

#[cfg(test)]
mod tests;
