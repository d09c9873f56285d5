//! What a reconcile does about a contested field.

use std::time::Duration;

use asya_shared::api::BindingConflict;
use k8s_openapi::jiff::Timestamp;

use super::history::{self, Forgiven};
use super::{FieldStep, FieldView, Part, Specs};

/// The decision for a contested field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldDecision {
    /// Nothing: it is uncontested, or not needed.
    Over,
    /// Nothing: it has the desired value again; its losses are forgotten if it still has it after this delay.
    Stands(Duration),
    /// It may be written.
    Write,
    /// It was taken back.
    Lost(Specs),
    /// Do not write it before this delay has passed.
    Wait(Duration),
    /// Do not write it any more.
    Stop,
}

impl FieldDecision {
    /// Decides for a field of the target with this UID, from the conflicts so far.
    pub fn of(
        (entries, uid, part): (&[BindingConflict], &str, Part),
        sight: FieldView,
        specs: Specs,
        now: Timestamp,
    ) -> Self {
        match history::state(entries, uid, part).decide(sight, &specs, now) {
            FieldStep::Rest => match history::forgiven(entries, uid, part, now) {
                Forgiven::Now => Self::Over,
                Forgiven::In(wait) => Self::Stands(wait),
            },
            FieldStep::Write => Self::Write,
            FieldStep::Lost => Self::Lost(specs),
            FieldStep::Wait(wait) => Self::Wait(wait),
            FieldStep::Stop => Self::Stop,
        }
    }

    /// Whether it was taken back and must not be written for now.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Wait(_) | Self::Stop)
    }
}
