//! The actors, as reviews ask for them: who claims a queue's name, who binds a target, which actors have pods
//! in a namespace. Filled by one watch; asked without waiting for anything (ADM-7).

mod clusters;
pub mod ray;
mod record;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use asya_shared::api::WorkloadRef;
use asya_shared::claims::{self, Age, Name, Place, Rank, Users};
use asya_shared::config::{Settings, TransportsConfig};
use asya_shared::inject::bound::{ActorInputs, BoundActor};
use asya_shared::key::Key;
use asya_shared::resolve::{ObjectRef, is_open_ended, pods_with};
use asya_shared::validate;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch as signal;

pub use record::{Actor, Seen};
pub use watch::{Contact, follow};

use clusters::Clusters;

/// The bindings of a namespace.
pub type Bindings = Arc<[Arc<BoundActor>]>;

/// What every pod gets from the installation.
#[derive(Debug)]
pub struct Platform {
    /// The configured transports.
    pub transports: TransportsConfig,
    /// What else pods need to know of it.
    pub settings: Settings,
}

/// All actors.
#[derive(Debug)]
pub struct Index {
    /// What they are judged by.
    pub platform: Platform,
    inner: RwLock<Inner>,
    /// Who changes anything holds it, so that nothing is rendered by what was known before.
    beside: Mutex<Beside>,
    /// Whether a binding asks for `RayCluster`s.
    wants_clusters: signal::Sender<bool>,
}

/// What bindings are rendered from, beside their actors.
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
    /// What a running list has yet to show.
    relist: Option<HashSet<Key>>,
    synced: bool,
}

#[derive(Debug, Default)]
struct OfNamespace {
    keys: HashSet<Key>,
    /// Those whose spec can be read and whose kind is known, for reviews.
    bound: Bindings,
}

/// What is kept of an actor.
#[derive(Debug)]
struct Entry {
    /// The older comes first; among those of one second the one with the smaller uid.
    age: Age,
    names: Vec<Name>,
    has_queue: bool,
    binding: Option<Binding>,
}

/// What is kept of a binding.
#[derive(Debug)]
struct Binding {
    target: WorkloadRef,
    /// What it is rendered from.
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

/// What a review needs of a binding; none of a spec that the types cannot hold, or of a kind without a resolver.
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
    /// Whether it is an object, or leads to it, of the same namespace.
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
    /// Without actors yet.
    pub fn new(platform: Platform) -> Self {
        Self {
            platform,
            inner: RwLock::default(),
            beside: Mutex::default(),
            wants_clusters: signal::Sender::new(false),
        }
    }

    /// Whether a list has been complete.
    pub fn is_synced(&self) -> bool {
        self.read().synced
    }

    /// The actors with a queue (QUE-49).
    pub fn with_queues(&self) -> Vec<Key> {
        let inner = self.read();
        let actors = inner.actors.iter().filter(|(_, entry)| entry.has_queue);
        actors.map(|(key, _)| key.clone()).collect()
    }

    /// Number of actors.
    pub fn len(&self) -> usize {
        self.read().actors.len()
    }

    /// Who else has one of the names that an actor would claim on a transport, and the name; of several the one
    /// that owns it (VAC-4).
    pub fn holder(&self, key: &Key, transport: &str) -> Option<(Key, String)> {
        let transports = &self.platform.transports;
        let names = claims::names(transports, (&key.namespace, &key.name), Some(transport), []);
        let inner = &*self.read();
        let rivals = names.iter().filter_map(|name| {
            let users = inner.by_name.get(&name.place)?;
            let (rank, user) = users.first_rival(key, name.use_)?;
            Some(((rank, user), name))
        });
        let ((_, user), name) = rivals.min_by(|(one, _), (other, _)| one.cmp(other))?;
        Some((user.clone(), name.queue.to_string()))
    }

    /// The oldest other actor that binds a target in the actor's namespace (VAC-4).
    pub fn binder(&self, key: &Key, target: &WorkloadRef) -> Option<Key> {
        let inner = self.read();
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
        let inner = self.read();
        let bindings = inner.bindings.get(namespace);
        bindings.map(|it| Arc::clone(&it.bound)).unwrap_or_default()
    }

    /// The runtime's scripts have this hash now.
    pub fn scripts(&self, hash: &str) {
        let mut current = self.writing();
        if current.scripts_hash == hash {
            return;
        }
        hash.clone_into(&mut current.scripts_hash);
        self.render_again(&current, |_| true);
    }

    /// Renders bindings anew, by what is known beside them by now.
    fn render_again(&self, beside: &Beside, which: impl Fn(&Binding) -> bool) {
        let all = self.read();
        let actors = all.actors.values();
        let bindings = actors.filter_map(|entry| entry.binding.as_ref());
        let bindings = bindings.filter(|it| which(it));
        let actors: Vec<_> = bindings.map(|it| Arc::clone(&it.actor)).collect();
        drop(all);
        for actor in actors {
            let entry = Entry::of(&actor, &self.platform, beside);
            self.write().put(&actor.key, entry);
        }
    }

    /// Tells whether a binding needs to know of `RayCluster`s.
    pub fn wants_clusters(&self) -> signal::Receiver<bool> {
        self.wants_clusters.subscribe()
    }

    /// A `RayCluster` is there, with this controller owner.
    pub fn show_cluster(&self, key: &Key, owner: Option<ObjectRef>) {
        let mut beside = self.writing();
        if beside.clusters.show(key, owner) {
            self.clusters_changed(&beside, |namespace| *namespace == *key.namespace);
        }
    }

    /// A `RayCluster` is gone.
    pub fn removed_cluster(&self, key: &Key) {
        let mut beside = self.writing();
        beside.clusters.removed(key);
        self.clusters_changed(&beside, |namespace| *namespace == *key.namespace);
    }

    /// A list of `RayCluster`s begins.
    pub fn relisting_clusters(&self) {
        self.writing().clusters.relisting();
    }

    /// A list of `RayCluster`s is complete.
    pub fn relisted_clusters(&self) {
        let mut beside = self.writing();
        let changed = beside.clusters.relisted();
        self.clusters_changed(&beside, |namespace| changed.contains(namespace));
    }

    /// Nobody watches `RayCluster`s any more.
    pub fn forget_clusters(&self) {
        let mut beside = self.writing();
        let changed = beside.clusters.forget();
        self.clusters_changed(&beside, |namespace| changed.contains(namespace));
    }

    fn clusters_changed(&self, beside: &Beside, changed: impl Fn(&str) -> bool) {
        self.render_again(beside, |binding| {
            changed(&binding.actor.key.namespace) && is_open_ended(&binding.target)
        });
    }

    /// An actor is there, or has changed.
    pub fn show(&self, actor: &Arc<Actor>) {
        let beside = self.writing();
        let entry = Entry::of(actor, &self.platform, &beside);
        let mut inner = self.write();
        if let Some(missing) = &mut inner.relist {
            missing.remove(&actor.key);
        }
        inner.put(&actor.key, entry);
        self.tell_wants(&inner);
    }

    /// An actor is gone.
    pub fn removed(&self, key: &Key) {
        let _writing = self.writing();
        let mut inner = self.write();
        inner.remove(key);
        self.tell_wants(&inner);
    }

    /// A list begins: what it does not show until [`Index::relisted`] is gone.
    pub fn relisting(&self) {
        let mut inner = self.write();
        inner.relist = Some(inner.actors.keys().cloned().collect());
    }

    /// A list is complete.
    pub fn relisted(&self) {
        let _writing = self.writing();
        let mut inner = self.write();
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

    fn writing(&self) -> MutexGuard<'_, Beside> {
        let writing = self.beside.lock();
        writing.unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        // A panic between two map operations leaves all maps usable: the next list repairs them.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// In place of what was there.
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

    /// Makes the namespace's list anew: one change costs that, and each review nothing.
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
