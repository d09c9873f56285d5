//! One watch task per kind and namespace: it keeps a store true and tells whom a change concerns.
//!
//! Each has its own backoff, so that one that fails (a CRD that is missing, a permission withdrawn)
//! does not slow the others.

mod events;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asya_process::watching::{is_undecodable, was_cut, works};
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
use crate::record::{Enqueue, Record, Seen};
use crate::telemetry::health::Gate;
use crate::telemetry::metrics::Metrics;

/// The server ends a watch after this long and we go on from the last version seen: a connection that
/// died unnoticed is so found by the client's read timeout ([`super::client::READ_TIMEOUT`]), which is
/// a little longer.
const WATCH_SECONDS: u32 = 50;

/// One page of a list in memory at a time, and never more than this many objects of it.
const PAGE: u32 = 100;

/// A watch that fails says so within this time; one that then says nothing works.
const QUIET: Duration = READ_TIMEOUT.saturating_add(Duration::from_secs(5));

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What a watch keeps true.
pub trait WatchSink<R>: Send + Sync {
    /// A list begins.
    fn relisting(&self, scope: &Scope);
    /// An object is there, or has changed. Answers whom that concerns.
    fn show(&self, scope: &Scope, seen: &Seen<R>) -> Vec<Enqueue>;
    /// An object is gone. Answers whom that concerns.
    fn removed(&self, scope: &Scope, seen: &Seen<R>) -> Vec<Enqueue>;
    /// A list is complete. Answers whom the objects that it did not show concern.
    fn relisted(&self, scope: &Scope) -> Vec<Enqueue>;
    /// The first list fails.
    fn failing(&self, _: &Scope) {}
    /// A list is complete. Answers whether anybody has waited for it.
    fn completed(&self, _: &Scope) -> bool {
        false
    }
    /// What is watched, where the records' type does not tell.
    fn what(&self) -> Option<Cow<'static, str>> {
        None
    }
    /// Of a kind that nobody serves there are no objects. Answers whom those concern that there were.
    fn unserved(&self, scope: &Scope) -> Vec<Enqueue> {
        self.relisting(scope);
        self.relisted(scope)
    }
}

impl<R: Record> WatchSink<R> for Store<R> {
    fn relisting(&self, scope: &Scope) {
        Self::relisting(self, scope);
    }

    fn show(&self, scope: &Scope, seen: &Seen<R>) -> Vec<Enqueue> {
        Self::show(self, scope, seen)
    }

    fn removed(&self, scope: &Scope, seen: &Seen<R>) -> Vec<Enqueue> {
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
    /// By label.
    pub labels: Option<Cow<'static, str>>,
    /// By field.
    pub fields: Option<Cow<'static, str>>,
}

/// A watch of one kind in one namespace, or in all. `S` is the object of its events.
pub struct Watch<R, S = Seen<R>> {
    /// The objects of the kind, where it looks.
    pub api: Api<S>,
    /// The same place, by its name.
    pub scope: Scope,
    /// Which objects of the kind.
    pub selector: Selector,
    /// Whether the API server serves the kind, where others install it.
    pub served: Option<watch::Receiver<bool>>,
    /// What it keeps true.
    pub store: Arc<dyn WatchSink<R>>,
    /// Opens with the first complete list, for good.
    pub gate: Gate,
    /// Counts events and tells whether the watch works.
    pub metrics: Arc<Metrics>,
}

impl<R, S> Watch<R, S>
where
    R: Record,
    S: Resource + Into<Seen<R>> + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    /// Watches for ever; `concerned` hears of every change that somebody should look at.
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
                        // What has been listed serves on, as old as it is.
                        if !listed {
                            self.store.failing(&self.scope);
                        }
                        if !listed && !opened {
                            self.gate.not_ready(&error.to_string());
                        }
                        tokio::time::sleep(backoff(failures)).await;
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

    /// kube's watcher does not tell that it is connected again: who is quiet for long enough is.
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
        info!(%kind, "watch works again");
    }

    fn failed(&self, kind: &str, error: &Error, failures: u32) {
        self.metrics.watch_healthy(kind, false);
        // A watch is cut now and then; only what lasts is worth an operator's look.
        if failures == 1 && was_cut(error) {
            tracing::debug!(%kind, %error, "watch was cut");
        } else if let Some(rule) = missing_rule::<R>(error).filter(|_| self.store.what().is_none())
        {
            warn!(%kind, %error, missing_rule = rule, "the API server refuses the watch");
        } else {
            warn!(%kind, %error, failures, "watch fails");
        }
    }
}

fn backoff(failures: u32) -> Duration {
    let full = BACKOFF_FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(BACKOFF_MAX);
    full.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The RBAC rule that a refused watch needs (FW-12).
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
