//! Which kinds the API server knows, in which version, and whether we may read them (RES-1, RES-6).
//!
//! Nothing here is asked by a pass: a task of its own looks when a kind is first wanted, when a CRD of its group comes,
//! changes or goes, and, where we may not read it, now and then.

mod discover;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asya_shared::admission::facts::UnreadableKind;
use asya_shared::resolve::{GroupKind, known_kinds};
use kube::Client;
use kube::api::ApiResource;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::cluster::store::Scope;
use crate::cluster::watch::WatchSink;
use crate::record::{CrdNameRecord, Enqueue, Record, Seen};

/// A CRD that has come, or gone, is so for discovery a moment later: this is how often it is looked for, and for how long.
const ARRIVES: Duration = Duration::from_millis(500);
const ARRIVES_WITHIN: Duration = Duration::from_secs(15);
/// The first wait after an API server that did not answer, and the longest.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The first wait after a refusal, and the longest: nobody tells of a rule that is granted.
const REFUSED: Duration = Duration::from_secs(30);
const LONGEST_REFUSED: Duration = Duration::from_mins(5);

/// A kind in its API group, as a user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    group: Arc<str>,
    kind: Arc<str>,
}

impl Kind {
    /// Its two names.
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

/// What is known of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has looked yet.
    Unknown,
    /// This is how it is asked for.
    Served(Arc<ApiResource>),
    /// The API server does not know it.
    NotInstalled,
    /// Its objects are in no namespace.
    NotNamespaced,
    /// We may not read it: the rule that is missing, as YAML.
    Forbidden(Arc<str>),
}

/// What is known of the kinds that are wanted.
#[derive(Debug)]
pub struct Kinds {
    inner: Mutex<Inner>,
    /// Something is due.
    due: Notify,
}

#[derive(Debug)]
struct Inner {
    known: BTreeMap<Kind, Looked>,
    /// Versions of CRDs, by name.
    crds: HashMap<Arc<str>, u64>,
    /// What a running list of CRDs has yet to show.
    missing: Vec<Arc<str>>,
    /// A place in which what we may read is tried.
    place: Scope,
}

#[derive(Debug)]
struct Looked {
    standing: watch::Sender<Standing>,
    due: Option<Instant>,
    failures: u32,
    /// Until when a CRD that came or went may still be so for discovery.
    arrives_by: Option<Instant>,
}

impl Default for Kinds {
    /// The kinds that have a row are wanted from the beginning: the webhook is told of them (ADM-7).
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
        self.lock().crds.len()
    }

    /// From now on it is to be known.
    pub fn want(&self, kind: &Kind) {
        let mut inner = self.lock();
        if !inner.known.contains_key(kind) {
            inner.known.insert(kind.clone(), Looked::default());
            self.due.notify_one();
        }
    }

    /// What is known of a kind.
    pub fn standing(&self, kind: &Kind) -> Standing {
        let inner = self.lock();
        let looked = inner.known.get(kind);
        looked.map_or(Standing::Unknown, |it| it.standing.borrow().clone())
    }

    /// Tells whenever that changes; from now on it is to be known.
    pub fn subscribe(&self, kind: &Kind) -> watch::Receiver<Standing> {
        self.want(kind);
        let mut inner = self.lock();
        let looked = inner.known.entry(kind.clone()).or_default();
        looked.standing.subscribe()
    }

    /// The API server has refused it or does not know it any more: look again.
    pub(super) fn doubt(&self, kind: &Kind) {
        if let Some(looked) = self.lock().known.get_mut(kind) {
            looked.due = Some(Instant::now());
        }
        self.due.notify_one();
    }

    /// Where what we may read is tried: in one of the places that are served.
    pub fn look_in(&self, place: Scope) {
        self.lock().place = place;
    }

    /// Kinds that cannot be bound here; `None` as long as somebody has yet to look.
    pub fn unreadable(&self) -> Option<Vec<UnreadableKind>> {
        let inner = self.lock();
        let mut all = Vec::new();
        for (kind, looked) in &inner.known {
            let missing_rule = match &*looked.standing.borrow() {
                Standing::Unknown => return None,
                Standing::Served(_) | Standing::NotNamespaced => continue,
                Standing::NotInstalled => None,
                Standing::Forbidden(rule) => Some(rule.to_string()),
            };
            all.push(UnreadableKind {
                group: kind.group.to_string(),
                kind: kind.kind.to_string(),
                missing_rule,
            });
        }
        Some(all)
    }

    /// Looks at what is due, for ever. `changed` hears of each kind of which something else is known now.
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
        let mut inner = self.lock();
        let mut due = Vec::new();
        for (kind, looked) in &mut inner.known {
            if looked.due.is_some_and(|at| at <= now) {
                // What is asked for while we look is due again.
                looked.due = None;
                due.push(kind.clone());
            }
        }
        (due, inner.place.clone())
    }

    fn next(&self) -> Option<Instant> {
        let inner = self.lock();
        inner.known.values().filter_map(|looked| looked.due).min()
    }

    /// Answers whether that is news.
    fn found(&self, kind: &Kind, found: Result<Standing, kube::Error>) -> bool {
        let now = Instant::now();
        let mut inner = self.lock();
        let Some(looked) = inner.known.get_mut(kind) else {
            return false;
        };
        let unsettled = looked.arrives_by.is_some_and(|by| now < by);
        let wait = match &found {
            // Discovery follows a CRD that comes or goes, and what is granted with it comes a moment later.
            Ok(Standing::Forbidden(_) | Standing::NotInstalled) if unsettled => Some(ARRIVES),
            Ok(Standing::Forbidden(_)) => Some(doubled(REFUSED, looked.failures, LONGEST_REFUSED)),
            Ok(_) => None,
            Err(error) => {
                warn!(%error, %kind, "discovery fails");
                Some(doubled(RETRY, looked.failures, LONGEST_RETRY))
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

    /// The API server serves a kind.
    #[cfg(test)]
    pub fn serve(&self, group: &'static str, kind: &'static str, resource: ApiResource) {
        let kind = Kind::from(GroupKind { group, kind });
        self.want(&kind);
        self.found(&kind, Ok(Standing::Served(Arc::new(resource))));
    }

    /// A CRD has come, changed or gone.
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Looked {
    fn default() -> Self {
        Self {
            standing: watch::Sender::new(Standing::Unknown),
            due: Some(Instant::now()),
            failures: 0,
            arrives_by: None,
        }
    }
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(longest)
}

impl WatchSink<CrdNameRecord> for Kinds {
    fn relisting(&self, _: &Scope) {
        let mut inner = self.lock();
        inner.missing = inner.crds.keys().cloned().collect();
    }

    fn show(&self, _: &Scope, seen: &Seen<CrdNameRecord>) -> Vec<Enqueue> {
        let metadata = seen.record.metadata();
        let name = &metadata.key.name;
        let mut inner = self.lock();
        inner.missing.retain(|missing| missing != name);
        let version = metadata.resource_version;
        let before = inner.crds.insert(Arc::clone(name), version);
        if before != Some(version) {
            Self::crd_changed(&mut inner, name);
            self.due.notify_one();
        }
        Vec::new()
    }

    fn removed(&self, _: &Scope, seen: &Seen<CrdNameRecord>) -> Vec<Enqueue> {
        let name = &seen.record.metadata().key.name;
        let mut inner = self.lock();
        inner.crds.remove(name);
        Self::crd_changed(&mut inner, name);
        self.due.notify_one();
        Vec::new()
    }

    fn relisted(&self, _: &Scope) -> Vec<Enqueue> {
        let mut inner = self.lock();
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
