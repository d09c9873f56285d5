//! Which kinds the API server serves, in which version, and whether we may read them (RES-1, RES-6).
//!
//! A reconcile never waits for discovery. A separate task runs it when a kind is first needed, when a CRD of its group
//! is added, changed or deleted, and periodically while reading is forbidden.

mod discover;

use std::collections::{BTreeMap, HashMap};
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

use crate::cluster::store::Scope;
use crate::cluster::watch::WatchSink;
use crate::record::{CrdNameRecord, Enqueue, Projected, Record};

/// Discovery lags behind an added or deleted CRD: how often to retry it, and for how long.
const ARRIVES: Duration = Duration::from_millis(500);
const ARRIVES_WITHIN: Duration = Duration::from_secs(15);
/// Initial and maximum backoff after an API server error.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Initial and maximum backoff after a 403, since no watch reports that access was granted.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(5));

/// Kind and API group, as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    group: Arc<str>,
    kind: Arc<str>,
}

impl Kind {
    /// Returns group and kind.
    pub fn names(&self) -> GroupKind<'_> {
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
        self.names().fmt(f)
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
    known: BTreeMap<Kind, Looked>,
    /// Resource versions of CRDs, by name.
    crds: HashMap<Arc<str>, u64>,
    /// CRDs that the running list has not shown yet.
    missing: Vec<Arc<str>>,
    /// Scope in which read access is checked.
    place: Scope,
}

#[derive(Debug)]
struct Looked {
    standing: watch::Sender<KindAvailability>,
    due: Option<Instant>,
    failures: u32,
    /// Until when discovery may lag behind an added or deleted CRD.
    arrives_by: Option<Instant>,
}

impl Default for Kinds {
    /// Follows all kinds that have a resolver from the start, so that the webhook can be informed of those that are
    /// unreadable (ADM-7).
    fn default() -> Self {
        let kinds = Self {
            inner: Mutex::new(Inner {
                known: BTreeMap::new(),
                crds: HashMap::new(),
                missing: Vec::new(),
                place: None,
            }),
            due: Notify::new(),
        };
        known_kinds().for_each(|kind| kinds.want(&kind.into()));
        kinds
    }
}

impl Kinds {
    /// Number of CRDs whose versions are kept.
    pub(super) fn crds(&self) -> usize {
        self.inner.lock().crds.len()
    }

    /// Starts to follow a kind.
    pub fn want(&self, kind: &Kind) {
        let mut inner = self.inner.lock();
        if !inner.known.contains_key(kind) {
            inner.known.insert(kind.clone(), Looked::default());
            self.due.notify_one();
        }
    }

    /// Returns the discovery state of a kind.
    pub fn standing(&self, kind: &Kind) -> KindAvailability {
        let inner = self.inner.lock();
        let looked = inner.known.get(kind);
        looked.map_or(KindAvailability::Unknown, |it| it.standing.borrow().clone())
    }

    /// Subscribes to the discovery state of a kind, and starts to follow it.
    pub fn subscribe(&self, kind: &Kind) -> watch::Receiver<KindAvailability> {
        self.want(kind);
        let mut inner = self.inner.lock();
        let looked = inner.known.entry(kind.clone()).or_default();
        looked.standing.subscribe()
    }

    /// Schedules discovery again after the API server has rejected the kind or no longer serves it.
    pub(super) fn doubt(&self, kind: &Kind) {
        if let Some(looked) = self.inner.lock().known.get_mut(kind) {
            looked.due = Some(Instant::now());
        }
        self.due.notify_one();
    }

    /// Sets the scope in which read access is checked, one of those that are served.
    pub fn look_in(&self, place: Scope) {
        self.inner.lock().place = place;
    }

    /// Kinds that cannot be bound in this cluster; `None` until discovery has run for all of them.
    pub fn unreadable(&self) -> Option<Vec<UnreadableKind>> {
        let inner = self.inner.lock();
        let mut all = Vec::new();
        for (kind, looked) in &inner.known {
            let missing_rule = match &*looked.standing.borrow() {
                KindAvailability::Unknown => return None,
                KindAvailability::Served(_) | KindAvailability::NotNamespaced => continue,
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
            let (due, place) = self.due_now();
            for kind in due {
                let found = discover::standing(client, kind.names(), &place).await;
                if self.found(&kind, found) {
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
                () = self.due.notified() => {}
                () = next => {}
            }
        }
    }

    fn due_now(&self) -> (Vec<Kind>, Scope) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let mut due = Vec::new();
        for (kind, looked) in &mut inner.known {
            if looked.due.is_some_and(|at| at <= now) {
                // A request that arrives during discovery makes the kind due again.
                looked.due = None;
                due.push(kind.clone());
            }
        }
        (due, inner.place.clone())
    }

    fn next(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        inner.known.values().filter_map(|looked| looked.due).min()
    }

    /// Records a discovery result. Returns whether the state changed.
    fn found(&self, kind: &Kind, found: Result<KindAvailability, kube::Error>) -> bool {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let Some(looked) = inner.known.get_mut(kind) else {
            return false;
        };
        let unsettled = looked.arrives_by.is_some_and(|by| now < by);
        let wait = match &found {
            // Discovery lags behind an added or deleted CRD, and RBAC rules granted with it may arrive later still.
            Ok(KindAvailability::Forbidden(_) | KindAvailability::NotInstalled) if unsettled => {
                Some(ARRIVES)
            }
            Ok(KindAvailability::Forbidden(_)) => Some(REFUSED.after(looked.failures)),
            Ok(_) => None,
            Err(error) => {
                warn!(%error, %kind, "discovery fails");
                Some(RETRY.after(looked.failures))
            }
        };
        looked.failures = match &found {
            Ok(_) if unsettled || wait.is_none() => 0,
            _ => looked.failures.saturating_add(1),
        };
        let again = wait.map(|wait| now + wait);
        looked.due = looked.due.into_iter().chain(again).min();
        let Ok(standing) = found else {
            return false;
        };
        looked.standing.send_if_modified(|before| {
            let changed = *before != standing;
            *before = standing;
            changed
        })
    }

    /// Marks a kind as served.
    #[cfg(test)]
    pub fn serve(&self, group: &'static str, kind: &'static str, resource: ApiResource) {
        let kind = Kind::from(GroupKind { group, kind });
        self.want(&kind);
        self.found(&kind, Ok(KindAvailability::Served(Arc::new(resource))));
    }

    /// Makes the kinds of the CRD's group due after it was added, changed or deleted.
    fn crd_changed(inner: &mut Inner, name: &str) {
        let group = name.split_once('.').map_or("", |(_, group)| group);
        let now = Instant::now();
        for (kind, looked) in &mut inner.known {
            if *kind.group == *group {
                looked.due = Some(now);
                looked.failures = 0;
                looked.arrives_by = Some(now + ARRIVES_WITHIN);
            }
        }
    }
}

impl Default for Looked {
    fn default() -> Self {
        Self {
            standing: watch::Sender::new(KindAvailability::Unknown),
            due: Some(Instant::now()),
            failures: 0,
            arrives_by: None,
        }
    }
}

impl WatchSink<CrdNameRecord> for Kinds {
    fn relisting(&self, _: &Scope) {
        let mut inner = self.inner.lock();
        inner.missing = inner.crds.keys().cloned().collect();
    }

    fn show(&self, _: &Scope, seen: &Projected<CrdNameRecord>) -> Vec<Enqueue> {
        let metadata = seen.record.metadata();
        let name = &metadata.key.name;
        let mut inner = self.inner.lock();
        inner.missing.retain(|missing| missing != name);
        let version = metadata.resource_version;
        let before = inner.crds.insert(Arc::clone(name), version);
        if before != Some(version) {
            Self::crd_changed(&mut inner, name);
            self.due.notify_one();
        }
        Vec::new()
    }

    fn removed(&self, _: &Scope, seen: &Projected<CrdNameRecord>) -> Vec<Enqueue> {
        let name = &seen.record.metadata().key.name;
        let mut inner = self.inner.lock();
        inner.crds.remove(name);
        Self::crd_changed(&mut inner, name);
        self.due.notify_one();
        Vec::new()
    }

    fn relisted(&self, _: &Scope) -> Vec<Enqueue> {
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
