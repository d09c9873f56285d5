#![allow(clippy::unwrap_used)]

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::Client;
use kube::client::Body;
use tokio::time::{Sleep, sleep, timeout};
use tower::BoxError;

use super::*;

const WATCH: Duration = Duration::from_secs(50);
/// etcd keeps no older versions.
const COMPACTED: Duration = Duration::from_mins(5);

const GONE: &str = r#"{"type": "ERROR", "object": {"status": "Failure", "code": 410, "reason": "Expired", "message": "old"}}"#;

enum ResponseBody {
    Text(Bytes),
    /// Of a watch that delivers nothing until it ends.
    Quiet(Pin<Box<Sleep>>),
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Text(text) if text.is_empty() => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Self::Quiet(end) => end.as_mut().poll(context).map(|()| None),
        }
    }
}

/// An API server in a quiet cluster: its version grows by one per second, and no Event matches the selector.
struct Server {
    started: Instant,
    /// Lists that were requested: their limit, and whether they had a selector.
    lists: Mutex<Vec<(String, bool)>>,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let body = match server.respond(&query) {
                    Some(text) => ResponseBody::Text(text.into()),
                    None => ResponseBody::Quiet(Box::pin(sleep(WATCH))),
                };
                Ok::<_, BoxError>(Response::new(body))
            }
        });
        Client::new(service, "default")
    }

    /// Responds to a request; `None` for a watch that delivers nothing.
    fn respond(&self, query: &str) -> Option<String> {
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter(|(key, _)| *key == name);
            values.next().map(|(_, value)| value.to_owned())
        };
        let now = self.started.elapsed().as_secs();
        if parameter("watch").is_none() {
            let limit = parameter("limit").unwrap_or_default();
            let selected = parameter("fieldSelector").is_some();
            self.lists.lock().unwrap().push((limit, selected));
            let version = now + 1;
            return Some(format!(
                r#"{{"metadata": {{"resourceVersion": "{version}"}}, "items": []}}"#
            ));
        }
        let version: u64 = parameter("resourceVersion").unwrap().parse().unwrap();
        let compacted = now.saturating_sub(version) > COMPACTED.as_secs();
        compacted.then(|| format!("{GONE}\n"))
    }
}

fn event_watcher(client: Client) -> EventWatcher<CoreEvent> {
    EventWatcher {
        api: Api::all(client),
        fields: Some("type=Warning".to_owned()),
        page: 100,
        watch_seconds: 50,
    }
}

/// OPS-27
#[tokio::test(start_paused = true)]
async fn events_of_a_quiet_cluster_are_listed_once() {
    let server = Arc::new(Server {
        started: Instant::now(),
        lists: Mutex::default(),
    });
    let mut events = std::pin::pin!(events(event_watcher(server.client())));
    let mut received = Vec::new();
    let _ = timeout(Duration::from_hours(1), async {
        while let Some(event) = events.next().await {
            received.push(event.map(|event| name_of(&event)));
        }
    })
    .await;
    assert!(
        matches!(&received[..], [Ok("init"), Ok("done")]),
        "in an hour: {received:?}"
    );
    let lists = server.lists.lock().unwrap();
    let full = lists.iter().filter(|(limit, _)| limit != "1");
    assert_eq!(full.count(), 1, "{lists:?}");
    assert!(
        lists.len() <= 20,
        "one small list in three minutes: {lists:?}"
    );
    assert!(
        lists[1..].iter().all(|(_, selected)| !selected),
        "a selector would make a small list read them all: {lists:?}"
    );
}

fn name_of(event: &Event<CoreEvent>) -> &'static str {
    match event {
        Event::Init => "init",
        Event::InitApply(_) => "listed",
        Event::InitDone => "done",
        Event::Apply(_) => "applied",
        Event::Delete(_) => "deleted",
    }
}

/// OPS-27
#[tokio::test(start_paused = true)]
async fn compacted_version_causes_a_relist() {
    let version = Version::now("5".to_owned());
    let (event, next) = convert::<CoreEvent>(serde_json::from_str(GONE).unwrap(), version);
    assert!(matches!(event, Some(Err(Error::WatchError(_)))));
    assert!(next.is_none());
}

#[tokio::test(start_paused = true)]
async fn newer_of_the_observed_and_the_read_version_is_used() {
    let read_at = Instant::now();
    for (observed, read, expected) in [
        ("5", Some("9"), "9"),
        ("10", Some("9"), "10"),
        ("5", None, "5"),
        ("5", Some("none"), "5"),
    ] {
        let version = Version::now(observed.to_owned());
        let version = younger(version, read.map(str::to_owned), read_at);
        assert_eq!(version.text, expected, "{observed} {read:?}");
    }
}
