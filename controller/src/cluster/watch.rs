//! One watch task per kind and namespace: it keeps a store up to date and enqueues what a change concerns.
//!
//! Each has its own backoff, so that one that fails (missing CRD, withdrawn permission) does not slow the others.

mod events;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asya_process::watching::{is_undecodable, was_cut, works};
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
use super::store::{Scope, Store};
use crate::record::{Enqueue, Projected, Record};
use crate::telemetry::health::Gate;
use crate::telemetry::metrics::Metrics;

/// The server ends a watch after this long, and we resume from the last version seen. The client's read timeout
/// ([`super::client::READ_TIMEOUT`]) is a little longer, and so detects a connection that died unnoticed.
const WATCH_SECONDS: u32 = 50;

/// Page size of lists, and so the most objects of a list in memory at a time.
const PAGE: u32 = 100;

/// A watch that fails reports it within this time; one that stays quiet for longer works.
const QUIET: Duration = READ_TIMEOUT.saturating_add(Duration::from_secs(5));

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Receives what a watch shows.
pub trait WatchSink<R>: Send + Sync {
    /// A list begins.
    fn relisting(&self, scope: &Scope);
    /// An object was added or changed. Returns what to enqueue.
    fn show(&self, scope: &Scope, seen: &Projected<R>) -> Vec<Enqueue>;
    /// An object was deleted. Returns what to enqueue.
    fn removed(&self, scope: &Scope, seen: &Projected<R>) -> Vec<Enqueue>;
    /// A list is complete. Returns what to enqueue for the objects that it did not show.
    fn relisted(&self, scope: &Scope) -> Vec<Enqueue>;
    /// The first list failed.
    fn failing(&self, _: &Scope) {}
    /// A list is complete. Returns whether anything waited for it.
    fn completed(&self, _: &Scope) -> bool {
        false
    }
    /// What is watched, if the record type does not say.
    fn what(&self) -> Option<Cow<'static, str>> {
        None
    }
    /// The kind is not served, so it has no objects. Returns what to enqueue for those that existed.
    fn unserved(&self, scope: &Scope) -> Vec<Enqueue> {
        self.relisting(scope);
        self.relisted(scope)
    }
}

impl<R: Record> WatchSink<R> for Store<R> {
    fn relisting(&self, scope: &Scope) {
        Self::relisting(self, scope);
    }

    fn show(&self, scope: &Scope, seen: &Projected<R>) -> Vec<Enqueue> {
        Self::show(self, scope, seen)
    }

    fn removed(&self, scope: &Scope, seen: &Projected<R>) -> Vec<Enqueue> {
        Self::removed(self, scope, seen)
    }

    fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        Self::relisted(self, scope)
    }

    fn failing(&self, scope: &Scope) {
        Self::failing(self, scope);
    }

    fn completed(&self, scope: &Scope) -> bool {
        Self::completed(self, scope)
    }

    fn unserved(&self, scope: &Scope) -> Vec<Enqueue> {
        Self::unserved(self, scope)
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
    pub scope: Scope,
    pub selector: Selector,
    /// Whether the API server serves the kind, for kinds that are installed separately.
    pub served: Option<watch::Receiver<bool>>,
    /// Receives what the watch shows.
    pub store: Arc<dyn WatchSink<R>>,
    /// Opens with the first complete list, for good.
    pub gate: Gate,
    /// Counts events, and reports whether the watch works.
    pub metrics: Arc<Metrics>,
}

impl<R, S> Watch<R, S>
where
    R: Record,
    S: Resource + Into<Projected<R>> + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    /// Watches forever; `concerned` receives everything to enqueue.
    pub async fn run(self, concerned: impl Fn(Enqueue)) {
        let Some(mut served) = self.served.clone() else {
            return self.follow(false, &concerned).await;
        };
        let mut opened = false;
        loop {
            if !*served.borrow_and_update() {
                let gone = self.store.unserved(&self.scope);
                gone.into_iter().for_each(&concerned);
                self.gate.ready();
                opened = true;
            }
            if served.wait_for(|served| *served).await.is_err() {
                return;
            }
            tokio::select! {
                () = self.follow(opened, &concerned) => {}
                _ = served.wait_for(|served| !*served) => {}
            }
        }
    }

    async fn follow(&self, opened: bool, concerned: &impl Fn(Enqueue)) {
        let kind = self.what();
        let (mut failures, mut listed) = (0, false);
        loop {
            let mut events = self.events();
            while let Some(event) = self.next(&mut events, &mut failures).await {
                match event {
                    Ok(event) => {
                        if failures > 0 && works(&event) {
                            self.works_again();
                            failures = 0;
                        }
                        listed |= matches!(event, Event::InitDone);
                        self.metrics.watch_event(&kind);
                        let concerns = self.take(event);
                        if concerns.is_empty() {
                            self.metrics.watch_event_dropped(&kind);
                        }
                        concerns.into_iter().for_each(concerned);
                    }
                    Err(error) => {
                        failures += 1;
                        self.failed(&kind, &error, failures);
                        // What was listed stays in use, however old it is.
                        if !listed {
                            self.store.failing(&self.scope);
                        }
                        if !listed && !opened {
                            self.gate.not_ready(&error.to_string());
                        }
                        tokio::time::sleep(jittered(failures)).await;
                        if is_undecodable(&error) {
                            break; // the event is lost: list again
                        }
                    }
                }
            }
        }
    }

    fn what(&self) -> Cow<'static, str> {
        self.store.what().unwrap_or_else(R::what)
    }

    fn events(&self) -> BoxStream<'static, Result<Event<S>, Error>> {
        if R::Kind::kind(&()) == "Event" && self.selector.labels.is_none() {
            let asked = events::Asked {
                api: self.api.clone(),
                fields: self.selector.fields.clone().map(Cow::into_owned),
                page: PAGE,
                watch_seconds: WATCH_SECONDS,
            };
            return events::events(asked).boxed();
        }
        let config = watcher::Config {
            label_selector: self.selector.labels.clone().map(Cow::into_owned),
            field_selector: self.selector.fields.clone().map(Cow::into_owned),
            ..watcher::Config::default()
        };
        let config = config.timeout(WATCH_SECONDS).page_size(PAGE);
        watcher::watcher(self.api.clone(), config).boxed()
    }

    fn take(&self, event: Event<S>) -> Vec<Enqueue> {
        let (store, scope) = (&self.store, &self.scope);
        match event {
            Event::Init => {
                store.relisting(scope);
                Vec::new()
            }
            Event::InitApply(seen) | Event::Apply(seen) => store.show(scope, &seen.into()),
            Event::Delete(seen) => store.removed(scope, &seen.into()),
            Event::InitDone => {
                self.metrics.watch_healthy(&self.what(), true);
                self.gate.ready();
                let mut concerns = store.relisted(scope);
                if store.completed(scope) {
                    concerns.push(match scope {
                        Some(namespace) => Enqueue::Namespace(Arc::clone(namespace)),
                        None => Enqueue::Everybody,
                    });
                }
                concerns
            }
        }
    }

    /// kube's watcher does not report that it has reconnected: a watch that stays quiet for long enough has.
    async fn next<E: Stream + Unpin>(&self, events: &mut E, failures: &mut u32) -> Option<E::Item> {
        if *failures > 0 {
            if let Ok(next) = timeout(QUIET, events.next()).await {
                return next;
            }
            self.works_again();
            *failures = 0;
        }
        events.next().await
    }

    fn works_again(&self) {
        let kind = self.what();
        self.metrics.watch_healthy(&kind, true);
        info!(%kind, "watch recovered");
    }

    fn failed(&self, kind: &str, error: &Error, failures: u32) {
        self.metrics.watch_healthy(kind, false);
        // Watches are cut now and then; only a lasting failure deserves a warning.
        if failures == 1 && was_cut(error) {
            tracing::debug!(%kind, %error, "watch interrupted");
        } else if let Some(rule) = missing_rule::<R>(error).filter(|_| self.store.what().is_none())
        {
            warn!(%kind, %error, missing_rule = rule, "the API server rejects the watch");
        } else {
            warn!(%kind, %error, failures, "watch failed");
        }
    }
}

fn jittered(failures: u32) -> Duration {
    let full = BACKOFF.after(failures.saturating_sub(1));
    full.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The RBAC rule that a refused watch lacks (FW-12).
fn missing_rule<R: Record>(error: &Error) -> Option<String> {
    let (Error::InitialListFailed(kube::Error::Api(status))
    | Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return None;
    };
    status.is_forbidden().then(|| {
        let (group, plural) = (R::Kind::group(&()), R::Kind::plural(&()));
        format!("{{apiGroups: [{group:?}], resources: [{plural:?}], verbs: [get, list, watch]}}")
    })
}

#[cfg(test)]
mod tests;
