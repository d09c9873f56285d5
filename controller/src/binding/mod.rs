//! The controller's view of bindings: which actor binds what, the targets, and the targets' pods without an actor
//! label.

mod constraints;
pub mod index;
pub mod kinds;
mod marked;
pub mod objects;
mod pods;
pub mod probe_pod;
pub mod probes;
mod reading;
pub mod rollout_slots;
mod scaled;
pub mod spec;
pub mod specimen;
mod targets;
mod tree;
pub mod unenforced;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use asya_shared::resolve::PodMatch;
use tokio::sync::{Notify, watch};

use crate::cluster::store::Scope;
use crate::cluster::watch::WatchSink;
use crate::record::{
    ActorRecord, CrdNameRecord, Enqueue, Key, PodOfTarget, PodRecord, Projected, Record,
    UninjectedPodRecord,
};

pub use index::Object;
pub use kinds::{KindAvailability, Kinds};
pub use marked::MarkedPods;
pub use targets::{Found, Reading, TemplatePart};

use constraints::Constraints;
use index::{Index, Place, What};
use kinds::Kind;
use pods::PodIndex;
use probes::Probes;
use scaled::Scaled;
use targets::Targets;
use tree::Tree;
use unenforced::Unenforced;

/// State of all bindings, maintained by watches that run only where bindings exist.
#[derive(Debug, Default)]
pub struct Bindings {
    index: Index,
    /// Discovery state of the kinds that can be bound.
    pub kinds: Arc<Kinds>,
    targets: Targets,
    /// Owner references between watched objects.
    tree: Tree,
    /// Pods without an actor label, in namespaces with bindings.
    pub pods: PodIndex<UninjectedPodRecord>,
    /// Pods with an actor label, except those of workloads that actors create.
    pub marked: PodIndex<PodRecord>,
    scaled: Scaled,
    /// Schedule of the dry runs of pods with the sidecar.
    pub probes: Probes,
    /// Admission constraints on pods, in namespaces with bindings.
    pub constraints: Constraints,
    /// Required bindings that are not enforced.
    pub unenforced: Unenforced,
    /// Notified when a binding may have changed.
    changed: Arc<Notify>,
}

impl Bindings {
    /// Updates the index with the newest record of an actor, or `None` once it is deleted. Returns the other actors
    /// affected by this or by changes of shared objects since the last call.
    pub fn refresh(&self, key: &Key, actor: Option<&ActorRecord>) -> HashSet<Key> {
        let before = self.index.target_of(key);
        if actor.is_none() {
            self.scaled.by(key, None);
            self.probes.forget(key);
        }
        let others = self.index.refresh(key, actor);
        let after = self.index.target_of(key);
        if before.is_some() || after.is_some() {
            self.changed.notify_one();
        }
        if before != after {
            for kind in self.index.kinds_of(key) {
                self.kinds.want(&kind);
            }
            self.targets
                .keep(|target| !self.index.actors_of(target).is_empty());
        }
        others
    }

    /// Number of records per store, by kind (FW-14).
    pub fn sizes(&self) -> [(Cow<'static, str>, usize); 8] {
        let [quotas, ranges, namespaces] = self.constraints.sizes();
        [
            ("Binding".into(), self.index.len()),
            ("Target".into(), self.targets.len()),
            ("Object (metadata)".into(), self.tree.len()),
            ("Pod (metadata)".into(), self.pods.len()),
            (CrdNameRecord::what(), self.kinds.crds()),
            quotas,
            ranges,
            namespaces,
        ]
    }

    /// Notified when a binding may have changed, in spec or status.
    pub fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    /// The target that an actor binds.
    pub fn target_of(&self, actor: &Key) -> Option<Object> {
        self.index.target_of(actor)
    }

    /// The oldest other actor that binds the same target or shares a workload of it, if it is older than this one
    /// (BIND-45).
    pub fn owner_before(&self, actor: &Key) -> Option<Key> {
        self.index.owner_before(actor)
    }

    /// Sets which pods concern the actor.
    pub fn subscribe_pods(&self, actor: &Key, pods: &PodMatch) {
        self.index.subscribe_pods(actor, pods);
    }

    /// Sets the uids of an actor's target and of the objects it consists of, the target's own first.
    pub fn register_target(&self, actor: &Key, chain: Vec<Box<str>>) {
        self.index.register_target(actor, chain);
    }

    /// Invalidates the cached target of an actor after we wrote to it, before a watch shows the change.
    pub fn wrote(&self, actor: &Key) {
        if let Some(target) = self.index.target_of(actor) {
            self.targets.touched(&target);
        }
    }

    /// Sets the name of the object that the actor scales, so that other autoscalers of it concern the actor.
    pub fn subscribe_autoscalers(&self, actor: &Key, name: Option<&str>) {
        self.scaled.by(actor, name);
    }

    /// Actors that scale the object with this name.
    pub fn scaling(&self, scaled: &Key) -> Vec<Key> {
        self.scaled.actors_of(scaled)
    }

    /// Drops the records of a watch that has ended.
    pub fn forget(&self, place: &Place) {
        match &place.what {
            What::Pods => self.pods.forget(&place.scope),
            What::Constraints => self.constraints.forget(&place.scope),
            What::Objects(kind) => self.tree.forget(kind, &place.scope),
        }
    }

    /// Watches that bindings need; the receiver is notified of changes.
    pub fn places(&self) -> watch::Receiver<BTreeSet<Place>> {
        self.index.places()
    }

    fn concerned_by<R: PodOfTarget>(&self, pod: &R) -> impl Iterator<Item = Enqueue> + use<R> {
        let actors = self.index.actors_with(pod);
        actors.into_iter().map(Enqueue::Actor)
    }

    fn bindings_in(&self, scope: &Scope) -> Vec<Enqueue> {
        let actors = self.index.actors_in(scope).into_iter();
        actors.map(Enqueue::Actor).collect()
    }

    fn actors_of(&self, target: &Object) -> impl Iterator<Item = Enqueue> + use<> {
        let actors = self.index.actors_of(target);
        actors.into_iter().map(Enqueue::Actor)
    }

    /// Handles a changed discovery state of a kind. Returns the actors to enqueue.
    pub fn kind_changed(&self, kind: &Kind) -> Vec<Enqueue> {
        self.changed.notify_one();
        let actors = self.index.actors_told_by(kind, &None);
        for actor in &actors {
            if let Some(target) = self.index.target_of(actor) {
                self.targets.touched(&target);
            }
        }
        actors.into_iter().map(Enqueue::Actor).collect()
    }
}

impl WatchSink<UninjectedPodRecord> for Bindings {
    fn relisting(&self, scope: &Scope) {
        self.pods.relisting(scope);
    }

    fn show(&self, scope: &Scope, seen: &Projected<UninjectedPodRecord>) -> Vec<Enqueue> {
        let changed = self.pods.show(scope, &seen.record);
        let mut concerned: Vec<_> = changed
            .iter()
            .flat_map(|pod| self.concerned_by(&**pod))
            .collect();
        concerned.dedup();
        concerned
    }

    fn removed(&self, _: &Scope, seen: &Projected<UninjectedPodRecord>) -> Vec<Enqueue> {
        let gone = self.pods.removed(&seen.record);
        let concerned = gone.into_iter().flat_map(|pod| self.concerned_by(&*pod));
        concerned.collect()
    }

    /// Returns every binding in scope after the first list, since none of them knew its pods before.
    fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        let (first, gone) = self.pods.relisted(scope);
        if first {
            return self.bindings_in(scope);
        }
        gone.iter()
            .flat_map(|pod| self.concerned_by(&**pod))
            .collect()
    }
}

#[cfg(test)]
mod tests;
