//! What is done about a field that somebody takes back (docs/spec/binding.md, section 7). Pure: who asks tells whether
//! the field stands, and remembers the state in the actor's status.

pub mod contest;
pub mod field_owner;
pub mod history;
pub mod restoring;

use std::num::NonZeroU8;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// So many losses in a row end the tries.
const MOST: u8 = 5;
/// The longest wait after a loss.
const LONGEST: Duration = Duration::from_mins(5);

/// What a contested field is for. Each has a state of its own, and no actor has more of them than status lists: a
/// binding has no workload of ours, and all others are a binding's but that of the `ScaledObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Our containers, volumes and annotations in a pod template (CONF-1).
    Template,
    /// The annotation that makes pods roll (CONF-2).
    Roll,
    /// The annotation that takes autoscaling from the target's owner (CONF-3).
    Autoscaler,
    /// The number of pods, which is the autoscaler's (CONF-4).
    Replicas,
    /// What we want of our `ScaledObject` (CONF-5, WRK-8).
    ScaledObject,
    /// What we want of our own workload (WRK-8).
    Workload,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Template,
        Self::Roll,
        Self::Autoscaler,
        Self::Replicas,
        Self::ScaledObject,
        Self::Workload,
    ];

    /// What status and metrics call it.
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

/// The specs for which tries were given up; with others they begin anew (CONF-6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Specs {
    /// Generation of the actor's.
    pub generation: i64,
    /// Tells the target's from another, our fields and the number of replicas left out: a plain target's own
    /// generation rises with each blow.
    pub target: String,
}

/// Losses in a row: at least one, and fewer than end the tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses(NonZeroU8);

impl Losses {
    const ONE: Self = Self(NonZeroU8::MIN);

    /// `None`: there was none, or so many that nothing is tried any more.
    pub fn new(losses: i32) -> Option<Self> {
        let losses = u8::try_from(losses).ok().and_then(NonZeroU8::new)?;
        (losses.get() < MOST).then_some(Self(losses))
    }

    /// As a number.
    pub fn get(self) -> i32 {
        self.0.get().into()
    }

    fn next(self) -> Option<Self> {
        Self::new(self.get() + 1)
    }

    /// How long nothing is written after the last of them.
    fn wait(self, base: Duration) -> Duration {
        let factor = 1_u32 << self.0.get();
        base.saturating_mul(factor).min(LONGEST)
    }
}

/// How a field stands in its conflict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nobody has taken it back, or it is not needed any more.
    #[default]
    Idle,
    /// Written again after so many losses.
    Held(Losses),
    /// Taken back so often; not to be written before.
    Waiting(Losses, Timestamp),
    /// Not to be written any more, as long as these are the specs.
    Stopped(Specs),
}

/// What a pass sees of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldView {
    /// Somebody needs it.
    pub needed: bool,
    /// We wrote it, and want the same since.
    pub written: bool,
    /// It is as wanted.
    pub stands: bool,
}

/// What to do about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it is not needed, or as wanted.
    Rest,
    /// It may be written.
    Write,
    /// It was taken back: a loss is to be booked, and nothing to be written.
    Lost,
    /// It is written when this has passed, if it is still needed then.
    Wait(Duration),
    /// It is not written any more.
    Stop,
}

impl State {
    /// Decides about a field.
    pub fn decide(&self, sight: FieldView, specs: &Specs, now: Timestamp) -> Step {
        let FieldView {
            needed,
            written,
            stands,
        } = sight;
        if !needed || stands {
            return Step::Rest;
        }
        match self {
            Self::Stopped(before) if before == specs => Step::Stop,
            Self::Waiting(_, until) => match (*until).duration_since(now).try_into() {
                Ok(wait) if *until > now => Step::Wait(wait),
                _ => Step::Write,
            },
            Self::Idle | Self::Held(_) if written => Step::Lost,
            Self::Idle | Self::Held(_) | Self::Stopped(_) => Step::Write,
        }
    }

    /// After a loss. Tries that were given up for other specs do not count.
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

    /// After it was written.
    pub fn written(&self) -> Self {
        match self {
            Self::Idle | Self::Stopped(_) => Self::Idle,
            Self::Held(losses) | Self::Waiting(losses, _) => Self::Held(*losses),
        }
    }

    /// Losses in a row.
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
