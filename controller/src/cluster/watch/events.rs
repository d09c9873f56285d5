//! A watch of Events that avoids repeated relists.
//!
//! A watch resumes from the last version that it has observed. For other kinds, bookmarks keep that recent. For Events
//! the API server sends none, since it does not cache them: if no selected Event arrives for five to ten minutes, etcd
//! has compacted that version, the next watch gets 410 Gone, and kube's watcher lists all Events of the cluster again,
//! from etcd. This watch reads a recent version from a list of a single object instead.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{Error, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// Age at which a version is refreshed, well below the five minutes after which etcd is compacted.
const VERSION_LIFETIME: Duration = Duration::from_mins(3);
/// A watch that has been open for this long has delivered everything before a version that was read when it started.
const STABLE_AFTER: Duration = Duration::from_secs(20);

/// Selects the Events to list and watch.
pub struct EventWatcher<S> {
    pub api: Api<S>,
    pub fields: Option<String>,
    pub page: u32,
    pub watch_seconds: u32,
}

enum State<S> {
    Start,
    Page {
        objects: VecDeque<S>,
        next: Option<String>,
        version: String,
    },
    Listed(Version),
    Watching {
        version: Version,
        /// A version that was read when the watch started.
        recent: Option<String>,
        started: Instant,
        stream: BoxStream<'static, kube::Result<WatchEvent<S>>>,
    },
}

/// The version from which a watch resumes, and when it was observed.
struct Version {
    text: String,
    received: Instant,
}

impl Version {
    fn now(text: String) -> Self {
        Self {
            text,
            received: Instant::now(),
        }
    }
}

/// Yields the same events as kube's watcher.
pub fn events<S>(watcher: EventWatcher<S>) -> impl Stream<Item = Result<Event<S>, Error>> + Send
where
    S: Resource + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    unfold((watcher, State::Start), async |(watcher, mut state)| {
        loop {
            let (event, next) = watcher.step(state).await;
            state = next;
            if let Some(event) = event {
                return Some((event, (watcher, state)));
            }
        }
    })
}

type Step<S> = (Option<Result<Event<S>, Error>>, State<S>);

impl<S> EventWatcher<S>
where
    S: Resource + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    async fn step(&self, state: State<S>) -> Step<S> {
        match state {
            State::Start => {
                let first = State::Page {
                    objects: VecDeque::new(),
                    next: Some(String::new()),
                    version: String::new(),
                };
                (Some(Ok(Event::Init)), first)
            }
            State::Page {
                mut objects,
                next,
                version,
            } => match (objects.pop_front(), next) {
                (Some(object), next) => {
                    let rest = State::Page {
                        objects,
                        next,
                        version,
                    };
                    (Some(Ok(Event::InitApply(object))), rest)
                }
                (None, Some(next)) => self.list(next).await,
                (None, None) => {
                    let listed = State::Listed(Version::now(version));
                    (Some(Ok(Event::InitDone)), listed)
                }
            },
            State::Listed(version) => self.watch(version).await,
            State::Watching {
                version,
                recent,
                started,
                mut stream,
            } => match stream.next().await {
                Some(Ok(event)) => {
                    let (event, version) = convert(event, version);
                    let next = match version {
                        Some(version) => State::Watching {
                            version,
                            recent,
                            started,
                            stream,
                        },
                        None => State::Start,
                    };
                    (event, next)
                }
                Some(Err(error)) => (Some(Err(Error::WatchFailed(error))), State::Listed(version)),
                None => {
                    let recent = recent.filter(|_| started.elapsed() >= STABLE_AFTER);
                    (None, State::Listed(younger(version, recent, started)))
                }
            },
        }
    }

    async fn list(&self, next: String) -> Step<S> {
        let parameters = ListParams {
            field_selector: self.fields.clone(),
            limit: Some(self.page),
            continue_token: Some(next).filter(|token| !token.is_empty()),
            ..ListParams::default()
        };
        match self.api.list(&parameters).await {
            Ok(list) => {
                let next = list.metadata.continue_.filter(|token| !token.is_empty());
                let page = State::Page {
                    objects: list.items.into(),
                    next,
                    version: list.metadata.resource_version.unwrap_or_default(),
                };
                (None, page)
            }
            Err(error) => (Some(Err(Error::InitialListFailed(error))), State::Start),
        }
    }

    async fn watch(&self, version: Version) -> Step<S> {
        let parameters = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(self.watch_seconds),
            ..WatchParams::default()
        };
        match self.api.watch(&parameters, &version.text).await {
            Ok(stream) => {
                let stream = stream.boxed();
                let started = Instant::now();
                let is_old = version.received.elapsed() >= VERSION_LIFETIME;
                let recent = if is_old { self.recent().await } else { None };
                let watching = State::Watching {
                    version,
                    recent,
                    started,
                    stream,
                };
                (None, watching)
            }
            Err(error) => {
                let gone = matches!(&error, kube::Error::Api(status) if status.code == 410);
                let next = if gone {
                    State::Start
                } else {
                    State::Listed(version)
                };
                (Some(Err(Error::WatchStartFailed(error))), next)
            }
        }
    }

    /// Reads the current version. A failure costs only a relist.
    async fn recent(&self) -> Option<String> {
        // Without a selector: the API server would read all Events to find one that matches.
        let one = ListParams::default().limit(1);
        let list = self.api.list_metadata(&one).await.ok()?;
        list.metadata.resource_version
    }
}

/// Converts a watch event. Returns the version from which to resume; `None` means relist.
fn convert<S: Resource>(
    event: WatchEvent<S>,
    version: Version,
) -> (Option<Result<Event<S>, Error>>, Option<Version>) {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            let version = object.resource_version().map(Version::now);
            (Some(Ok(Event::Apply(object))), version)
        }
        WatchEvent::Deleted(object) => {
            let version = object.resource_version().map(Version::now);
            (Some(Ok(Event::Delete(object))), version)
        }
        WatchEvent::Bookmark(bookmark) => {
            let version = Version::now(bookmark.metadata.resource_version);
            (None, Some(version))
        }
        WatchEvent::Error(status) => {
            let gone = status.code == 410;
            let item = Err(Error::WatchError(status.boxed()));
            (Some(item), Some(version).filter(|_| !gone))
        }
    }
}

/// The newer one of the last observed version and one that was read.
fn younger(version: Version, recent: Option<String>, read_at: Instant) -> Version {
    let number = |text: &str| text.parse::<u64>().ok();
    match recent {
        Some(text) if number(&text) > number(&version.text) => Version {
            text,
            received: read_at,
        },
        _ => version,
    }
}

#[cfg(test)]
mod tests;
