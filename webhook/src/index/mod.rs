//! The index of actors for reviews, by claimed queue name, bound target and namespace. Watches fill it; lookups never
//! wait for I/O (ADM-7).

mod clusters;
pub mod ray;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asya_shared::api::WorkloadRef;
use asya_shared::config::{Settings, TransportsConfig};
use asya_shared::inject::bound::BoundActor;
use asya_shared::key::Key;
use asya_shared::queue_claims::{self, Age, BrokerAddress, Claimants, ClaimedName, Rank};
use asya_shared::resolve::{ObjectRef, has_intermediate_owners};
use asya_shared::review::{BindingInputs, bound_actor};
use clusters::Clusters;
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch::{Receiver, Sender};

pub use asya_shared::review::{Actor, ProjectedActor};
pub use watch::{LastResponse, follow};

/// The bindings of a namespace.
pub type Bindings = Arc<[Arc<BoundActor>]>;

/// Installation-wide configuration of transports and pods.
#[derive(Debug)]
pub struct Installation {
    pub transports: TransportsConfig,
    pub settings: Settings,
}

/// The index of all actors.
#[derive(Debug)]
pub struct Index {
    /// Configuration that actors are validated against and rendered with.
    pub installation: Installation,
    inner: RwLock<Inner>,
    /// Locked by every writer that renders or removes bindings, so that none is rendered from stale inputs.
    inputs: Mutex<RenderInputs>,
    /// Whether a binding needs a watch of `RayCluster`s.
    clusters_needed: Sender<bool>,
}

/// Inputs for rendering bindings, besides the actors.
#[derive(Debug, Default)]
struct RenderInputs {
    /// Hash of the runtime's scripts (ROLL-8).
    scripts_hash: String,
    clusters: Clusters,
}

#[derive(Debug, Default)]
struct Inner {
    actors: HashMap<Key, Entry>,
    by_name: HashMap<BrokerAddress, Claimants>,
    bindings: HashMap<Box<str>, NamespaceBindings>,
    /// Bindings whose pods depend on `RayCluster`s.
    with_intermediate_owners: HashSet<Key>,
    /// Actors that the list in progress has not returned yet.
    not_yet_listed: Option<HashSet<Key>>,
    synced: bool,
}

#[derive(Debug, Default)]
struct NamespaceBindings {
    keys: HashSet<Key>,
    /// Bindings with a decodable spec and a known kind, for reviews.
    bound: Bindings,
}

/// Index entry of an actor.
#[derive(Debug)]
struct Entry {
    /// Orders actors by age; within a second, the smaller uid comes first.
    age: Age,
    names: Vec<ClaimedName>,
    /// Whether the broker marks the actor's queue as another's.
    refused: bool,
    has_queue: bool,
    binding: Option<Binding>,
}

/// Index entry of a binding.
#[derive(Debug)]
struct Binding {
    target: WorkloadRef,
    /// The actor that the binding is rendered from.
    actor: Arc<Actor>,
    bound: Option<Arc<BoundActor>>,
}

impl Entry {
    fn of(actor: &Arc<Actor>, installation: &Installation, inputs: &RenderInputs) -> Self {
        let Key { namespace, name } = &actor.key;
        let status = &actor.status;
        let recorded = queue_claims::recorded_queues(status.queue.as_ref(), &status.retired_queues);
        let transport = actor.transport.as_deref();
        let binding = actor.target.clone().map(|target| Binding {
            target,
            bound: render(actor, installation, inputs).map(Arc::new),
            actor: Arc::clone(actor),
        });
        Self {
            refused: status.queue_marked_for_other,
            has_queue: status.queue.is_some() || !status.retired_queues.is_empty(),
            age: Arc::new((
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.uid.clone(),
            )),
            names: queue_claims::names(
                &installation.transports,
                (namespace, name),
                transport,
                recorded,
            ),
            binding,
        }
    }
}

impl Entry {
    fn rank(&self, name: &ClaimedName) -> Rank {
        Rank {
            priority: name.priority.after_answer(self.refused),
            age: Arc::clone(&self.age),
        }
    }
}

fn render(actor: &Actor, installation: &Installation, inputs: &RenderInputs) -> Option<BoundActor> {
    let inputs = BindingInputs {
        transports: &installation.transports,
        settings: &installation.settings,
        scripts_hash: &inputs.scripts_hash,
        clusters: inputs.clusters.of(&actor.key.namespace),
    };
    bound_actor(actor, &inputs)
}

impl Binding {
    /// Whether `target` is the binding's own target, or in the chain of objects that it resolves through.
    fn has_in_chain(&self, target: &WorkloadRef) -> bool {
        let bound = &self.target;
        let is_target = bound.group() == target.group()
            && (&bound.kind, &bound.name) == (&target.kind, &target.name);
        let is_in_chain =
            |link: &String| link.split_once('/') == Some((&target.kind, &target.name));
        let resolved = self.actor.status.resolved_target.as_ref();
        is_target || resolved.is_some_and(|resolved| resolved.chain.iter().any(is_in_chain))
    }
}

impl Index {
    /// Creates an empty index.
    pub fn new(installation: Installation) -> Self {
        Self {
            installation,
            inner: RwLock::default(),
            inputs: Mutex::default(),
            clusters_needed: Sender::new(false),
        }
    }

    /// Whether the cache is synced.
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

    /// Returns another actor that claims one of the queue names that `key` would claim on a transport, and the name; of
    /// several, the holder (VAC-4).
    pub fn taken_queue_name(&self, key: &Key, transport: &str) -> Option<(Key, String)> {
        let transports = &self.installation.transports;
        let names =
            queue_claims::names(transports, (&key.namespace, &key.name), Some(transport), []);
        let inner = &*self.inner.read();
        let claimed = names.iter().filter_map(|name| {
            let claimants = inner.by_name.get(&name.address)?;
            let (rank, claimant) = claimants.first_competing_claimant(key, name.kind)?;
            Some(((rank, claimant), name))
        });
        let ((_, claimant), name) = claimed.min_by(|(one, _), (other, _)| one.cmp(other))?;
        Some((claimant.clone(), name.queue.to_string()))
    }

    /// Returns the oldest other actor in the namespace that binds `target` (VAC-4).
    pub fn other_binding(&self, key: &Key, target: &WorkloadRef) -> Option<Key> {
        let inner = self.inner.read();
        let bindings = inner.bindings.get(&*key.namespace)?;
        let others = bindings.keys.iter().filter(|other| *other != key);
        let others = others.filter_map(|other| {
            let entry = inner.actors.get(other)?;
            let is_bound = entry.binding.as_ref()?.has_in_chain(target);
            is_bound.then_some((&entry.age, other))
        });
        others.min().map(|(_, other)| other.clone())
    }

    /// The bindings of a namespace, as reviews need them.
    pub fn bindings_in(&self, namespace: &str) -> Bindings {
        let inner = self.inner.read();
        let bindings = inner.bindings.get(namespace);
        bindings
            .map(|namespace_bindings| Arc::clone(&namespace_bindings.bound))
            .unwrap_or_default()
    }

    /// Sets the hash of the runtime's scripts and renders all bindings again.
    pub fn set_scripts_hash(&self, hash: &str) {
        let mut current = self.inputs.lock();
        if current.scripts_hash == hash {
            return;
        }
        hash.clone_into(&mut current.scripts_hash);
        self.render_again(&current, |_| true);
    }

    /// Renders the selected bindings again from the current inputs.
    fn render_again(&self, inputs: &RenderInputs, selects: impl Fn(&Binding) -> bool) {
        let inner = self.inner.read();
        let actors = inner.actors.values();
        let bindings = actors.filter_map(|entry| entry.binding.as_ref());
        let bindings = bindings.filter(|binding| selects(binding));
        let actors: Vec<_> = bindings.map(|binding| Arc::clone(&binding.actor)).collect();
        drop(inner);
        for actor in actors {
            let entry = Entry::of(&actor, &self.installation, inputs);
            self.inner.write().put(&actor.key, entry);
        }
    }

    /// Signals whether a binding needs a watch of `RayCluster`s.
    pub fn clusters_needed(&self) -> Receiver<bool> {
        self.clusters_needed.subscribe()
    }

    /// Adds or updates a `RayCluster` with its controller owner.
    pub fn apply_cluster(&self, key: &Key, owner: Option<ObjectRef>) {
        let mut inputs = self.inputs.lock();
        if inputs.clusters.apply(key, owner) {
            self.clusters_changed(&inputs, |namespace| *namespace == *key.namespace);
        }
    }

    /// Removes a deleted `RayCluster`.
    pub fn delete_cluster(&self, key: &Key) {
        let mut inputs = self.inputs.lock();
        inputs.clusters.delete(key);
        self.clusters_changed(&inputs, |namespace| *namespace == *key.namespace);
    }

    /// Marks the start of a list of `RayCluster`s.
    pub fn init_clusters(&self) {
        self.inputs.lock().clusters.init();
    }

    /// Marks the end of a list of `RayCluster`s.
    pub fn init_clusters_done(&self) {
        let mut inputs = self.inputs.lock();
        let changed = inputs.clusters.init_done();
        self.clusters_changed(&inputs, |namespace| changed.contains(namespace));
    }

    /// Forgets all `RayCluster`s, because the watch has stopped.
    pub fn clear_clusters(&self) {
        let mut inputs = self.inputs.lock();
        let changed = inputs.clusters.clear();
        self.clusters_changed(&inputs, |namespace| changed.contains(namespace));
    }

    fn clusters_changed(&self, inputs: &RenderInputs, changed: impl Fn(&str) -> bool) {
        self.render_again(inputs, |binding| {
            changed(&binding.actor.key.namespace) && has_intermediate_owners(&binding.target)
        });
    }

    /// Adds or updates an actor.
    pub fn apply(&self, actor: &Arc<Actor>) {
        let inputs = self.inputs.lock();
        let entry = Entry::of(actor, &self.installation, &inputs);
        let mut inner = self.inner.write();
        if let Some(missing) = &mut inner.not_yet_listed {
            missing.remove(&actor.key);
        }
        inner.put(&actor.key, entry);
        self.update_clusters_needed(&inner);
    }

    /// Removes a deleted actor.
    pub fn delete(&self, key: &Key) {
        let _writing = self.inputs.lock();
        let mut inner = self.inner.write();
        inner.remove(key);
        self.update_clusters_needed(&inner);
    }

    /// Marks the start of a list; [`Index::init_done`] removes the actors that the list did not return.
    pub fn init(&self) {
        let mut inner = self.inner.write();
        inner.not_yet_listed = Some(inner.actors.keys().cloned().collect());
    }

    /// Marks the end of a list.
    pub fn init_done(&self) {
        let _writing = self.inputs.lock();
        let mut inner = self.inner.write();
        for key in inner.not_yet_listed.take().unwrap_or_default() {
            inner.remove(&key);
        }
        inner.synced = true;
        self.update_clusters_needed(&inner);
    }

    fn update_clusters_needed(&self, inner: &Inner) {
        let is_needed = !inner.with_intermediate_owners.is_empty();
        self.clusters_needed.send_if_modified(|previous| {
            let changed = *previous != is_needed;
            *previous = is_needed;
            changed
        });
    }
}

impl Inner {
    /// Inserts or replaces an entry.
    fn put(&mut self, key: &Key, entry: Entry) {
        self.unindex(key);
        for name in &entry.names {
            let claimants = self.by_name.entry(Arc::clone(&name.address)).or_default();
            claimants.insert(name.kind, entry.rank(name), key.clone());
        }
        let binds = entry.binding.is_some();
        let binding = entry.binding.as_ref();
        if binding.is_some_and(|binding| has_intermediate_owners(&binding.target)) {
            self.with_intermediate_owners.insert(key.clone());
        }
        self.actors.insert(key.clone(), entry);
        self.rebuild_bindings(key, binds);
    }

    fn remove(&mut self, key: &Key) {
        self.unindex(key);
        self.actors.remove(key);
        self.rebuild_bindings(key, false);
    }

    fn unindex(&mut self, key: &Key) {
        self.with_intermediate_owners.remove(key);
        let Some(entry) = self.actors.get(key) else {
            return;
        };
        for name in &entry.names {
            if let Some(claimants) = self.by_name.get_mut(&name.address) {
                claimants.remove(name.kind, entry.rank(name), key.clone());
                if claimants.is_empty() {
                    self.by_name.remove(&name.address);
                }
            }
        }
    }

    /// Rebuilds the namespace's list of bindings on each change, so that reviews need not.
    fn rebuild_bindings(&mut self, key: &Key, binds: bool) {
        let namespace = &*key.namespace;
        if !binds
            && !self
                .bindings
                .get(namespace)
                .is_some_and(|it| it.keys.contains(key))
        {
            return;
        }
        let namespace_bindings = self.bindings.entry(namespace.into()).or_default();
        if binds {
            namespace_bindings.keys.insert(key.clone());
        } else {
            namespace_bindings.keys.remove(key);
        }
        let actors = namespace_bindings
            .keys
            .iter()
            .filter_map(|key| self.actors.get(key));
        let bound = actors.filter_map(|entry| entry.binding.as_ref()?.bound.clone());
        namespace_bindings.bound = bound.collect();
        if namespace_bindings.keys.is_empty() {
            self.bindings.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests;
