//! Which kinds the API server serves, in which version, and whether the operator may read them (RES-1, RES-6).
//!
//! A reconcile never waits for discovery. A separate task runs it when a kind is first needed, when a CRD of its group
//! is added, changed or deleted, and periodically while reading is forbidden.

mod discover;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::admission::facts::UnreadableKind;
use asya_shared::backoff::Backoff;
use asya_shared::resolve::{GroupKind, known_kinds};
use kube::Client;
use kube::api::ApiResource;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{CrdNameRecord, Enqueue, Projected, Record};

/// Discovery lags behind an added or deleted CRD: how often and for how long to retry it.
const CRD_LAG_RETRY: Duration = Duration::from_millis(500);
const CRD_LAG_LIMIT: Duration = Duration::from_secs(15);
/// Initial and maximum backoff after an API server error.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Initial and maximum backoff after a 403, since no watch reports that access was granted.
const FORBIDDEN_BACKOFF: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(5));

/// Kind and API group, as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    group: Arc<str>,
    kind: Arc<str>,
}

impl Kind {
    pub fn group_kind(&self) -> GroupKind<'_> {
        GroupKind {
            group: &self.group,
            kind: &self.kind,
        }
    }
}

impl From<GroupKind<'_>> for Kind {
    fn from(kind: GroupKind<'_>) -> Self {
        Self {
            group: kind.group.into(),
            kind: kind.kind.into(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group_kind().fmt(f)
    }
}

/// Discovery state of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindAvailability {
    /// Discovery has not run yet.
    Unknown,
    /// Served, and readable as this resource.
    Served(Arc<ApiResource>),
    /// The API server does not serve it.
    NotInstalled,
    /// It is cluster-scoped.
    NotNamespaced,
    /// Reading is forbidden: the missing RBAC rule, as YAML.
    Forbidden(Arc<str>),
}

/// Discovery state of all needed kinds.
#[derive(Debug)]
pub struct Kinds {
    inner: Mutex<Inner>,
    /// Notified when a kind may be due.
    due: Notify,
}

#[derive(Debug)]
struct Inner {
    states: BTreeMap<Kind, DiscoveryState>,
    /// Resource versions of CRDs, by name.
    crds: HashMap<Arc<str>, u64>,
    /// CRDs that the list in progress has not returned yet.
    missing: Vec<Arc<str>>,
    /// Scopes in which read access may be checked.
    access_scopes: BTreeSet<WatchScope>,
}

#[derive(Debug)]
struct DiscoveryState {
    availability: watch::Sender<KindAvailability>,
    due: Option<Instant>,
    failures: u32,
    /// Until when discovery may lag behind an added or deleted CRD.
    crd_lag_until: Option<Instant>,
}

impl Default for Kinds {
    /// Tracks all kinds that have a resolver from the start, so that the webhook can be informed of those that are
    /// unreadable (ADM-7).
    fn default() -> Self {
        let kinds = Self {
            inner: Mutex::new(Inner {
                states: BTreeMap::new(),
                crds: HashMap::new(),
                missing: Vec::new(),
                access_scopes: BTreeSet::from([WatchScope::Cluster]),
            }),
            due: Notify::new(),
        };
        known_kinds().for_each(|kind| kinds.track(&kind.into()));
        kinds
    }
}

impl Kinds {
    /// Number of CRDs with a cached resource version.
    pub(super) fn crds(&self) -> usize {
        self.inner.lock().crds.len()
    }

    /// Starts discovery of a kind.
    pub fn track(&self, kind: &Kind) {
        let mut inner = self.inner.lock();
        if !inner.states.contains_key(kind) {
            inner.states.insert(kind.clone(), DiscoveryState::default());
            self.due.notify_one();
        }
    }

    /// Returns the discovery state of a kind.
    pub fn availability(&self, kind: &Kind) -> KindAvailability {
        let inner = self.inner.lock();
        let state = inner.states.get(kind);
        state.map_or(KindAvailability::Unknown, |state| {
            state.availability.borrow().clone()
        })
    }

    /// Subscribes to the discovery state of a kind, and starts to track it.
    pub fn subscribe(&self, kind: &Kind) -> watch::Receiver<KindAvailability> {
        self.track(kind);
        let mut inner = self.inner.lock();
        let state = inner.states.entry(kind.clone()).or_default();
        state.availability.subscribe()
    }

    /// Schedules discovery again after the API server has rejected the kind or no longer serves it.
    pub(super) fn rediscover(&self, kind: &Kind) {
        if let Some(state) = self.inner.lock().states.get_mut(kind) {
            state.due = Some(Instant::now());
        }
        self.due.notify_one();
    }

    /// Sets the scopes in which read access may be checked: those that the operator manages.
    pub fn set_access_scopes(&self, scopes: &BTreeSet<WatchScope>) {
        self.inner.lock().access_scopes.clone_from(scopes);
    }

    /// Kinds that cannot be bound in this cluster; `None` until discovery has been tried for all of them. A kind whose
    /// discovery fails, for example because its API is down, is not included.
    pub fn unreadable(&self) -> Option<Vec<UnreadableKind>> {
        let inner = self.inner.lock();
        let mut all = Vec::new();
        for (kind, state) in &inner.states {
            let missing_rule = match &*state.availability.borrow() {
                KindAvailability::Unknown if state.failures == 0 => return None,
                KindAvailability::Unknown
                | KindAvailability::Served(_)
                | KindAvailability::NotNamespaced => continue,
                KindAvailability::NotInstalled => None,
                KindAvailability::Forbidden(rule) => Some(rule.to_string()),
            };
            all.push(UnreadableKind {
                group: kind.group.to_string(),
                kind: kind.kind.to_string(),
                missing_rule,
            });
        }
        Some(all)
    }

    /// Runs discovery for due kinds, forever. Calls `changed` for each kind whose state is different.
    pub async fn follow(&self, client: &Client, changed: impl Fn(&Kind)) {
        loop {
            let (due, scopes) = self.due_now();
            for kind in due {
                let result = discover::availability(client, kind.group_kind(), &scopes).await;
                if self.record_result(&kind, result) {
                    changed(&kind);
                }
            }
            let next = self.next();
            let next = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // In a fixed order, so that a simulation can be repeated.
                biased;
                () = self.due.notified() => {}
                () = next => {}
            }
        }
    }

    fn due_now(&self) -> (Vec<Kind>, BTreeSet<WatchScope>) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let mut due = Vec::new();
        for (kind, state) in &mut inner.states {
            if state.due.is_some_and(|at| at <= now) {
                // Reset before discovery: a request that arrives during it makes the kind due again.
                state.due = None;
                due.push(kind.clone());
            }
        }
        (due, inner.access_scopes.clone())
    }

    fn next(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        inner.states.values().filter_map(|state| state.due).min()
    }

    /// Records a discovery result. Returns whether that changes what others can learn.
    fn record_result(&self, kind: &Kind, result: Result<KindAvailability, kube::Error>) -> bool {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let Some(state) = inner.states.get_mut(kind) else {
            return false;
        };
        let may_lag = state.crd_lag_until.is_some_and(|by| now < by);
        let wait = match &result {
            // Discovery lags behind an added or deleted CRD, and RBAC rules granted with it may arrive even later.
            Ok(KindAvailability::Forbidden(_) | KindAvailability::NotInstalled) if may_lag => {
                Some(CRD_LAG_RETRY)
            }
            Ok(KindAvailability::Forbidden(_)) => Some(FORBIDDEN_BACKOFF.after(state.failures)),
            Ok(_) => None,
            Err(error) => {
                warn!(%error, %kind, "discovery failed");
                Some(RETRY.after(state.failures))
            }
        };
        state.failures = match &result {
            Ok(_) if may_lag || wait.is_none() => 0,
            _ => state.failures.saturating_add(1),
        };
        let retry_at = wait.map(|wait| now + wait);
        state.due = state.due.into_iter().chain(retry_at).min();
        let Ok(availability) = result else {
            // Nobody has to wait for it any longer.
            let is_unknown = *state.availability.borrow() == KindAvailability::Unknown;
            return is_unknown && state.failures == 1;
        };
        state.availability.send_if_modified(|previous| {
            let changed = *previous != availability;
            *previous = availability;
            changed
        })
    }

    /// Marks a kind as served.
    #[cfg(test)]
    pub fn serve(&self, group: &'static str, kind: &'static str, resource: ApiResource) {
        self.set(group, kind, KindAvailability::Served(Arc::new(resource)));
    }

    #[cfg(test)]
    pub fn set(&self, group: &'static str, kind: &'static str, availability: KindAvailability) {
        let kind = Kind::from(GroupKind { group, kind });
        self.track(&kind);
        self.record_result(&kind, Ok(availability));
    }

    /// Makes the kinds of the CRD's group due after it was added, changed or deleted.
    fn crd_changed(inner: &mut Inner, name: &str) {
        let group = name.split_once('.').map_or("", |(_, group)| group);
        let now = Instant::now();
        for (kind, state) in &mut inner.states {
            if *kind.group == *group {
                state.due = Some(now);
                state.failures = 0;
                state.crd_lag_until = Some(now + CRD_LAG_LIMIT);
            }
        }
    }
}

impl Default for DiscoveryState {
    fn default() -> Self {
        Self {
            availability: watch::Sender::new(KindAvailability::Unknown),
            due: Some(Instant::now()),
            failures: 0,
            crd_lag_until: None,
        }
    }
}

impl WatchSink<CrdNameRecord> for Kinds {
    fn init(&self, _: &WatchScope) {
        let mut inner = self.inner.lock();
        inner.missing = inner.crds.keys().cloned().collect();
    }

    fn apply(&self, _: &WatchScope, projected: &Projected<CrdNameRecord>) -> Vec<Enqueue> {
        let metadata = projected.record.metadata();
        let name = &metadata.key.name;
        let mut inner = self.inner.lock();
        inner.missing.retain(|missing| missing != name);
        let version = metadata.resource_version;
        let previous = inner.crds.insert(Arc::clone(name), version);
        if previous != Some(version) {
            Self::crd_changed(&mut inner, name);
            self.due.notify_one();
        }
        Vec::new()
    }

    fn delete(&self, _: &WatchScope, projected: &Projected<CrdNameRecord>) -> Vec<Enqueue> {
        let name = &projected.record.metadata().key.name;
        let mut inner = self.inner.lock();
        inner.crds.remove(name);
        Self::crd_changed(&mut inner, name);
        self.due.notify_one();
        Vec::new()
    }

    fn init_done(&self, _: &WatchScope) -> Vec<Enqueue> {
        let mut inner = self.inner.lock();
        for name in std::mem::take(&mut inner.missing) {
            inner.crds.remove(&name);
            Self::crd_changed(&mut inner, &name);
        }
        self.due.notify_one();
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
