//! The index of actors for reviews: who claims a queue name, who binds a target, which actors have pods in a namespace.
//! Filled by one watch; lookups never wait for I/O (ADM-7).

mod clusters;
pub mod ray;
mod record;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asya_shared::api::WorkloadRef;
use asya_shared::claims::{self, Age, Name, Place, Rank, Users};
use asya_shared::config::{Settings, TransportsConfig};
use asya_shared::inject::bound::{ActorInputs, BoundActor};
use asya_shared::key::Key;
use asya_shared::resolve::{ObjectRef, is_open_ended, pods_with};
use asya_shared::validate;
use clusters::Clusters;
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch as signal;

pub use record::{Actor, Seen};
pub use watch::{Contact, follow};

/// The bindings of a namespace.
pub type Bindings = Arc<[Arc<BoundActor>]>;

/// Installation-wide configuration of transports and pods.
#[derive(Debug)]
pub struct Platform {
    pub transports: TransportsConfig,
    pub settings: Settings,
}

/// The index of all actors.
#[derive(Debug)]
pub struct Index {
    /// Configuration that actors are validated against and rendered with.
    pub platform: Platform,
    inner: RwLock<Inner>,
    /// Held by every writer, so that no binding is rendered from stale inputs.
    beside: Mutex<Beside>,
    /// Whether a binding needs a watch of `RayCluster`s.
    wants_clusters: signal::Sender<bool>,
}

/// Inputs of rendering beside the actors.
#[derive(Debug, Default)]
struct Beside {
    /// Hash of the runtime's scripts (ROLL-8).
    scripts_hash: String,
    clusters: Clusters,
}

#[derive(Debug, Default)]
struct Inner {
    actors: HashMap<Key, Entry>,
    by_name: HashMap<Place, Users>,
    /// By namespace.
    bindings: HashMap<Box<str>, OfNamespace>,
    /// Bindings whose pods depend on `RayCluster`s.
    open_ended: HashSet<Key>,
    /// Actors that a running list has not returned yet.
    relist: Option<HashSet<Key>>,
    synced: bool,
}

#[derive(Debug, Default)]
struct OfNamespace {
    keys: HashSet<Key>,
    /// Those with a readable spec and a known kind, for reviews.
    bound: Bindings,
}

/// Index entry of an actor.
#[derive(Debug)]
struct Entry {
    /// Orders actors by age; within a second, the smaller uid comes first.
    age: Age,
    names: Vec<Name>,
    has_queue: bool,
    binding: Option<Binding>,
}

/// Index entry of a binding.
#[derive(Debug)]
struct Binding {
    target: WorkloadRef,
    /// The actor that it is rendered from.
    actor: Arc<Actor>,
    bound: Option<Arc<BoundActor>>,
}

impl Entry {
    fn of(actor: &Arc<Actor>, platform: &Platform, beside: &Beside) -> Self {
        let Key { namespace, name } = &actor.key;
        let told = &actor.told;
        let known = claims::known(told.queue.as_ref(), &told.retired_queues);
        let transport = actor.transport.as_deref();
        let binding = actor.target.clone().map(|target| Binding {
            target,
            bound: render(actor, platform, beside).map(Arc::new),
            actor: Arc::clone(actor),
        });
        Self {
            has_queue: told.queue.is_some() || !told.retired_queues.is_empty(),
            age: Arc::new((
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.uid.clone(),
            )),
            names: claims::names(&platform.transports, (namespace, name), transport, known),
            binding,
        }
    }
}

impl Entry {
    fn rank(&self, name: &Name) -> Rank {
        Rank {
            grip: name.grip,
            age: Arc::clone(&self.age),
        }
    }
}

/// Renders what reviews need of a binding; `None` for a spec that cannot be decoded and for a kind without a resolver.
fn render(actor: &Actor, platform: &Platform, beside: &Beside) -> Option<BoundActor> {
    let spec = validate::decode(actor.spec.as_ref()?.get()).ok()?;
    let resolved = actor.told.resolved_target.as_ref();
    let mut bound = BoundActor::new(&ActorInputs {
        namespace: &actor.key.namespace,
        name: &actor.key.name,
        uid: &actor.uid,
        created: actor.created.as_ref(),
        deleting: actor.deleting,
        spec: &spec,
        role_arn: actor.role_arn.as_deref(),
        bound: actor.told.bound_since.is_some(),
        injection: actor.told.injection.as_ref(),
        resolved,
        transports: &platform.transports,
        settings: &platform.settings,
        scripts_hash: &beside.scripts_hash,
    })?;
    let clusters = beside.clusters.of(&actor.key.namespace);
    if let (true, Some(target), Some(clusters)) = (bound.open_ended, &actor.target, clusters) {
        bound.pods = pods_with(target, resolved, clusters);
    }
    Some(bound)
}

impl Binding {
    /// Whether `target` is the binding's own target, or an object of the namespace that it resolves through.
    fn reaches(&self, target: &WorkloadRef) -> bool {
        let own = &self.target;
        let same =
            own.group() == target.group() && (&own.kind, &own.name) == (&target.kind, &target.name);
        let is_it = |link: &String| link.split_once('/') == Some((&target.kind, &target.name));
        let resolved = self.actor.told.resolved_target.as_ref();
        same || resolved.is_some_and(|it| it.chain.iter().any(is_it))
    }
}

impl Index {
    /// Creates an empty index.
    pub fn new(platform: Platform) -> Self {
        Self {
            platform,
            inner: RwLock::default(),
            beside: Mutex::default(),
            wants_clusters: signal::Sender::new(false),
        }
    }

    /// Whether the cache is synced: a list has completed.
    pub fn is_synced(&self) -> bool {
        self.inner.read().synced
    }

    /// The actors with a queue (QUE-49).
    pub fn with_queues(&self) -> Vec<Key> {
        let inner = self.inner.read();
        let actors = inner.actors.iter().filter(|(_, entry)| entry.has_queue);
        actors.map(|(key, _)| key.clone()).collect()
    }

    pub fn len(&self) -> usize {
        self.inner.read().actors.len()
    }

    /// Returns another actor that has one of the names that `key` would claim on a transport, and the name; of several,
    /// the one that owns it (VAC-4).
    pub fn holder(&self, key: &Key, transport: &str) -> Option<(Key, String)> {
        let transports = &self.platform.transports;
        let names = claims::names(transports, (&key.namespace, &key.name), Some(transport), []);
        let inner = &*self.inner.read();
        let rivals = names.iter().filter_map(|name| {
            let users = inner.by_name.get(&name.place)?;
            let (rank, user) = users.first_rival(key, name.use_)?;
            Some(((rank, user), name))
        });
        let ((_, user), name) = rivals.min_by(|(one, _), (other, _)| one.cmp(other))?;
        Some((user.clone(), name.queue.to_string()))
    }

    /// Returns the oldest other actor that binds `target` in the actor's namespace (VAC-4).
    pub fn binder(&self, key: &Key, target: &WorkloadRef) -> Option<Key> {
        let inner = self.inner.read();
        let bindings = inner.bindings.get(&*key.namespace)?;
        let rivals = bindings.keys.iter().filter(|other| *other != key);
        let rivals = rivals.filter_map(|other| {
            let entry = inner.actors.get(other)?;
            let reaches = entry.binding.as_ref()?.reaches(target);
            reaches.then_some((&entry.age, other))
        });
        rivals.min().map(|(_, other)| other.clone())
    }

    /// The bindings of a namespace, as reviews need them.
    pub fn bindings_in(&self, namespace: &str) -> Bindings {
        let inner = self.inner.read();
        let bindings = inner.bindings.get(namespace);
        bindings.map(|it| Arc::clone(&it.bound)).unwrap_or_default()
    }

    /// Sets the hash of the runtime's scripts and renders all bindings again.
    pub fn scripts(&self, hash: &str) {
        let mut current = self.beside.lock();
        if current.scripts_hash == hash {
            return;
        }
        hash.clone_into(&mut current.scripts_hash);
        self.render_again(&current, |_| true);
    }

    /// Renders the selected bindings again from the current inputs.
    fn render_again(&self, beside: &Beside, which: impl Fn(&Binding) -> bool) {
        let all = self.inner.read();
        let actors = all.actors.values();
        let bindings = actors.filter_map(|entry| entry.binding.as_ref());
        let bindings = bindings.filter(|it| which(it));
        let actors: Vec<_> = bindings.map(|it| Arc::clone(&it.actor)).collect();
        drop(all);
        for actor in actors {
            let entry = Entry::of(&actor, &self.platform, beside);
            self.inner.write().put(&actor.key, entry);
        }
    }

    /// Signals whether a binding needs a watch of `RayCluster`s.
    pub fn wants_clusters(&self) -> signal::Receiver<bool> {
        self.wants_clusters.subscribe()
    }

    /// Adds or updates a `RayCluster` with its controlling owner.
    pub fn show_cluster(&self, key: &Key, owner: Option<ObjectRef>) {
        let mut beside = self.beside.lock();
        if beside.clusters.show(key, owner) {
            self.clusters_changed(&beside, |namespace| *namespace == *key.namespace);
        }
    }

    /// Removes a deleted `RayCluster`.
    pub fn removed_cluster(&self, key: &Key) {
        let mut beside = self.beside.lock();
        beside.clusters.removed(key);
        self.clusters_changed(&beside, |namespace| *namespace == *key.namespace);
    }

    /// Marks the start of a list of `RayCluster`s.
    pub fn relisting_clusters(&self) {
        self.beside.lock().clusters.relisting();
    }

    /// Marks the end of a list of `RayCluster`s.
    pub fn relisted_clusters(&self) {
        let mut beside = self.beside.lock();
        let changed = beside.clusters.relisted();
        self.clusters_changed(&beside, |namespace| changed.contains(namespace));
    }

    /// Forgets all `RayCluster`s, because the watch has stopped.
    pub fn forget_clusters(&self) {
        let mut beside = self.beside.lock();
        let changed = beside.clusters.forget();
        self.clusters_changed(&beside, |namespace| changed.contains(namespace));
    }

    fn clusters_changed(&self, beside: &Beside, changed: impl Fn(&str) -> bool) {
        self.render_again(beside, |binding| {
            changed(&binding.actor.key.namespace) && is_open_ended(&binding.target)
        });
    }

    /// Adds or updates an actor.
    pub fn show(&self, actor: &Arc<Actor>) {
        let beside = self.beside.lock();
        let entry = Entry::of(actor, &self.platform, &beside);
        let mut inner = self.inner.write();
        if let Some(missing) = &mut inner.relist {
            missing.remove(&actor.key);
        }
        inner.put(&actor.key, entry);
        self.tell_wants(&inner);
    }

    /// Removes a deleted actor.
    pub fn removed(&self, key: &Key) {
        let _writing = self.beside.lock();
        let mut inner = self.inner.write();
        inner.remove(key);
        self.tell_wants(&inner);
    }

    /// Marks the start of a list; [`Index::relisted`] removes the actors that the list did not return.
    pub fn relisting(&self) {
        let mut inner = self.inner.write();
        inner.relist = Some(inner.actors.keys().cloned().collect());
    }

    /// Marks the end of a list.
    pub fn relisted(&self) {
        let _writing = self.beside.lock();
        let mut inner = self.inner.write();
        for key in inner.relist.take().unwrap_or_default() {
            inner.remove(&key);
        }
        inner.synced = true;
        self.tell_wants(&inner);
    }

    fn tell_wants(&self, inner: &Inner) {
        let wanted = !inner.open_ended.is_empty();
        self.wants_clusters.send_if_modified(|before| {
            let changed = *before != wanted;
            *before = wanted;
            changed
        });
    }
}

impl Inner {
    /// Inserts or replaces an entry.
    fn put(&mut self, key: &Key, entry: Entry) {
        self.forget(key);
        for name in &entry.names {
            let users = self.by_name.entry(Arc::clone(&name.place)).or_default();
            users.insert(name.use_, entry.rank(name), key.clone());
        }
        let binds = entry.binding.is_some();
        let open_ended = entry.binding.as_ref();
        if open_ended.is_some_and(|it| is_open_ended(&it.target)) {
            self.open_ended.insert(key.clone());
        }
        self.actors.insert(key.clone(), entry);
        self.rebind(key, binds);
    }

    fn remove(&mut self, key: &Key) {
        self.forget(key);
        self.actors.remove(key);
        self.rebind(key, false);
    }

    fn forget(&mut self, key: &Key) {
        self.open_ended.remove(key);
        let Some(entry) = self.actors.get(key) else {
            return;
        };
        for name in &entry.names {
            if let Some(users) = self.by_name.get_mut(&name.place) {
                users.remove(name.use_, entry.rank(name), key.clone());
                if users.is_empty() {
                    self.by_name.remove(&name.place);
                }
            }
        }
    }

    /// Rebuilds the namespace's list of bindings on a change, so that reviews do not have to.
    fn rebind(&mut self, key: &Key, binds: bool) {
        let namespace = &*key.namespace;
        if !binds
            && !self
                .bindings
                .get(namespace)
                .is_some_and(|it| it.keys.contains(key))
        {
            return;
        }
        let of_namespace = self.bindings.entry(namespace.into()).or_default();
        if binds {
            of_namespace.keys.insert(key.clone());
        } else {
            of_namespace.keys.remove(key);
        }
        let actors = of_namespace
            .keys
            .iter()
            .filter_map(|key| self.actors.get(key));
        let bound = actors.filter_map(|it| it.binding.as_ref()?.bound.clone());
        of_namespace.bound = bound.collect();
        if of_namespace.keys.is_empty() {
            self.bindings.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests;
