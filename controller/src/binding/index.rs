//! Index from objects and pods to the actors that bind them. Events about objects that no actor binds are dropped here
//! (BIND-45, BIND-60).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use asya_shared::resolve::{Controller, PodMatch, resolver};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::kinds::Kind;
use super::needed_watches::{NeededWatch, WatchCounts, WatchSubject};
use super::pod_names::TargetsByName;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{ActorRecord, Key, PodCreator, TargetPod};

/// An object that an actor binds to, or that affects how a target resolves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    pub kind: Kind,
    pub key: Key,
}

impl ObjectId {
    pub(super) fn is_in(&self, kind: &Kind, scope: &WatchScope) -> bool {
        self.kind == *kind && scope.covers(&self.key.namespace)
    }
}

#[derive(Debug)]
pub(super) struct Index {
    inner: Mutex<Inner>,
    required_watches: watch::Sender<BTreeSet<NeededWatch>>,
}

#[derive(Debug, Default)]
struct Inner {
    bindings: HashMap<Key, Binding>,
    by_target: HashMap<ObjectId, BTreeSet<Key>>,
    by_namespace: BTreeMap<Arc<str>, BTreeSet<Key>>,
    /// Actors of each namespace by the names of their pods.
    by_pod_name: HashMap<Arc<str>, TargetsByName<Key>>,
    /// Actors by the uid of each object from their target down to its workloads. Actors that share one also share pods.
    by_uid: HashMap<Box<str>, BTreeSet<Key>>,
    /// Actors by the owners of their target.
    by_owner: HashMap<ObjectId, BTreeSet<Key>>,
    watches: WatchCounts,
    /// Actors affected since the last refresh, because the chain of another actor changed.
    pending: HashSet<Key>,
}

#[derive(Debug)]
struct Binding {
    target: ObjectId,
    /// Creation time and uid: the smaller one is older.
    age: (Timestamp, Box<str>),
    pods: Arc<PodMatch>,
    /// Kinds that affect how the target resolves, including its own.
    kinds: BTreeSet<Kind>,
    owners: Vec<ObjectId>,
    /// Uids of the chain of ownerReferences from the target down to its workloads.
    chain: Vec<Box<str>>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            required_watches: watch::Sender::new(BTreeSet::new()),
        }
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.inner.lock().bindings.len()
    }

    pub(super) fn refresh(&self, key: &Key, actor: Option<&ActorRecord>) -> HashSet<Key> {
        let binding = actor.and_then(Binding::of);
        let mut inner = self.inner.lock();
        let mut affected = std::mem::take(&mut inner.pending);
        let is_unchanged = inner
            .bindings
            .get(key)
            .map(|binding| (&binding.target, &binding.age))
            == binding
                .as_ref()
                .map(|binding| (&binding.target, &binding.age));
        if is_unchanged {
            return affected;
        }
        inner.uncount(key);
        affected.extend(inner.drop_binding(key));
        if let Some(binding) = binding {
            affected.extend(inner.actors_of(&binding.target));
            inner.put_binding(key, binding);
        }
        inner.count(key);
        let watches = inner.watches.needed();
        drop(inner);
        self.publish_watches(watches);
        affected
    }

    fn publish_watches(&self, watches: BTreeSet<NeededWatch>) {
        self.required_watches.send_if_modified(|previous| {
            let changed = *previous != watches;
            *previous = watches;
            changed
        });
    }

    pub(super) fn set_pod_match(&self, actor: &Key, pods: &PodMatch) {
        let mut inner = self.inner.lock();
        let Inner {
            bindings,
            by_pod_name,
            ..
        } = &mut *inner;
        if let Some(binding) = bindings.get_mut(actor)
            && *binding.pods != *pods
        {
            let targets = by_pod_name.entry(Arc::clone(&actor.namespace)).or_default();
            targets.remove(&binding.pods, actor);
            targets.insert(pods, actor);
            binding.pods = Arc::new(pods.clone());
        }
    }

    /// Sets the uids of an actor's target and of the objects it consists of, the target's own first.
    pub(super) fn register_target(&self, actor: &Key, chain: Vec<Box<str>>) {
        let mut inner = self.inner.lock();
        if inner
            .bindings
            .get(actor)
            .is_none_or(|binding| binding.chain == chain)
        {
            return;
        }
        inner.remove_from_chain(actor);
        for uid in &chain {
            inner
                .by_uid
                .entry(uid.clone())
                .or_default()
                .insert(actor.clone());
        }
        let sharing = inner.sharing(&chain);
        inner
            .pending
            .extend(sharing.into_iter().filter(|other| other != actor));
        if let Some(binding) = inner.bindings.get_mut(actor) {
            binding.chain = chain;
        }
    }

    /// Records the uid of an actor's target, so that changes of the target's dependents enqueue the actor.
    pub(super) fn record_target_uid(&self, actor: &Key, uid: &str) {
        let is_current = {
            let inner = self.inner.lock();
            let binding = inner.bindings.get(actor);
            binding
                .is_some_and(|binding| binding.chain.first().is_some_and(|first| **first == *uid))
        };
        // A recreated target consists of other objects, so replace the whole chain.
        if !is_current {
            self.register_target(actor, vec![uid.into()]);
        }
    }

    /// Kinds that affect how the actor's target resolves.
    pub(super) fn kinds_of(&self, actor: &Key) -> BTreeSet<Kind> {
        let inner = self.inner.lock();
        let binding = inner.bindings.get(actor);
        binding
            .map(|binding| binding.kinds.clone())
            .unwrap_or_default()
    }

    /// Sets the owners of a target, which affect how it resolves.
    pub(super) fn set_owners(&self, target: &ObjectId, owners: &[ObjectId]) {
        let mut inner = self.inner.lock();
        let mut changed = false;
        for actor in inner.actors_of(target) {
            let previous = inner.bindings.get(&actor).map(|it| it.owners.clone());
            if previous
                .as_deref()
                .is_none_or(|previous| previous == owners)
            {
                continue;
            }
            changed = true;
            inner.uncount(&actor);
            inner.remove_from_owners(&actor);
            for owner in owners {
                let actors = inner.by_owner.entry(owner.clone()).or_default();
                actors.insert(actor.clone());
            }
            if let Some(binding) = inner.bindings.get_mut(&actor) {
                binding.owners = owners.to_vec();
            }
            inner.count(&actor);
        }
        let watches = changed.then(|| inner.watches.needed());
        drop(inner);
        if let Some(watches) = watches {
            self.publish_watches(watches);
        }
    }

    pub(super) fn target_of(&self, actor: &Key) -> Option<ObjectId> {
        let inner = self.inner.lock();
        inner.bindings.get(actor).map(|it| it.target.clone())
    }

    /// The oldest actor that shares a target or workload with this one, if that is another actor.
    pub(super) fn older_binding(&self, actor: &Key) -> Option<Key> {
        let inner = self.inner.lock();
        let own = inner.bindings.get(actor)?;
        let mut candidates = inner.sharing(&own.chain);
        candidates.extend(inner.actors_of(&own.target));
        let by_age = candidates
            .iter()
            .filter_map(|key| Some((&inner.bindings.get(key)?.age, key)));
        let (_, oldest) = by_age.min()?;
        (oldest != actor).then(|| oldest.clone())
    }

    pub(super) fn actors_of(&self, target: &ObjectId) -> Vec<Key> {
        self.inner.lock().actors_of(target)
    }

    /// Targets that are this object or that it owns.
    pub(super) fn targets_affected_by(&self, object: &ObjectId) -> Vec<ObjectId> {
        let inner = self.inner.lock();
        let own = inner.by_target.contains_key(object).then(|| object.clone());
        let owned = inner.by_owner.get(object).into_iter().flatten();
        let owned = owned.filter_map(|actor| inner.bindings.get(actor));
        own.into_iter()
            .chain(owned.map(|it| it.target.clone()))
            .collect()
    }

    pub(super) fn targets_with(&self, uids: &[Box<str>]) -> BTreeSet<ObjectId> {
        let inner = self.inner.lock();
        let actors = uids
            .iter()
            .filter_map(|uid| Some((uid, inner.by_uid.get(uid)?)));
        let bindings = actors.flat_map(|(uid, actors)| {
            let all = actors.iter().filter_map(|actor| inner.bindings.get(actor));
            all.filter(move |binding| binding.chain.first() == Some(uid))
        });
        bindings.map(|it| it.target.clone()).collect()
    }

    pub(super) fn actors_with<R: TargetPod>(&self, pod: &R) -> Vec<Key> {
        let inner = self.inner.lock();
        let namespace = &*pod.metadata().key.namespace;
        let Some(targets) = inner.by_pod_name.get(namespace) else {
            return Vec::new();
        };
        let actors = targets.candidates(pod.lookup_names()).into_iter();
        let matches = |actor: &&Key| {
            inner
                .bindings
                .get(*actor)
                .is_some_and(|binding| pod.is_one_of(&binding.pods))
        };
        actors.filter(matches).cloned().collect()
    }

    /// Actors in a namespace for which this object can create pods.
    pub(super) fn actors_with_pod_controller(
        &self,
        namespace: &Arc<str>,
        creator: &PodCreator,
    ) -> Vec<Key> {
        let controller = Controller {
            api_version: &creator.api_version,
            kind: &creator.kind,
            name: &creator.name,
        };
        let scope = WatchScope::Namespace(Arc::clone(namespace));
        self.actors_where(&scope, |binding| binding.pods.owner.is_met_by(&controller))
    }

    pub(super) fn actors_in(&self, scope: &WatchScope) -> Vec<Key> {
        self.actors_where(scope, |_| true)
    }

    /// Actors in a scope whose target is affected by objects of this kind.
    pub(super) fn actors_affected_by_kind(&self, kind: &Kind, scope: &WatchScope) -> Vec<Key> {
        self.actors_where(scope, |binding| {
            binding.kinds.contains(kind) || binding.owners.iter().any(|owner| owner.kind == *kind)
        })
    }

    fn actors_where(&self, scope: &WatchScope, predicate: impl Fn(&Binding) -> bool) -> Vec<Key> {
        let inner = self.inner.lock();
        let namespaces = inner.by_namespace.iter();
        let in_scope = namespaces.filter(|(namespace, _)| scope.covers(namespace));
        let actors = in_scope.flat_map(|(_, actors)| actors);
        let matching = actors.filter(|key| inner.bindings.get(*key).is_some_and(&predicate));
        matching.cloned().collect()
    }

    pub(super) fn watches(&self) -> watch::Receiver<BTreeSet<NeededWatch>> {
        self.required_watches.subscribe()
    }
}

impl Binding {
    fn of(actor: &ActorRecord) -> Option<Self> {
        let binds_to = actor.binds_to.as_ref()?;
        let resolver = resolver(binds_to.group(), &binds_to.kind);
        let kind = Kind::from(asya_shared::resolve::GroupKind {
            group: binds_to.group(),
            kind: &binds_to.kind,
        });
        let related = resolver.related().iter().map(|kind| Kind::from(*kind));
        Some(Self {
            kinds: related.chain([kind.clone()]).collect(),
            target: ObjectId {
                kind,
                key: Key::new(&actor.metadata.key.namespace, &binds_to.name),
            },
            age: (
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.metadata.uid.clone(),
            ),
            pods: Arc::new(resolver.unresolved_pods(&binds_to.name)),
            owners: Vec::new(),
            chain: Vec::new(),
        })
    }

    /// The watches that it needs, without duplicates.
    fn subjects(&self) -> BTreeSet<WatchSubject> {
        let owners = self.owners.iter().map(|owner| &owner.kind);
        let kinds = self.kinds.iter().chain(owners).cloned();
        let subjects = kinds.map(WatchSubject::Objects);
        subjects
            .chain([WatchSubject::Pods, WatchSubject::Constraints])
            .collect()
    }
}

impl Inner {
    fn actors_of(&self, target: &ObjectId) -> Vec<Key> {
        let actors = self.by_target.get(target).into_iter().flatten();
        actors.cloned().collect()
    }

    fn sharing(&self, chain: &[Box<str>]) -> BTreeSet<Key> {
        let actors = chain.iter().filter_map(|uid| self.by_uid.get(uid));
        actors.flatten().cloned().collect()
    }

    fn put_binding(&mut self, key: &Key, binding: Binding) {
        let of_target = self.by_target.entry(binding.target.clone()).or_default();
        of_target.insert(key.clone());
        let namespace = Arc::clone(&key.namespace);
        let targets = self.by_pod_name.entry(Arc::clone(&namespace)).or_default();
        targets.insert(&binding.pods, key);
        self.by_namespace
            .entry(namespace)
            .or_default()
            .insert(key.clone());
        self.bindings.insert(key.clone(), binding);
    }

    /// Removes a binding. Returns the other actors that share its target or a workload.
    fn drop_binding(&mut self, key: &Key) -> HashSet<Key> {
        let mut others: HashSet<Key> = self.remove_from_chain(key).into_iter().collect();
        self.remove_from_owners(key);
        let Some(binding) = self.bindings.remove(key) else {
            return HashSet::new();
        };
        if let Some(actors) = self.by_target.get_mut(&binding.target) {
            actors.remove(key);
            others.extend(actors.iter().cloned());
            if actors.is_empty() {
                self.by_target.remove(&binding.target);
            }
        }
        if let Some(targets) = self.by_pod_name.get_mut(&key.namespace) {
            targets.remove(&binding.pods, key);
        }
        if let Some(actors) = self.by_namespace.get_mut(&key.namespace) {
            actors.remove(key);
            if actors.is_empty() {
                self.by_namespace.remove(&key.namespace);
                self.by_pod_name.remove(&key.namespace);
            }
        }
        others
    }

    /// Removes the actor from the objects of its chain. Returns the actors that shared one of them.
    fn remove_from_chain(&mut self, actor: &Key) -> BTreeSet<Key> {
        let Some(binding) = self.bindings.get_mut(actor) else {
            return BTreeSet::new();
        };
        let mut others = BTreeSet::new();
        for uid in std::mem::take(&mut binding.chain) {
            others.extend(leave(&mut self.by_uid, &uid, actor));
        }
        others
    }

    fn remove_from_owners(&mut self, actor: &Key) {
        let Some(binding) = self.bindings.get_mut(actor) else {
            return;
        };
        for owner in std::mem::take(&mut binding.owners) {
            leave(&mut self.by_owner, &owner, actor);
        }
    }

    /// Counts an actor's binding among those that need watches, or takes that back before it changes.
    fn count(&mut self, key: &Key) {
        if let Some(binding) = self.bindings.get(key) {
            self.watches.add(binding.subjects(), &key.namespace);
        }
    }

    fn uncount(&mut self, key: &Key) {
        if let Some(binding) = self.bindings.get(key) {
            self.watches.remove(binding.subjects(), &key.namespace);
        }
    }
}

/// Removes an actor from an index entry. Returns the remaining actors.
fn leave<K: std::hash::Hash + Eq>(
    index: &mut HashMap<K, BTreeSet<Key>>,
    at: &K,
    actor: &Key,
) -> Vec<Key> {
    let Some(actors) = index.get_mut(at) else {
        return Vec::new();
    };
    actors.remove(actor);
    let others = actors.iter().cloned().collect();
    if actors.is_empty() {
        index.remove(at);
    }
    others
}
