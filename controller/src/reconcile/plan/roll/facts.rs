//! Inputs and outcomes of a rollout decision.

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use crate::fault::Reason;
use crate::reconcile::contention::{Specs, State};
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::rollout::{Availability, Live};
use crate::reconcile::plan::evict;

/// Requeue delay for what no watch reports: a rollout's progress. A disruption budget or a slot is checked again after
/// [`LATER`].
pub const SOON: Duration = Duration::from_secs(5);

pub const LATER: Duration = Duration::from_secs(10);

/// Inputs to [`super::decide`].
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the table asks for"
)]
pub struct RolloutFacts<'a> {
    /// When pods are replaced.
    pub rollout: BindingRollout,
    /// Replace them now, whatever `rollout` says.
    pub at_once: bool,
    /// The binding is in force: new pods get the sidecar (BIND-3).
    pub bound: bool,
    /// The URL of the model server is known.
    pub has_url: bool,
    /// The hash that pods should carry.
    pub wanted: &'a str,
    /// Pods that do not carry it, but would if they were replaced.
    pub lacking: &'a [OutdatedPod],
    /// Pods of the target that are not terminating.
    pub matched: i32,
    /// All pods of the target.
    pub total: i32,
    pub availability: &'a Availability,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    /// How the target's pods are replaced.
    pub roll: &'a Roll,
    /// The target's owner is unknown, and so is what it takes back.
    pub unknown_owner: bool,
    /// The annotated objects, and the workloads that the annotation rolls; empty while no rollout is needed.
    pub live: &'a [Live],
    /// Identifies the current spec of the workloads.
    pub target: &'a str,
    /// A `PodDisruptionBudget` that allows no disruption of these pods.
    pub budget: Option<&'a str>,
    /// Whether another target may be rolled.
    pub has_slot: bool,
    /// The rollout so far, from status.
    pub before: Option<&'a RolloutStatus>,
    /// Contention state of the annotation.
    pub conflict: &'a State,
    /// A dry run has passed with these pods, or none is needed.
    pub proved: bool,
    /// The actor's generation.
    pub generation: i64,
    pub now: Timestamp,
}

/// The decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Rolling {
    /// Nothing to do.
    Rest,
    /// Wait: pods are being replaced, or must not be replaced yet.
    Wait(Reason, String, Duration),
    /// Stop until a spec changes.
    Halt(String),
    /// Wait until an overdue replacement becomes ready.
    Stall(String),
    /// The annotation was taken back (CONF-2).
    Lost(Lost),
    /// Stop until a spec changes: another manager keeps taking the annotation back.
    Leave,
    /// Take this step, after a dry run.
    Act(Act),
}

/// An annotation that another manager has taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// The object that carried it.
    pub object: ObjectRef,
    /// The current specs.
    pub specs: Specs,
    /// Give the annotation up: pods are evicted from now on.
    pub last: bool,
}

/// A step of the rollout.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Only the dry run: there is no pod to show whether new pods get the sidecar.
    Prove,
    /// Write this value of the annotation.
    Annotate(String),
    /// Evict this pod, so that its controller replaces it.
    Evict(OutdatedPod),
}

impl RolloutFacts<'_> {
    /// Whether the recorded rollout has the same value and, if it was halted, the same specs. Otherwise the rollout
    /// starts over.
    pub fn is_about(&self, before: &RolloutStatus) -> bool {
        before.value == self.wanted && (!before.halted || self.is_as_halted(before))
    }

    pub fn is_as_halted(&self, before: &RolloutStatus) -> bool {
        before.generation == self.generation && before.target == self.target
    }

    pub fn specs(&self) -> Specs {
        Specs {
            generation: self.generation,
            target: self.target.to_owned(),
        }
    }

    /// Whether our annotation is written to this object.
    pub fn annotates(&self, live: &Live) -> bool {
        match self.roll {
            Roll::AnnotateTemplate(_) => true,
            Roll::Annotate(object, _) => *object == live.object,
            Roll::Evict => false,
        }
    }

    pub fn is_ours(&self, live: &Live) -> bool {
        let value = live.value.as_deref();
        value.is_some_and(|value| number(self.wanted, value).is_some())
    }

    /// Inputs to replace `candidates` one by one.
    pub fn evicting<'b>(
        &'b self,
        candidates: &'b [OutdatedPod],
        before: Option<&RolloutStatus>,
    ) -> evict::EvictionFacts<'b> {
        evict::EvictionFacts {
            candidates,
            availability: self.availability,
            present: self.matched,
            before: before.and_then(|it| it.pods),
            since: before.and_then(|it| it.since.as_ref()).map(|it| it.0),
            limit: self.limit,
            now: self.now,
        }
    }

    /// Whether a pod of the target is terminating.
    pub fn is_going(&self) -> bool {
        self.total > self.matched || self.availability.going
    }

    pub fn since(&self, before: Option<&RolloutStatus>) -> Option<Duration> {
        let since = before?.since.as_ref()?;
        self.now.duration_since(since.0).try_into().ok()
    }
}

/// The number appended to `wanted` to make the value differ, 0 without one; `None`: the value is for something else.
pub fn number(wanted: &str, value: &str) -> Option<u32> {
    match value.strip_prefix(wanted)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse().ok(),
    }
}

pub fn waits_for_slot(facts: &RolloutFacts<'_>) -> Option<Rolling> {
    let text =
        "as many other targets are being rolled as may be at a time; waiting for one of them";
    (!facts.has_slot).then(|| Rolling::Wait(Reason::RolloutWaiting, text.to_owned(), LATER))
}

pub fn runs() -> Rolling {
    let text = "pods of the target are being replaced by pods with the sidecar";
    Rolling::Wait(Reason::RolloutInProgress, text.to_owned(), SOON)
}
