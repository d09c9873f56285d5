//! The controller's view of bindings: which actor binds what, the targets, and the targets' pods without an actor
//! label.

mod constraints;
pub mod deleted;
pub mod dry_run;
pub mod index;
pub mod kinds;
mod labelled_pods;
pub mod lost_scaled_objects;
pub mod needed_watches;
pub mod objects;
mod pod_names;
mod pods;
pub mod probe_schedule;
mod reading;
pub mod rollout_slots;
mod scale_targets;
pub mod spec;
mod targets;
mod tree;
pub mod unenforced_required;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use asya_shared::resolve::PodMatch;
use tokio::sync::{Notify, watch};

use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{
    ActorRecord, CrdNameRecord, Enqueue, Key, PodRecord, Projected, Record, TargetPod,
    UninjectedPodRecord,
};

pub use index::ObjectId;
pub use kinds::{KindAvailability, Kinds};
pub use labelled_pods::LabelledPods;
pub use targets::{OurTemplateFields, TargetSnapshot, TargetState};

use constraints::Constraints;
use index::Index;
use kinds::Kind;
use needed_watches::{NeededWatch, WatchSubject};
use pods::PodIndex;
use probe_schedule::ProbeSchedule;
use scale_targets::ScaleTargets;
use targets::Targets;
use tree::Tree;
use unenforced_required::UnenforcedRequiredBindings;

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
    pub uninjected_pods: PodIndex<UninjectedPodRecord>,
    /// Pods with an actor label, except those of workloads that actors create.
    pub labelled_pods: PodIndex<PodRecord>,
    scale_targets: ScaleTargets,
    /// Schedule of the dry runs of pods with the sidecar.
    pub probe_schedule: ProbeSchedule,
    /// Admission constraints on pods, in namespaces with bindings.
    pub constraints: Constraints,
    /// Required bindings that are not enforced.
    pub unenforced_required: UnenforcedRequiredBindings,
    /// Notified when a binding may have changed.
    changed: Arc<Notify>,
}

impl Bindings {
    /// Updates the index with the newest record of an actor, or `None` once it is deleted. Returns the other actors
    /// affected by this or by changes of shared objects since the last call.
    pub fn refresh(&self, key: &Key, actor: Option<&ActorRecord>) -> HashSet<Key> {
        let previous = self.index.target_of(key);
        if actor.is_none() {
            self.scale_targets.set(key, None);
            self.probe_schedule.forget(key);
        }
        let others = self.index.refresh(key, actor);
        let after = self.index.target_of(key);
        if previous.is_some() || after.is_some() {
            self.changed.notify_one();
        }
        if previous != after {
            for kind in self.index.kinds_of(key) {
                self.kinds.track(&kind);
            }
            self.targets
                .retain(|target| !self.index.actors_of(target).is_empty());
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
            ("Pod (metadata)".into(), self.uninjected_pods.len()),
            (CrdNameRecord::kind_name(), self.kinds.crds()),
            quotas,
            ranges,
            namespaces,
        ]
    }

    /// Notified when a binding may have changed, in spec or status.
    pub fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    pub fn target_of(&self, actor: &Key) -> Option<ObjectId> {
        self.index.target_of(actor)
    }

    /// The oldest other actor that binds the same target or shares a workload of it, if it is older than this one
    /// (BIND-45).
    pub fn older_binding(&self, actor: &Key) -> Option<Key> {
        self.index.older_binding(actor)
    }

    /// Sets which pods belong to the actor's target.
    pub fn set_pod_match(&self, actor: &Key, pods: &PodMatch) {
        self.index.set_pod_match(actor, pods);
    }

    /// Sets the uids of an actor's target and of the objects it consists of, the target's own first.
    pub fn register_target(&self, actor: &Key, chain: Vec<Box<str>>) {
        self.index.register_target(actor, chain);
    }

    /// Invalidates the cached target of an actor after the operator's own write, before a watch observes it.
    pub fn invalidate_target(&self, actor: &Key) {
        if let Some(target) = self.index.target_of(actor) {
            self.targets.invalidate(&target);
        }
    }

    /// Sets the name of the object that the actor scales, so that other autoscalers of it enqueue the actor.
    pub fn set_scale_target(&self, actor: &Key, name: Option<&str>) {
        self.scale_targets.set(actor, name);
    }

    /// Actors that scale the object with this name.
    pub fn actors_scaling(&self, scaled: &Key) -> Vec<Key> {
        self.scale_targets.actors_of(scaled)
    }

    /// Drops the records of a watch that has ended.
    pub fn forget(&self, ended: &NeededWatch) {
        match &ended.subject {
            WatchSubject::Pods => self.uninjected_pods.forget(&ended.scope),
            WatchSubject::Constraints => self.constraints.forget(&ended.scope),
            WatchSubject::Objects(kind) => self.tree.forget(kind, &ended.scope),
        }
    }

    /// Watches that bindings need; the receiver is notified of changes.
    pub fn required_watches(&self) -> watch::Receiver<BTreeSet<NeededWatch>> {
        self.index.watches()
    }

    fn affected_by_pod<R: TargetPod>(&self, pod: &R) -> impl Iterator<Item = Enqueue> + use<R> {
        let actors = self.index.actors_with(pod);
        actors.into_iter().map(Enqueue::Actor)
    }

    fn bindings_in(&self, scope: &WatchScope) -> Vec<Enqueue> {
        let actors = self.index.actors_in(scope).into_iter();
        actors.map(Enqueue::Actor).collect()
    }

    fn actors_of(&self, target: &ObjectId) -> impl Iterator<Item = Enqueue> + use<> {
        let actors = self.index.actors_of(target);
        actors.into_iter().map(Enqueue::Actor)
    }

    /// Handles a changed discovery state of a kind. Returns the actors to enqueue.
    pub fn kind_changed(&self, kind: &Kind) -> Vec<Enqueue> {
        self.changed.notify_one();
        let actors = self
            .index
            .actors_affected_by_kind(kind, &WatchScope::Cluster);
        for actor in &actors {
            if let Some(target) = self.index.target_of(actor) {
                self.targets.invalidate(&target);
            }
        }
        actors.into_iter().map(Enqueue::Actor).collect()
    }
}

impl WatchSink<UninjectedPodRecord> for Bindings {
    fn init(&self, scope: &WatchScope) {
        self.uninjected_pods.init(scope);
    }

    fn apply(
        &self,
        scope: &WatchScope,
        projected: &Projected<UninjectedPodRecord>,
    ) -> Vec<Enqueue> {
        let changed = self.uninjected_pods.apply(scope, &projected.record);
        let mut affected: Vec<_> = changed
            .iter()
            .flat_map(|pod| self.affected_by_pod(&**pod))
            .collect();
        affected.dedup();
        affected
    }

    fn delete(&self, _: &WatchScope, projected: &Projected<UninjectedPodRecord>) -> Vec<Enqueue> {
        let deleted = self.uninjected_pods.delete(&projected.record);
        let affected = deleted
            .into_iter()
            .flat_map(|pod| self.affected_by_pod(&*pod));
        affected.collect()
    }

    /// Returns every binding in scope after the first list, since none of them has observed its pods before.
    fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue> {
        let (first, deleted) = self.uninjected_pods.init_done(scope);
        if first {
            return self.bindings_in(scope);
        }
        deleted
            .iter()
            .flat_map(|pod| self.affected_by_pod(&**pod))
            .collect()
    }
}

#[cfg(test)]
mod tests;
