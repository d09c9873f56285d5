//! Which actor binds what (BIND-45, BIND-60): an object or a pod that nobody binds ends here.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asya_shared::resolve::{GroupKind, PodMatch, resolver};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use crate::record::{ActorRecord, BarePodRecord, Key};
use crate::store::Scope;

/// Above so many namespaces one watch of the whole cluster is cheaper (BIND-61).
const MOST_NAMESPACES: usize = 50;

/// An object that an actor binds to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Its kind.
    pub kind: GroupKind<'static>,
    /// Its namespace and name.
    pub key: Key,
}

/// What has to be watched, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) what: What,
    pub(super) scope: Scope,
}

/// What has to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// Pods without an actor's label.
    Pods,
    /// Objects of a kind that is bound.
    Targets(GroupKind<'static>),
}

#[derive(Debug)]
pub(super) struct Index {
    inner: Mutex<Inner>,
    places: watch::Sender<BTreeSet<Place>>,
}

#[derive(Debug, Default)]
struct Inner {
    bindings: HashMap<Key, Binding>,
    by_target: HashMap<Target, BTreeSet<Key>>,
    by_namespace: BTreeMap<Arc<str>, BTreeSet<Key>>,
}

#[derive(Debug)]
struct Binding {
    target: Target,
    /// Of two the smaller came first.
    age: (Timestamp, Box<str>),
    pods: Arc<PodMatch>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            places: watch::Sender::new(BTreeSet::new()),
        }
    }
}

impl Index {
    pub(super) fn refresh(&self, key: &Key, actor: Option<&ActorRecord>) -> HashSet<Key> {
        let binding = actor.and_then(Binding::of);
        let mut inner = self.lock();
        let same = inner.bindings.get(key).map(|it| (&it.target, &it.age))
            == binding.as_ref().map(|it| (&it.target, &it.age));
        if same {
            return HashSet::new();
        }
        let mut concerned: HashSet<Key> = inner.drop_binding(key);
        if let Some(binding) = binding {
            concerned.extend(inner.actors_of(&binding.target));
            inner.put_binding(key, binding);
        }
        let places = inner.places();
        drop(inner);
        self.places.send_if_modified(|before| {
            let changed = *before != places;
            *before = places;
            changed
        });
        concerned
    }

    pub(super) fn expect(&self, actor: &Key, pods: &PodMatch) {
        if let Some(binding) = self.lock().bindings.get_mut(actor)
            && *binding.pods != *pods
        {
            binding.pods = Arc::new(pods.clone());
        }
    }

    pub(super) fn target_of(&self, actor: &Key) -> Option<Target> {
        let inner = self.lock();
        inner.bindings.get(actor).map(|it| it.target.clone())
    }

    pub(super) fn owner_before(&self, actor: &Key) -> Option<Key> {
        let inner = self.lock();
        let own = inner.bindings.get(actor)?;
        let rivals = inner.by_target.get(&own.target)?.iter();
        let older = rivals.filter_map(|key| Some((&inner.bindings.get(key)?.age, key)));
        let first = older.min()?;
        (first.1 != actor).then(|| first.1.clone())
    }

    pub(super) fn actors_of(&self, target: &Target) -> Vec<Key> {
        self.lock().actors_of(target)
    }

    pub(super) fn actors_with(&self, pod: &BarePodRecord) -> Vec<Key> {
        let inner = self.lock();
        let namespace = &*pod.metadata.key.namespace;
        let actors = inner.by_namespace.get(namespace).into_iter().flatten();
        let expects = |actor: &&Key| {
            inner
                .bindings
                .get(*actor)
                .is_some_and(|it| pod.is_one_of(&it.pods))
        };
        actors.filter(expects).cloned().collect()
    }

    pub(super) fn actors_in(&self, scope: &Scope) -> Vec<Key> {
        let inner = self.lock();
        let namespaces = inner.by_namespace.iter();
        let inside = namespaces.filter(|(name, _)| scope.as_ref().is_none_or(|it| it == *name));
        inside.flat_map(|(_, actors)| actors).cloned().collect()
    }

    pub(super) fn places(&self) -> watch::Receiver<BTreeSet<Place>> {
        self.places.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic between two map operations leaves all usable: the next event of the actor repairs them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Binding {
    /// `None` for a kind that nobody can resolve.
    fn of(actor: &ActorRecord) -> Option<Self> {
        let binds_to = actor.binds_to.as_ref()?;
        let resolver = resolver(binds_to.group(), &binds_to.kind)?;
        Some(Self {
            target: Target {
                kind: resolver.group_kind(),
                key: Key::new(&actor.metadata.key.namespace, &binds_to.name),
            },
            age: (
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.metadata.uid.clone(),
            ),
            pods: Arc::new(resolver.convention(&binds_to.name)),
        })
    }
}

impl Inner {
    fn actors_of(&self, target: &Target) -> Vec<Key> {
        let actors = self.by_target.get(target).into_iter().flatten();
        actors.cloned().collect()
    }

    fn put_binding(&mut self, key: &Key, binding: Binding) {
        let of_target = self.by_target.entry(binding.target.clone()).or_default();
        of_target.insert(key.clone());
        let namespace = Arc::clone(&key.namespace);
        self.by_namespace
            .entry(namespace)
            .or_default()
            .insert(key.clone());
        self.bindings.insert(key.clone(), binding);
    }

    /// Answers who else binds the same.
    fn drop_binding(&mut self, key: &Key) -> HashSet<Key> {
        let Some(binding) = self.bindings.remove(key) else {
            return HashSet::new();
        };
        let mut others = HashSet::new();
        if let Some(actors) = self.by_target.get_mut(&binding.target) {
            actors.remove(key);
            others.extend(actors.iter().cloned());
            if actors.is_empty() {
                self.by_target.remove(&binding.target);
            }
        }
        if let Some(actors) = self.by_namespace.get_mut(&key.namespace) {
            actors.remove(key);
            if actors.is_empty() {
                self.by_namespace.remove(&key.namespace);
            }
        }
        others
    }

    fn places(&self) -> BTreeSet<Place> {
        let mut namespaces: BTreeMap<What, BTreeSet<Arc<str>>> = BTreeMap::new();
        for target in self.by_target.keys() {
            for what in [What::Pods, What::Targets(target.kind)] {
                let of_it = namespaces.entry(what).or_default();
                of_it.insert(Arc::clone(&target.key.namespace));
            }
        }
        let scopes = namespaces.into_iter().flat_map(|(what, names)| {
            let scopes: Vec<Scope> = if names.len() > MOST_NAMESPACES {
                vec![None]
            } else {
                names.into_iter().map(Some).collect()
            };
            scopes.into_iter().map(move |scope| Place { what, scope })
        });
        scopes.collect()
    }
}
