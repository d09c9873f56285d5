//! The objects that actors bind to: read when a watch says that they have changed, and not before (BIND-61).

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asya_shared::resolve::{GroupKind, Related, Resolution, resolver};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use serde_json::Value;

use super::{Bindings, Target};
use crate::record::{Concerns, Key, Record, Seen, TargetRecord};
use crate::store::Scope;
use crate::watch::Keeps;

/// What a target says.
#[derive(Debug)]
pub struct Reading {
    /// What that means.
    pub resolution: Resolution,
    /// Pods that it asks for, where it says so.
    pub replicas: Option<i32>,
}

/// What stands under a target's name.
#[derive(Clone, Debug)]
pub enum Found {
    /// This.
    Read(Arc<Reading>),
    /// Nothing.
    Absent,
}

#[derive(Debug, Default)]
pub struct Targets {
    known: Mutex<HashMap<Target, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// What a watch has shown since; an answer to an earlier question is old.
    events: u64,
    found: Option<(u64, Found)>,
}

impl Targets {
    /// What stands under a target's name. Asks the API server only if a watch has shown something since it was asked last.
    ///
    /// # Errors
    /// When the API server does not tell.
    pub async fn read(&self, client: &Client, target: &Target) -> Result<Found, kube::Error> {
        let events = {
            let mut known = self.lock();
            let known = known.entry(target.clone()).or_default();
            if let Some((_, found)) = &known.found {
                return Ok(found.clone());
            }
            known.events
        };
        let Some(resource) = resource(target.kind) else {
            return Ok(Found::Absent);
        };
        let Key { namespace, name } = &target.key;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let live = api.get_opt(name).await?;
        let version = live
            .as_ref()
            .and_then(|live| live.metadata.resource_version.as_deref());
        let version = version
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        let found = match live.and_then(|live| Reading::of(target, &live)) {
            Some(reading) => Found::Read(Arc::new(reading)),
            None => Found::Absent,
        };
        let mut known = self.lock();
        if let Some(known) = known.get_mut(target)
            && known.events == events
        {
            known.found = Some((version, found.clone()));
        }
        Ok(found)
    }

    /// Forgets those that nobody binds any more.
    pub(super) fn keep(&self, is_bound: impl Fn(&Target) -> bool) {
        self.lock().retain(|target, _| is_bound(target));
    }

    /// Answers whether what is known is old.
    fn saw(&self, target: &Target, version: u64) -> bool {
        let mut known = self.lock();
        let known = known.entry(target.clone()).or_default();
        if matches!(known.found, Some((read, Found::Read(_))) if read >= version) {
            return false;
        }
        known.events += 1;
        known.found = None;
        true
    }

    /// Answers whether that is news.
    fn gone(&self, target: &Target) -> bool {
        let mut known = self.lock();
        let known = known.entry(target.clone()).or_default();
        known.events += 1;
        let before = known.found.replace((0, Found::Absent));
        !matches!(before, Some((_, Found::Absent)))
    }

    fn of_kind(&self, kind: GroupKind<'static>, scope: &Scope) -> HashSet<Key> {
        let known = self.lock();
        let targets = known.keys().filter(|target| {
            target.kind == kind && scope.as_ref().is_none_or(|it| *it == target.key.namespace)
        });
        targets.map(|target| target.key.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Target, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    fn of(target: &Target, live: &DynamicObject) -> Option<Self> {
        let GroupKind { group, kind } = target.kind;
        let object = serde_json::to_value(live).ok()?;
        Some(Self {
            resolution: resolver(group, kind)?.resolve(&object, &Related::default()),
            replicas: object
                .pointer("/spec/replicas")
                .and_then(Value::as_i64)
                .and_then(|replicas| replicas.try_into().ok()),
        })
    }
}

/// How the API server knows a kind.
fn resource(kind: GroupKind<'static>) -> Option<ApiResource> {
    match (kind.group, kind.kind) {
        ("apps", "Deployment") => Some(ApiResource::erase::<Deployment>(&())),
        ("apps", "StatefulSet") => Some(ApiResource::erase::<StatefulSet>(&())),
        _ => None,
    }
}

/// What a watch of a kind keeps true: only what is bound is remembered.
pub(super) struct TargetWatch<K> {
    bindings: Arc<Bindings>,
    kind: GroupKind<'static>,
    /// What a running relist has yet to show.
    missing: Mutex<HashSet<Key>>,
    of: PhantomData<fn() -> K>,
}

impl<K> TargetWatch<K> {
    pub(super) fn new(bindings: &Arc<Bindings>, kind: GroupKind<'static>) -> Self {
        Self {
            bindings: Arc::clone(bindings),
            kind,
            missing: Mutex::default(),
            of: PhantomData,
        }
    }

    fn missing(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, and who binds it.
    fn bound(&self, key: &Key) -> (Target, Vec<Concerns>) {
        let target = Target {
            kind: self.kind,
            key: key.clone(),
        };
        let actors = self.bindings.index.actors_of(&target).into_iter();
        let concerned = actors.map(Concerns::Actor).collect();
        (target, concerned)
    }

    fn gone(&self, key: &Key) -> Vec<Concerns> {
        let (target, concerned) = self.bound(key);
        let news = !concerned.is_empty() && self.bindings.targets.gone(&target);
        if news { concerned } else { Vec::new() }
    }
}

impl<K> Keeps<TargetRecord<K>> for TargetWatch<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    fn relisting(&self, scope: &Scope) {
        *self.missing() = self.bindings.targets.of_kind(self.kind, scope);
    }

    fn show(&self, _: &Scope, seen: &Seen<TargetRecord<K>>) -> Vec<Concerns> {
        let metadata = seen.record.metadata();
        self.missing().remove(&metadata.key);
        let (target, concerned) = self.bound(&metadata.key);
        let targets = &self.bindings.targets;
        let news = !concerned.is_empty() && targets.saw(&target, metadata.resource_version);
        if news { concerned } else { Vec::new() }
    }

    fn removed(&self, _: &Scope, seen: &Seen<TargetRecord<K>>) -> Vec<Concerns> {
        self.gone(&seen.record.metadata().key)
    }

    fn relisted(&self, _: &Scope) -> Vec<Concerns> {
        let missing = std::mem::take(&mut *self.missing());
        missing.iter().flat_map(|key| self.gone(key)).collect()
    }
}
