//! Contention over a field that another manager changes or owns (docs/spec/binding.md, section 7). Pure: the caller
//! observes the field and stores the state in the actor's status.
//!
//! Two state machines share `status.conflicts`: [`ContentionState`] decides after a conflict whether a field is written
//! again, and yields it in the end; [`drift_restore`] decides when our own workload or `ScaledObject` is restored after
//! someone changed it, and never yields.

pub mod drift_restore;
pub mod field_manager;
pub mod history;

use std::num::NonZeroU8;
use std::time::Duration;

use asya_shared::api::ConflictState;
use asya_shared::backoff::Backoff;
use k8s_openapi::jiff::Timestamp;

use crate::clock_skew::time_left;

/// The consecutive conflict at which the operator yields the field to the other manager. After each earlier one it
/// writes the field again, so a contested field is written at most four more times.
const MAX_CONFLICTS: u8 = 5;
/// The longest backoff after a conflict.
const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// Conflicts are reset after this long without another one; longer than any backoff.
const QUIET_PERIOD: Duration = Duration::from_mins(15);
/// The state in status while a field is not written again yet.
const WAITING: &str = ConflictState::Waiting.as_str();
/// Stands for the other manager if `managedFields` do not name it.
const UNKNOWN_MANAGER: &str = "another field manager (unknown)";

/// What other field managers may contest: a part of what the operator writes, or the replicas that the autoscaler
/// writes. Each part has its own contention state, in status as the entry with its name in `part`. Status has room for
/// every part of one actor: a binding has no workload of ours, and a standalone actor only that and a `ScaledObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContestedPart {
    /// Our containers, volumes and annotations in a pod template (CONF-1).
    Template,
    /// The annotation that triggers a rollout (CONF-2).
    Roll,
    /// The autoscaler handoff annotation (CONF-3).
    Autoscaler,
    /// The target's replicas, which the autoscaler owns (CONF-4).
    Replicas,
    /// Our fields of the `ScaledObject` (CONF-5, WRK-8).
    ScaledObject,
    /// Our fields of our own workload (WRK-8).
    Workload,
}

impl ContestedPart {
    pub const ALL: [Self; 6] = [
        Self::Template,
        Self::Roll,
        Self::Autoscaler,
        Self::Replicas,
        Self::ScaledObject,
        Self::Workload,
    ];

    /// The name in status and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template => "Template",
            Self::Roll => "Roll",
            Self::Autoscaler => "Autoscaler",
            Self::Replicas => "Replicas",
            Self::ScaledObject => "ScaledObject",
            Self::Workload => "Workload",
        }
    }
}

/// Revision of the actor's and the target's spec. The operator stops writing a field until it changes (CONF-6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecRevision {
    /// The actor's generation.
    pub generation: i64,
    /// Hash of the specs without our fields and the replicas: of the rolled workloads for [`ContestedPart::Roll`], else
    /// of the target. Its own `metadata.generation` rises with every contested write.
    pub spec_hash: String,
}

/// Consecutive conflicts: at least one, and fewer than `MAX_CONFLICTS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictCount(NonZeroU8);

impl ConflictCount {
    const ONE: Self = Self(NonZeroU8::MIN);

    /// `None` if there was none, or at least `MAX_CONFLICTS`.
    pub fn new(conflicts: i32) -> Option<Self> {
        let count = u8::try_from(conflicts).ok().and_then(NonZeroU8::new)?;
        (count.get() < MAX_CONFLICTS).then_some(Self(count))
    }

    pub fn get(self) -> i32 {
        self.0.get().into()
    }

    fn next(self) -> Option<Self> {
        Self::new(self.get() + 1)
    }

    /// Backoff after the last conflict.
    fn backoff(self, base: Duration) -> Duration {
        Backoff::new(base, MAX_BACKOFF).after(self.0.get().into())
    }
}

/// The contention state of a field. Status stores it as `state` of the field's entry in `status.conflicts`, under names
/// that are public:
///
/// | variant | `state` |
/// |---|---|
/// | `Uncontested` | absent |
/// | `Rewritten` | `Held` |
/// | `Waiting` | `Waiting` |
/// | `Yielded` | `Stopped` |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContentionState {
    /// No other manager has changed the field, or it is no longer needed.
    #[default]
    Uncontested,
    /// Written again after this many conflicts.
    Rewritten(ConflictCount),
    /// Changed by another manager this many times; must not be written before this time.
    Waiting(ConflictCount, Timestamp),
    /// Left to the other manager until the specs change.
    Yielded(SpecRevision),
}

/// A field as observed in a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldView {
    pub needed: bool,
    /// Whether the desired value was set before and has not changed since, so that another value is a conflict. The
    /// operator sets it, except replicas, which the autoscaler sets.
    pub was_set: bool,
    pub has_desired_value: bool,
}

/// The decision of a reconcile about a contested field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDecision {
    /// Write nothing: the field is not needed, or has the desired value. Its consecutive conflicts are reset.
    Keep,
    /// Write nothing: the field has the desired value again. Its conflicts are reset if it still has it after this
    /// delay.
    AwaitReset(Duration),
    /// It may be written.
    Write,
    /// Another manager changed it: record a conflict, write nothing.
    RecordConflict,
    /// Do not write it before this delay has passed.
    Wait(Duration),
    /// Leave it to the other manager until the specs change.
    Yield,
}

impl FieldDecision {
    /// True if the field must not be written for now, because another manager changed it.
    pub fn is_contested(self) -> bool {
        matches!(self, Self::RecordConflict | Self::Wait(_) | Self::Yield)
    }
}

impl ContentionState {
    /// Decides what to do about a field under these specs.
    pub fn decide(
        &self,
        view: FieldView,
        revision: &SpecRevision,
        now: Timestamp,
    ) -> FieldDecision {
        let FieldView {
            needed,
            was_set,
            has_desired_value,
        } = view;
        if !needed || has_desired_value {
            return FieldDecision::Keep;
        }
        match self {
            Self::Yielded(previous) if previous == revision => FieldDecision::Yield,
            Self::Waiting(_, until) => time_left(*until, MAX_BACKOFF, now)
                .map_or(FieldDecision::Write, FieldDecision::Wait),
            Self::Uncontested | Self::Rewritten(_) if was_set => FieldDecision::RecordConflict,
            Self::Uncontested | Self::Rewritten(_) | Self::Yielded(_) => FieldDecision::Write,
        }
    }

    /// The state after a conflict. Conflicts under other specs do not count.
    pub fn after_conflict(&self, revision: SpecRevision, base: Duration, now: Timestamp) -> Self {
        let count = match self {
            Self::Uncontested | Self::Yielded(_) => Some(ConflictCount::ONE),
            Self::Rewritten(count) | Self::Waiting(count, _) => count.next(),
        };
        let Some(count) = count else {
            return Self::Yielded(revision);
        };
        let until = now.checked_add(count.backoff(base));
        Self::Waiting(count, until.unwrap_or(Timestamp::MAX))
    }

    pub fn after_write(&self) -> Self {
        match self {
            Self::Uncontested | Self::Yielded(_) => Self::Uncontested,
            Self::Rewritten(count) | Self::Waiting(count, _) => Self::Rewritten(*count),
        }
    }

    pub fn conflicts(&self) -> i32 {
        match self {
            Self::Uncontested => 0,
            Self::Rewritten(count) | Self::Waiting(count, _) => count.get(),
            Self::Yielded(_) => MAX_CONFLICTS.into(),
        }
    }
}

#[cfg(test)]
mod tests;
