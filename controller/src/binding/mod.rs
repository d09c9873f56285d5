//! What the controller knows of bindings: which actor binds what, the targets, and their pods without a label of ours.

mod constraints;
pub mod index;
pub mod kinds;
mod marked;
pub mod objects;
mod pods;
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
    ActorRecord, CrdNameRecord, Enqueue, Key, PodOfTarget, PodRecord, Record, Seen,
    UninjectedPodRecord,
};

pub use index::Object;
pub use kinds::{Kinds, Standing};
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

/// All of it; kept by watches that run where there are bindings, and nowhere else.
#[derive(Debug, Default)]
pub struct Bindings {
    index: Index,
    /// Which kinds can be bound here.
    pub kinds: Arc<Kinds>,
    /// The objects that actors bind to.
    targets: Targets,
    /// What belongs to whom.
    tree: Tree,
    /// Pods in namespaces with bindings that carry no actor's label.
    pub pods: PodIndex<UninjectedPodRecord>,
    /// Pods that carry an actor's label, but for those of workloads that actors make.
    pub marked: PodIndex<PodRecord>,
    scaled: Scaled,
    /// Dry runs of pods with the sidecar.
    pub probes: Probes,
    /// What the API server judges pods by, in namespaces with bindings.
    pub constraints: Constraints,
    /// Required bindings that are not enforced.
    pub unenforced: Unenforced,
    /// Something about a binding may have changed.
    changed: Arc<Notify>,
}

impl Bindings {
    /// Takes the newest record of an actor, or that it is gone. Answers whom that concerns, or what was found since.
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

    /// How many records each store holds, by what they are of (FW-14).
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

    /// Tells one who waits that something about a binding may have changed: its spec, or its status.
    pub fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    /// What an actor binds.
    pub fn target_of(&self, actor: &Key) -> Option<Object> {
        self.index.target_of(actor)
    }

    /// The actor that binds the same target, or shares a workload of it, and is older (BIND-45).
    pub fn owner_before(&self, actor: &Key) -> Option<Key> {
        self.index.owner_before(actor)
    }

    /// From now on these pods concern the actor.
    pub fn expect(&self, actor: &Key, pods: &PodMatch) {
        self.index.expect(actor, pods);
    }

    /// The uids of what an actor's target is and consists of, the target's own first.
    pub fn reaches(&self, actor: &Key, chain: Vec<Box<str>>) {
        self.index.reaches(actor, chain);
    }

    /// We have changed the target of an actor: what was read of it is old, before a watch shows that.
    pub fn wrote(&self, actor: &Key) {
        if let Some(target) = self.index.target_of(actor) {
            self.targets.touched(&target);
        }
    }

    /// From now on who else scales what has this name concerns the actor.
    pub fn scales(&self, actor: &Key, name: Option<&str>) {
        self.scaled.by(actor, name);
    }

    /// The actors that scale what has this name.
    pub fn scaling(&self, scaled: &Key) -> Vec<Key> {
        self.scaled.actors_of(scaled)
    }

    /// Where watches are needed; tells whenever that changes.
    /// Drops what a watch that has ended kept.
    pub fn forget(&self, place: &Place) {
        match &place.what {
            What::Pods => self.pods.forget(&place.scope),
            What::Constraints => self.constraints.forget(&place.scope),
            What::Objects(kind) => self.tree.forget(kind, &place.scope),
        }
    }

    /// What has to be watched.
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

    /// Something else is known of a kind: whom that concerns.
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

    fn show(&self, scope: &Scope, seen: &Seen<UninjectedPodRecord>) -> Vec<Enqueue> {
        let changed = self.pods.show(scope, &seen.record);
        let mut concerned: Vec<_> = changed
            .iter()
            .flat_map(|pod| self.concerned_by(&**pod))
            .collect();
        concerned.dedup();
        concerned
    }

    fn removed(&self, _: &Scope, seen: &Seen<UninjectedPodRecord>) -> Vec<Enqueue> {
        let gone = self.pods.removed(&seen.record);
        let concerned = gone.into_iter().flat_map(|pod| self.concerned_by(&*pod));
        concerned.collect()
    }

    /// Every binding of the place: until now it did not know its pods.
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
