//! What a pass does about a contested field.

use std::time::Duration;

use asya_shared::api::BindingConflict;
use k8s_openapi::jiff::Timestamp;

use super::history::{self, Forgiven};
use super::{FieldView, Part, Specs, Step};

/// What to do about a contested field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldDecision {
    /// Nothing: nobody contests it, or it is not needed.
    Over,
    /// Nothing: it is as wanted, after losses; that is forgiven when it has stood for so long.
    Stands(Duration),
    /// It may be written.
    Write,
    /// It was taken back.
    Lost(Specs),
    /// It is not written before this has passed.
    Wait(Duration),
    /// It is not written any more.
    Stop,
}

impl FieldDecision {
    /// Decides about a field of the target with this uid, as its conflicts so far tell.
    pub fn of(
        (entries, uid, part): (&[BindingConflict], &str, Part),
        sight: FieldView,
        specs: Specs,
        now: Timestamp,
    ) -> Self {
        match history::state(entries, uid, part).decide(sight, &specs, now) {
            Step::Rest => match history::forgiven(entries, uid, part, now) {
                Forgiven::Now => Self::Over,
                Forgiven::In(wait) => Self::Stands(wait),
            },
            Step::Write => Self::Write,
            Step::Lost => Self::Lost(specs),
            Step::Wait(wait) => Self::Wait(wait),
            Step::Stop => Self::Stop,
        }
    }

    /// Whether it was taken back, and is not written for now.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Wait(_) | Self::Stop)
    }
}
