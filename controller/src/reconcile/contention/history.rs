//! The contention states in an actor's status, and what is reported of them to users (CONF-6, CONF-9).

use std::time::Duration;

use asya_shared::api::BindingConflict;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Losses, Part, Specs, State};

const HELD: &str = "Held";
const WAITING: &str = "Waiting";
const STOPPED: &str = "Stopped";
/// Losses are forgotten after this long without another one; longer than any backoff.
const FORGIVEN: Duration = Duration::from_mins(15);
const UNKNOWN: &str = "another field manager (unknown)";

/// What happened to a field in a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldEvent {
    /// Nothing needs it.
    Needless,
    Written,
    Lost(FieldLoss),
}

/// The loss of a field to another manager.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldLoss {
    /// Path of the field.
    pub field: String,
    /// The object that has it, as Kind/name.
    pub object: String,
    /// Who took it back; `None`: unknown.
    pub rival: Option<String>,
    /// The current specs.
    pub specs: Specs,
    /// Give up now, whatever the number of losses.
    pub last: bool,
}

/// The contention state of a field of the target with this UID.
pub fn state(entries: &[BindingConflict], uid: &str, part: Part) -> State {
    let found = entries
        .iter()
        .find(|it| it.part == part.name() && it.uid == uid);
    found.map(State::of).unwrap_or_default()
}

/// When consecutive losses are forgotten, because the field has kept the desired value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgiven {
    /// There are none, or the field has kept it for long enough.
    Now,
    /// If the field keeps it for this much longer.
    In(Duration),
}

/// When the losses of a field with the desired value are forgotten.
pub fn forgiven(entries: &[BindingConflict], uid: &str, part: Part, now: Timestamp) -> Forgiven {
    let mut entries = entries.iter();
    let found = entries.find(|it| it.part == part.name() && it.uid == uid);
    let Some(entry) = found.filter(|it| State::of(it) != State::Idle) else {
        return Forgiven::Now;
    };
    let since = entry.last_time.as_ref().map_or(now, |it| it.0);
    let until = since.checked_add(FORGIVEN).unwrap_or(Timestamp::MAX);
    match until.duration_since(now).try_into() {
        Ok(wait) if until > now => Forgiven::In(wait),
        _ => Forgiven::Now,
    }
}

/// The entries after a reconcile: those of the target with this UID; `None`: it is unknown right now.
pub fn follow(
    before: &[BindingConflict],
    uid: Option<&str>,
    news: &[(Part, FieldEvent)],
    base: Duration,
    now: Timestamp,
) -> Vec<BindingConflict> {
    let mut entries = before.to_vec();
    let Some(uid) = uid else {
        return entries;
    };
    entries.retain(|it| it.uid == uid);
    for (part, news) in news {
        let at = entries.iter().position(|it| it.part == part.name());
        let before = at.and_then(|at| entries.get(at));
        let Some(after) = entry(before, (uid, *part), news, base, now) else {
            continue;
        };
        match at.and_then(|at| entries.get_mut(at)) {
            Some(slot) => *slot = after,
            None => entries.push(after),
        }
    }
    entries
}

/// The entries when no field is needed any more.
pub fn at_rest(before: &[BindingConflict]) -> Vec<BindingConflict> {
    let mut entries = before.to_vec();
    for entry in &mut entries {
        State::Idle.write_to(entry);
    }
    entries
}

/// The entry after `news`; `None`: there is nothing to remember.
fn entry(
    before: Option<&BindingConflict>,
    (uid, part): (&str, Part),
    news: &FieldEvent,
    base: Duration,
    now: Timestamp,
) -> Option<BindingConflict> {
    let state = before.map(State::of).unwrap_or_default();
    let state = match news {
        FieldEvent::Needless => State::Idle,
        FieldEvent::Written => state.written(),
        FieldEvent::Lost(loss) if loss.last => State::Stopped(loss.specs.clone()),
        FieldEvent::Lost(loss) => state.lost(loss.specs.clone(), base, now),
    };
    let mut entry = match (before, news) {
        (None, FieldEvent::Needless | FieldEvent::Written) => return None,
        (before, FieldEvent::Lost(loss)) => BindingConflict {
            field: loss.field.clone(),
            object: loss.object.clone(),
            rival: loss.rival.clone(),
            count: before.map_or(0, |it| it.count).saturating_add(1),
            last_time: Some(Time(to_the_second(now))),
            part: part.name().to_owned(),
            uid: uid.to_owned(),
            ..BindingConflict::default()
        },
        (Some(before), FieldEvent::Needless | FieldEvent::Written) => before.clone(),
    };
    state.write_to(&mut entry);
    Some(entry)
}

/// The entries for which a reconcile has recorded a loss.
pub fn losses<'a>(
    before: &'a [BindingConflict],
    after: &'a [BindingConflict],
) -> impl Iterator<Item = &'a BindingConflict> {
    after.iter().filter(|entry| {
        let known = before
            .iter()
            .find(|it| (&it.part, &it.uid) == (&entry.part, &entry.uid));
        known.map_or(0, |it| it.count) < entry.count
    })
}

/// The number of losses of all fields.
pub fn count(entries: &[BindingConflict]) -> i64 {
    entries
        .iter()
        .fold(0, |sum, it| sum.saturating_add(it.count))
}

/// Time of the latest loss.
pub fn last(entries: &[BindingConflict]) -> Option<Time> {
    let times = entries.iter().filter_map(|it| it.last_time.clone());
    times.max_by_key(|it| it.0)
}

/// Message about unresolved conflicts (CONF-9); `evicts`: pods that no annotation rolls are evicted.
pub fn told(entries: &[BindingConflict], evicts: bool) -> Option<String> {
    let told = entries
        .iter()
        .filter(|it| State::of(it) != State::Idle)
        .filter_map(|it| Some((it, part_of(it)?)));
    let told: Vec<_> = told.map(|(it, part)| text(it, part, evicts)).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// Message about one of them.
pub fn text(entry: &BindingConflict, part: Part, evicts: bool) -> String {
    let rival = entry.rival.as_deref().unwrap_or(UNKNOWN);
    let times = match State::of(entry).losses() {
        _ if evicts && part == Part::Roll => String::new(),
        0 | 1 => String::new(),
        times => format!(" {times} times"),
    };
    let stopped = matches!(State::of(entry), State::Stopped(_));
    let then = match (part, stopped) {
        (Part::Roll, true) if evicts => {
            "its pods are evicted one by one instead; nothing has to be done"
        }
        (Part::Roll, true) => {
            "it is not written any more: pods without the sidecar keep running as they are, and new ones get it; restart them yourself, or let that manager ignore this annotation, then change the spec of the actor or of the target"
        }
        (Part::Roll, false) => {
            "it is written again after a pause, five times at most; let that manager ignore this annotation, or set spec.binding.rollout to OnRestart and restart the pods yourself"
        }
        (Part::Template, true) => {
            "the sidecar is not written any more; set spec.binding.strategy to Pod, which leaves the template alone"
        }
        (Part::Template, false) => {
            "it is written again after a pause, five times at most; let that manager ignore it, or set spec.binding.strategy to Pod, which leaves the template alone"
        }
        (Part::Autoscaler, true) => {
            "it is not written any more, so the queue does not scale the target; let that manager ignore this annotation, then change the spec of the actor or of the target, or set spec.scaling.enabled to false"
        }
        (Part::Autoscaler, false) => {
            "it is written again after a pause, five times at most; let that manager ignore this annotation, or set spec.scaling.enabled to false"
        }
        (Part::Replicas, true) => {
            "the ScaledObject is paused, so that two do not fight; let that manager leave the number of replicas alone, then change the spec of the actor or of the target, or set spec.scaling.enabled to false"
        }
        (Part::Replicas, false) => {
            "the autoscaler sets it again; let that manager leave the number of replicas alone, or set spec.scaling.enabled to false"
        }
        // [`super::restoring`] reports these, since what is ours is never left to others.
        (Part::Workload, _) => "it is restored",
        (Part::ScaledObject, true) => {
            "it is not written any more, so KEDA scales by what stands there; change spec.scaling of the actor instead, which also begins anew"
        }
        (Part::ScaledObject, false) => {
            "it is written again after a pause, five times at most; change spec.scaling of the actor instead"
        }
    };
    let BindingConflict { object, field, .. } = entry;
    format!("{object}: {field} was lost{times} to {rival}; {then}")
}

/// The part that an entry is about; `None`: another release wrote the entry.
pub fn part_of(entry: &BindingConflict) -> Option<Part> {
    Part::ALL.into_iter().find(|it| it.name() == entry.part)
}

impl State {
    /// Reads the state from an entry; anything that we would not have written is [`State::Idle`].
    fn of(entry: &BindingConflict) -> Self {
        let losses = Losses::new(entry.losses);
        let until = entry.retry_time.as_ref().map(|it| it.0);
        match (&*entry.state, losses, until) {
            (HELD, Some(losses), _) => Self::Held(losses),
            (WAITING, Some(losses), Some(until)) => Self::Waiting(losses, until),
            (STOPPED, ..) => Self::Stopped(Specs {
                generation: entry.generation.unwrap_or_default(),
                target: entry.target.clone(),
            }),
            _ => Self::Idle,
        }
    }

    fn write_to(&self, entry: &mut BindingConflict) {
        entry.losses = self.losses();
        let state = match self {
            Self::Idle => "",
            Self::Held(_) => HELD,
            Self::Waiting(..) => WAITING,
            Self::Stopped(_) => STOPPED,
        };
        state.clone_into(&mut entry.state);
        entry.retry_time = match self {
            Self::Waiting(_, until) => Some(Time(to_the_next_second(*until))),
            Self::Idle | Self::Held(_) | Self::Stopped(_) => None,
        };
        let specs = match self {
            Self::Stopped(specs) => Some(specs),
            Self::Idle | Self::Held(_) | Self::Waiting(..) => None,
        };
        entry.generation = specs.map(|it| it.generation);
        entry.target = specs.map(|it| it.target.clone()).unwrap_or_default();
    }
}

/// Truncates to the resolution of timestamps in status.
fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn to_the_next_second(time: Timestamp) -> Timestamp {
    let begun = i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(time.as_second().saturating_add(begun)).unwrap_or(time)
}

#[cfg(test)]
mod tests;
