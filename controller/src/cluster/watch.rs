//! One watch task per kind and namespace: it keeps a store up to date and enqueues the actors that a change affects.
//!
//! Each has its own backoff, so that a failing one (missing CRD, revoked permission) does not slow down the others.

mod events;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asya_process::watch_loop::{is_established, is_interruption, is_undecodable};
use asya_shared::backoff::Backoff;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use super::client::READ_TIMEOUT;
use super::store::Store;
use super::watch_scope::WatchScope;
use crate::record::{Enqueue, Projected, Record};
use crate::telemetry::health::ReadinessCheck;
use crate::telemetry::metrics::{Metrics, WatchHealth};

/// The server ends a watch after this long, and the next one resumes from the last observed version. The client's read
/// timeout ([`super::client::READ_TIMEOUT`]) is slightly longer, and so detects a dead connection.
const WATCH_SECONDS: u32 = 50;

/// Page size of lists of metadata and of Events, which limits how many objects of a list are in memory at a time.
const PAGE: u32 = 100;
/// Page size of lists of whole objects, which users may make as large as the API server stores them, 1.5 MB: the
/// largest page has 37.5 MB (OPS-31). Events are that large only if they are made so, and clusters have very many of
/// them.
pub const OBJECTS_PAGE: u32 = 25;

/// A failing watch reports an error within this time; one without an error for longer is healthy.
const QUIET: Duration = READ_TIMEOUT.saturating_add(Duration::from_secs(5));

const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30)).with_jitter(0.5);

/// Receives the events of a watch.
pub trait WatchSink<R>: Send + Sync {
    /// A list starts.
    fn init(&self, scope: &WatchScope);
    /// An object was added or changed. Returns what to enqueue.
    fn apply(&self, scope: &WatchScope, object: &Projected<R>) -> Vec<Enqueue>;
    /// An object was deleted. Returns what to enqueue.
    fn delete(&self, scope: &WatchScope, object: &Projected<R>) -> Vec<Enqueue>;
    /// A list is complete. Returns what to enqueue for the objects that it did not return.
    fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue>;
    /// The first list failed.
    fn list_failed(&self, _: &WatchScope) {}
    /// A list is complete. Returns whether it is the first one in its scope.
    fn list_completed(&self, _: &WatchScope) -> bool {
        false
    }
    /// The watched kind, if it is not that of the record type.
    fn kind_name(&self) -> Option<Cow<'static, str>> {
        None
    }
    /// The kind is not served, so it has no objects. Returns what to enqueue for those that existed.
    fn kind_removed(&self, scope: &WatchScope) -> Vec<Enqueue> {
        self.init(scope);
        self.init_done(scope)
    }
}

impl<R: Record> WatchSink<R> for Store<R> {
    fn init(&self, scope: &WatchScope) {
        Self::init(self, scope);
    }

    fn apply(&self, scope: &WatchScope, object: &Projected<R>) -> Vec<Enqueue> {
        Self::apply(self, scope, object)
    }

    fn delete(&self, scope: &WatchScope, object: &Projected<R>) -> Vec<Enqueue> {
        Self::delete(self, scope, object)
    }

    fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue> {
        Self::init_done(self, scope)
    }

    fn list_failed(&self, scope: &WatchScope) {
        Self::list_failed(self, scope);
    }

    fn list_completed(&self, scope: &WatchScope) -> bool {
        Self::list_completed(self, scope)
    }

    fn kind_removed(&self, scope: &WatchScope) -> Vec<Enqueue> {
        Self::kind_removed(self, scope)
    }
}

/// Which objects of a kind are watched.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    pub labels: Option<Cow<'static, str>>,
    pub fields: Option<Cow<'static, str>>,
}

/// A watch of one kind in one namespace, or in all. `S` is the type of the objects in its events.
pub struct Watch<R, S = Projected<R>> {
    /// The API of the kind, in the watched scope.
    pub api: Api<S>,
    pub scope: WatchScope,
    pub selector: Selector,
    /// Whether the API server serves the kind, for kinds that are installed separately.
    pub served: Option<watch::Receiver<bool>>,
    /// Receives the events.
    pub sink: Arc<dyn WatchSink<R>>,
    /// Passes with the first complete list, and does not fail again. Until then, it is refused while a permission in a
    /// namespace is missing.
    pub check: ReadinessCheck,
    /// Counts events, and reports whether the watch is healthy.
    pub metrics: Arc<Metrics>,
}

impl<R, S> Watch<R, S>
where
    R: Record,
    S: Resource + Into<Projected<R>> + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    /// Watches forever; `enqueue` receives everything to enqueue.
    pub async fn run(self, enqueue: impl Fn(Enqueue)) {
        let Some(mut served) = self.served.clone() else {
            return self.follow(false, &enqueue).await;
        };
        let mut passed_before = false;
        loop {
            if !*served.borrow_and_update() {
                let affected = self.sink.kind_removed(&self.scope);
                affected.into_iter().for_each(&enqueue);
                self.check.ready();
                passed_before = true;
            }
            if served.wait_for(|served| *served).await.is_err() {
                return;
            }
            tokio::select! {
                // In a fixed order, so that a simulation can be repeated.
                biased;
                () = self.follow(passed_before, &enqueue) => {}
                _ = served.wait_for(|served| !*served) => {}
            }
        }
    }

    async fn follow(&self, passed_before: bool, enqueue: &impl Fn(Enqueue)) {
        let kind = self.kind_name();
        let mut health = WatchHealth::new(&self.metrics, &kind);
        let (mut failures, mut listed) = (0, false);
        loop {
            let mut events = self.events();
            while let Some(event) = self.next(&mut events, &mut failures, &mut health).await {
                match event {
                    Ok(event) => {
                        if failures > 0 && is_established(&event) {
                            self.report_recovery(&mut health);
                            failures = 0;
                        }
                        listed |= matches!(event, Event::InitDone);
                        self.metrics.watch_event(&kind);
                        let affected = self.handle(event, &mut health);
                        if affected.is_empty() {
                            self.metrics.watch_event_dropped(&kind);
                        }
                        affected.into_iter().for_each(enqueue);
                    }
                    Err(error) => {
                        failures += 1;
                        health.set(false);
                        self.report_failure(&kind, &error, failures);
                        // Objects that were listed stay in use, even if they are stale.
                        if !listed {
                            self.sink.list_failed(&self.scope);
                        }
                        if !listed && !passed_before {
                            self.report_unlisted(&error);
                        }
                        let wait = BACKOFF.jittered(failures.saturating_sub(1), fastrand::f64());
                        tokio::time::sleep(wait).await;
                        if is_undecodable(&error) {
                            break; // the event is lost, so list again
                        }
                    }
                }
            }
        }
    }

    fn kind_name(&self) -> Cow<'static, str> {
        self.sink.kind_name().unwrap_or_else(R::kind_name)
    }

    fn events(&self) -> BoxStream<'static, Result<Event<S>, Error>> {
        if R::Kind::kind(&()) == "Event" && self.selector.labels.is_none() {
            let event_watcher = events::EventWatcher {
                api: self.api.clone(),
                fields: self.selector.fields.clone().map(Cow::into_owned),
                page: PAGE,
                watch_seconds: WATCH_SECONDS,
            };
            return events::events(event_watcher).boxed();
        }
        let config = watcher::Config {
            label_selector: self.selector.labels.clone().map(Cow::into_owned),
            field_selector: self.selector.fields.clone().map(Cow::into_owned),
            ..watcher::Config::default()
        };
        let config = config.timeout(WATCH_SECONDS).page_size(page_size::<R>());
        watcher::watcher(self.api.clone(), config).boxed()
    }

    fn handle(&self, event: Event<S>, health: &mut WatchHealth) -> Vec<Enqueue> {
        let (store, scope) = (&self.sink, &self.scope);
        match event {
            Event::Init => {
                store.init(scope);
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => store.apply(scope, &object.into()),
            Event::Delete(object) => store.delete(scope, &object.into()),
            Event::InitDone => {
                health.set(true);
                self.check.ready();
                let mut affected = store.init_done(scope);
                if store.list_completed(scope) {
                    affected.push(match scope {
                        WatchScope::Namespace(namespace) => {
                            Enqueue::Namespace(Arc::clone(namespace))
                        }
                        WatchScope::Cluster => Enqueue::AllActors,
                    });
                }
                affected
            }
        }
    }

    /// Returns the next event. kube's watcher does not report a reconnect, so assume one after a while without errors.
    async fn next<E: Stream + Unpin>(
        &self,
        events: &mut E,
        failures: &mut u32,
        health: &mut WatchHealth,
    ) -> Option<E::Item> {
        if *failures > 0 {
            if let Ok(next) = timeout(QUIET, events.next()).await {
                return next;
            }
            self.report_recovery(health);
            *failures = 0;
        }
        events.next().await
    }

    fn report_recovery(&self, health: &mut WatchHealth) {
        let kind = self.kind_name();
        health.set(true);
        info!(%kind, "watch recovered");
    }

    /// A namespace in which permissions are missing, perhaps because it is being deleted, must not stop the others
    /// (FW-12). One that does not exist has empty lists, so any other error concerns the whole cluster.
    fn report_unlisted(&self, error: &Error) {
        if self.scope != WatchScope::Cluster && is_forbidden(error) {
            self.check.refused(&error.to_string());
        } else {
            self.check.not_ready(&error.to_string());
        }
    }

    fn report_failure(&self, kind: &str, error: &Error, failures: u32) {
        let namespace = self.scope.namespace().map(AsRef::as_ref);
        // Watches are interrupted occasionally; only a persistent failure deserves a warning.
        if failures == 1 && is_interruption(error) {
            tracing::debug!(%kind, namespace, %error, "watch interrupted");
        } else if let Some(rule) =
            missing_rule::<R>(error).filter(|_| self.sink.kind_name().is_none())
        {
            warn!(%kind, namespace, %error, missing_rule = rule, "the API server rejects the watch");
        } else {
            warn!(%kind, namespace, %error, failures, "watch failed");
        }
    }
}

fn page_size<R: Record>() -> u32 {
    if R::METADATA_ONLY { PAGE } else { OBJECTS_PAGE }
}

fn is_forbidden(error: &Error) -> bool {
    let (Error::InitialListFailed(kube::Error::Api(status))
    | Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.is_forbidden()
}

/// The RBAC rule that a forbidden watch lacks (FW-12).
fn missing_rule<R: Record>(error: &Error) -> Option<String> {
    is_forbidden(error).then(|| {
        let (group, plural) = (R::Kind::group(&()), R::Kind::plural(&()));
        format!("{{apiGroups: [{group:?}], resources: [{plural:?}], verbs: [get, list, watch]}}")
    })
}

#[cfg(test)]
mod tests;
