//! Contention over a field that another manager takes back (docs/spec/binding.md, section 7). Pure: the caller observes
//! the field and stores the state in the actor's status.

pub mod contest;
pub mod field_owner;
pub mod history;
pub mod restoring;

use std::num::NonZeroU8;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// Consecutive losses after which the operator gives up.
const MOST: u8 = 5;
/// The longest backoff after a loss.
const LONGEST: Duration = Duration::from_mins(5);

/// What a contested field is for. Each part has a state of its own, and status has room for all parts of one actor: a
/// binding has no workload of ours, and a standalone actor contests only that and the `ScaledObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Our containers, volumes and annotations in a pod template (CONF-1).
    Template,
    /// The annotation that triggers a rollout (CONF-2).
    Roll,
    /// The annotation that takes autoscaling from the target's owner (CONF-3).
    Autoscaler,
    /// The number of pods, which belongs to the autoscaler (CONF-4).
    Replicas,
    /// Our fields of the `ScaledObject` (CONF-5, WRK-8).
    ScaledObject,
    /// Our fields of our own workload (WRK-8).
    Workload,
}

impl Part {
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

/// The specs for which attempts were given up; changed specs start over (CONF-6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Specs {
    /// The actor's generation.
    pub generation: i64,
    /// Identifies the target's spec without our fields and the replicas: a plain target's own generation rises with
    /// every contested write.
    pub target: String,
}

/// Consecutive losses: at least one, and fewer than make the operator give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses(NonZeroU8);

impl Losses {
    const ONE: Self = Self(NonZeroU8::MIN);

    /// `None`: there was none, or so many that the operator has given up.
    pub fn new(losses: i32) -> Option<Self> {
        let losses = u8::try_from(losses).ok().and_then(NonZeroU8::new)?;
        (losses.get() < MOST).then_some(Self(losses))
    }

    pub fn get(self) -> i32 {
        self.0.get().into()
    }

    fn next(self) -> Option<Self> {
        Self::new(self.get() + 1)
    }

    /// Backoff after the last loss.
    fn wait(self, base: Duration) -> Duration {
        let factor = 1_u32 << self.0.get();
        base.saturating_mul(factor).min(LONGEST)
    }
}

/// The contention state of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Uncontested, or not needed any more.
    #[default]
    Idle,
    /// Written again after this many losses.
    Held(Losses),
    /// Taken back this many times; must not be written before this time.
    Waiting(Losses, Timestamp),
    /// Must not be written any more while the specs are these.
    Stopped(Specs),
}

/// A field as observed in a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldView {
    /// Whether the field is needed.
    pub needed: bool,
    /// Whether we wrote it, and have wanted the same since.
    pub written: bool,
    /// Whether it has the desired value.
    pub stands: bool,
}

/// What to do about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldStep {
    /// Nothing: it is not needed, or has the desired value.
    Rest,
    /// It may be written.
    Write,
    /// It was taken back: record a loss, write nothing.
    Lost,
    /// Write it after this delay, if it is still needed then.
    Wait(Duration),
    /// Do not write it any more.
    Stop,
}

impl State {
    /// Decides for one field.
    pub fn decide(&self, sight: FieldView, specs: &Specs, now: Timestamp) -> FieldStep {
        let FieldView {
            needed,
            written,
            stands,
        } = sight;
        if !needed || stands {
            return FieldStep::Rest;
        }
        match self {
            Self::Stopped(before) if before == specs => FieldStep::Stop,
            Self::Waiting(_, until) => match (*until).duration_since(now).try_into() {
                Ok(wait) if *until > now => FieldStep::Wait(wait),
                _ => FieldStep::Write,
            },
            Self::Idle | Self::Held(_) if written => FieldStep::Lost,
            Self::Idle | Self::Held(_) | Self::Stopped(_) => FieldStep::Write,
        }
    }

    /// The state after a loss. Attempts that were given up for other specs do not count.
    pub fn lost(&self, specs: Specs, base: Duration, now: Timestamp) -> Self {
        let losses = match self {
            Self::Idle | Self::Stopped(_) => Some(Losses::ONE),
            Self::Held(losses) | Self::Waiting(losses, _) => losses.next(),
        };
        let Some(losses) = losses else {
            return Self::Stopped(specs);
        };
        let until = now.checked_add(losses.wait(base));
        Self::Waiting(losses, until.unwrap_or(Timestamp::MAX))
    }

    /// The state after a write.
    pub fn written(&self) -> Self {
        match self {
            Self::Idle | Self::Stopped(_) => Self::Idle,
            Self::Held(losses) | Self::Waiting(losses, _) => Self::Held(*losses),
        }
    }

    /// Consecutive losses.
    pub fn losses(&self) -> i32 {
        match self {
            Self::Idle => 0,
            Self::Held(losses) | Self::Waiting(losses, _) => losses.get(),
            Self::Stopped(_) => MOST.into(),
        }
    }
}

#[cfg(test)]
mod tests;
