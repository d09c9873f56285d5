//! The states of contested fields as they stand in an actor's status, and what users are told of them (CONF-6, CONF-9).

use std::time::Duration;

use asya_shared::api::BindingConflict;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Losses, Part, Specs, State};

const HELD: &str = "Held";
const WAITING: &str = "Waiting";
const STOPPED: &str = "Stopped";
/// A field that has stood for so long after a loss is nobody's any more but ours; longer than any wait.
const FORGIVEN: Duration = Duration::from_mins(15);
const UNKNOWN: &str = "another field manager (unknown)";

/// What a pass made of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldEvent {
    /// Nobody needs it.
    Needless,
    /// It was written.
    Written,
    /// It was taken back.
    Lost(FieldLoss),
}

/// A field was taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldLoss {
    /// Its path.
    pub field: String,
    /// What has it, as Kind/name.
    pub object: String,
    /// By whom; `None`: nobody knows.
    pub rival: Option<String>,
    /// The specs of now.
    pub specs: Specs,
    /// No further try is made, whatever the number of losses.
    pub last: bool,
}

/// How a field of the target with this uid stands.
pub fn state(entries: &[BindingConflict], uid: &str, part: Part) -> State {
    let found = entries
        .iter()
        .find(|it| it.part == part.name() && it.uid == uid);
    found.map(State::of).unwrap_or_default()
}

/// When losses in a row are forgotten, because the field has stood ever since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgiven {
    /// There are none, or it has stood for long.
    Now,
    /// When it has stood for so long.
    In(Duration),
}

/// Whether losses of a field that stands are forgotten.
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

/// The entries after a pass: those of the target with this uid; `None`: nobody knows it just now.
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

/// The entries of who needs no field any more.
pub fn at_rest(before: &[BindingConflict]) -> Vec<BindingConflict> {
    let mut entries = before.to_vec();
    for entry in &mut entries {
        State::Idle.write_to(entry);
    }
    entries
}

/// `None`: there is nothing to remember.
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

/// Entries of which a pass has booked a loss.
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

/// Losses of all fields together.
pub fn count(entries: &[BindingConflict]) -> i64 {
    entries
        .iter()
        .fold(0, |sum, it| sum.saturating_add(it.count))
}

/// When the last of them was.
pub fn last(entries: &[BindingConflict]) -> Option<Time> {
    let times = entries.iter().filter_map(|it| it.last_time.clone());
    times.max_by_key(|it| it.0)
}

/// Conflicts that are not over, for people (CONF-9); `evicts`: pods that no annotation rolls are evicted.
pub fn told(entries: &[BindingConflict], evicts: bool) -> Option<String> {
    let told = entries
        .iter()
        .filter(|it| State::of(it) != State::Idle)
        .filter_map(|it| Some((it, part_of(it)?)));
    let told: Vec<_> = told.map(|(it, part)| text(it, part, evicts)).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// What is told of one of them.
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
        // Told by its own rules, since what is ours is never left to others.
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

/// The part that an entry is about; `None`: another release wrote it.
pub fn part_of(entry: &BindingConflict) -> Option<Part> {
    Part::ALL.into_iter().find(|it| it.name() == entry.part)
}

impl State {
    /// As an entry tells it. What no entry of ours tells is none.
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

/// As status tells times.
fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn to_the_next_second(time: Timestamp) -> Timestamp {
    let begun = i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(time.as_second().saturating_add(begun)).unwrap_or(time)
}

#[cfg(test)]
mod tests;
