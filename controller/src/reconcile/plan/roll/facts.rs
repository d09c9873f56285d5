//! What a rollout is decided by, and what it comes to.

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use crate::fault::Reason;
use crate::reconcile::contention::{Specs, State};
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::rollout::{Availability, Live};
use crate::reconcile::plan::evict;

/// What no watch tells is looked at again: a rollout's progress, and a budget or a slot that becomes free.
pub const SOON: Duration = Duration::from_secs(5);

pub const LATER: Duration = Duration::from_secs(10);

/// All that is decided by.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the table asks for"
)]
pub struct Facts<'a> {
    /// When pods are replaced.
    pub rollout: BindingRollout,
    /// Now, whatever that says.
    pub at_once: bool,
    /// Pods get the sidecar by now (BIND-3).
    pub bound: bool,
    /// Where the model answers is known.
    pub has_url: bool,
    /// What pods are to say.
    pub wanted: &'a str,
    /// Pods that do not, and could.
    pub lacking: &'a [OutdatedPod],
    /// Pods of the target that stay.
    pub matched: i32,
    /// Every pod of it.
    pub total: i32,
    /// How many of them can serve.
    pub availability: &'a Availability,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    /// How its pods are replaced.
    pub roll: &'a Roll,
    /// Nobody knows what its controller takes back.
    pub unknown_owner: bool,
    /// What is annotated, and what is rolled by that; empty while nothing has to be.
    pub live: &'a [Live],
    /// Tells the spec of the workloads from another.
    pub target: &'a str,
    /// A budget that allows no pod of these to go.
    pub budget: Option<&'a str>,
    /// Whether one more target may be rolled.
    pub has_slot: bool,
    /// What was done before.
    pub before: Option<&'a RolloutStatus>,
    /// How the annotation stands, if somebody takes it back.
    pub conflict: &'a State,
    /// A dry run has succeeded with these pods, or none is needed to tell.
    pub proved: bool,
    /// Generation of the actor's spec.
    pub generation: i64,
    /// Now.
    pub now: Timestamp,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Rolling {
    /// Nothing.
    Rest,
    /// Wait: pods are being replaced, or may not be yet.
    Wait(Reason, String, Duration),
    /// Nothing any more, until a spec changes.
    Halt(String),
    /// Nothing, until a replacement becomes ready that has taken too long.
    Stall(String),
    /// Somebody has taken the annotation back (CONF-2).
    Lost(Lost),
    /// Nothing any more, until a spec changes: somebody takes the annotation back.
    Leave,
    /// This, after a dry run.
    Act(Act),
}

/// An annotation that somebody has taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// The object that had it.
    pub object: ObjectRef,
    /// The specs of now.
    pub specs: Specs,
    /// Pods are evicted from now on.
    pub last: bool,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// The dry run alone: there is no pod that could tell.
    Prove,
    /// Give these objects this annotation.
    Annotate(String),
    /// Evict this pod, so that another is made.
    Evict(OutdatedPod),
}

impl Facts<'_> {
    /// Whether what was done before was done for the same: another value, or another spec, begins anew.
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

    /// Whether our annotation is written to this one.
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

    /// What is known about replacing `candidates` one by one.
    pub fn evicting<'b>(
        &'b self,
        candidates: &'b [OutdatedPod],
        before: Option<&RolloutStatus>,
    ) -> evict::Facts<'b> {
        evict::Facts {
            candidates,
            availability: self.availability,
            present: self.matched,
            before: before.and_then(|it| it.pods),
            since: before.and_then(|it| it.since.as_ref()).map(|it| it.0),
            limit: self.limit,
            now: self.now,
        }
    }

    /// A pod of the target is on its way out.
    pub fn is_going(&self) -> bool {
        self.total > self.matched || self.availability.going
    }

    pub fn since(&self, before: Option<&RolloutStatus>) -> Option<Duration> {
        let since = before?.since.as_ref()?;
        self.now.duration_since(since.0).try_into().ok()
    }
}

/// How often the value was changed only to be another one; `None`: it asks for something else.
pub fn number(wanted: &str, value: &str) -> Option<u32> {
    match value.strip_prefix(wanted)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse().ok(),
    }
}

pub fn waits_for_slot(facts: &Facts<'_>) -> Option<Rolling> {
    let text =
        "as many other targets are being rolled as may be at a time; waiting for one of them";
    (!facts.has_slot).then(|| Rolling::Wait(Reason::RolloutWaiting, text.to_owned(), LATER))
}

pub fn runs() -> Rolling {
    let text = "pods of the target are being replaced by pods with the sidecar";
    Rolling::Wait(Reason::RolloutInProgress, text.to_owned(), SOON)
}
