//! The contention states in an actor's status, and the messages about them (CONF-6, CONF-9).

use std::time::Duration;

use asya_shared::api::{ConflictState, ConflictStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{
    ConflictCount, ContentionState, ContestedPart, FieldDecision, FieldView, QUIET_PERIOD,
    SpecRevision, UNKNOWN_MANAGER, WAITING,
};
use crate::clock_skew::{time_left, to_the_second};

/// The states in status: see [`ContentionState`].
const REWRITTEN: &str = ConflictState::Held.as_str();
const YIELDED: &str = ConflictState::Stopped.as_str();

/// What happened to a contested field in a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldEvent {
    /// It is not needed, or has kept the desired value for long enough: its conflicts no longer count.
    Reset,
    /// It was written, which keeps the count of its conflicts.
    Written,
    /// Another manager changed or owns it.
    Conflict(FieldConflict),
}

/// A conflict with another manager over a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldConflict {
    /// Path of the field.
    pub field: String,
    /// The object that has it, as Kind/name.
    pub object: String,
    /// The manager that changed or owns it, if known.
    pub manager: Option<String>,
    /// The current revision of the specs.
    pub revision: SpecRevision,
    /// Yield now, whatever the number of conflicts.
    pub yields: bool,
}

/// The contention over the fields of one target, as recorded in the status of its actor.
#[derive(Clone, Debug)]
pub struct ContentionHistory<'a> {
    pub entries: &'a [ConflictStatus],
    /// UID of the target.
    pub uid: &'a str,
    /// The current revision of the specs.
    pub revision: SpecRevision,
}

impl ContentionHistory<'_> {
    pub fn state(&self, part: ContestedPart) -> ContentionState {
        state(self.entries, self.uid, part)
    }

    /// Whether the field is no longer written, because of conflicts under the current revision of the specs.
    pub fn is_yielded(&self, part: ContestedPart) -> bool {
        matches!(self.state(part), ContentionState::Yielded(revision) if revision == self.revision)
    }

    /// Decides what to do about a field.
    pub fn decide(&self, part: ContestedPart, view: FieldView, now: Timestamp) -> FieldDecision {
        match self.state(part).decide(view, &self.revision, now) {
            FieldDecision::Keep => match conflict_reset(self.entries, self.uid, part, now) {
                ConflictReset::Now => FieldDecision::Keep,
                ConflictReset::In(wait) => FieldDecision::AwaitReset(wait),
            },
            decision => decision,
        }
    }
}

/// The contention state of a field of the target with this UID.
fn state(entries: &[ConflictStatus], uid: &str, part: ContestedPart) -> ContentionState {
    let entry = entries
        .iter()
        .find(|entry| entry.part == part.name() && entry.uid == uid);
    entry.map(ContentionState::from_entry).unwrap_or_default()
}

/// When consecutive conflicts are reset, because the field has kept the desired value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConflictReset {
    /// There are none, or the field has kept its value for long enough.
    Now,
    /// If the field keeps its value for this much longer.
    In(Duration),
}

/// When to reset the conflicts of a field that has the desired value.
fn conflict_reset(
    entries: &[ConflictStatus],
    uid: &str,
    part: ContestedPart,
    now: Timestamp,
) -> ConflictReset {
    let mut entries = entries.iter();
    let entry = entries.find(|entry| entry.part == part.name() && entry.uid == uid);
    let Some(entry) =
        entry.filter(|entry| ContentionState::from_entry(entry) != ContentionState::Uncontested)
    else {
        return ConflictReset::Now;
    };
    let since = entry.last_time.as_ref().map_or(now, |it| it.0);
    let until = since.checked_add(QUIET_PERIOD).unwrap_or(Timestamp::MAX);
    time_left(until, QUIET_PERIOD, now).map_or(ConflictReset::Now, ConflictReset::In)
}

/// The entries of the target with this UID after a reconcile; all entries while the UID is unknown.
pub fn update(
    previous: &[ConflictStatus],
    uid: Option<&str>,
    events: &[(ContestedPart, FieldEvent)],
    base: Duration,
    now: Timestamp,
) -> Vec<ConflictStatus> {
    let mut entries = previous.to_vec();
    let Some(uid) = uid else {
        return entries;
    };
    entries.retain(|entry| entry.uid == uid);
    for (part, event) in events {
        let at = entries.iter().position(|entry| entry.part == part.name());
        let previous = at.and_then(|at| entries.get(at));
        let Some(after) = entry(previous, uid, *part, event, base, now) else {
            continue;
        };
        match at.and_then(|at| entries.get_mut(at)) {
            Some(entry) => *entry = after,
            None => entries.push(after),
        }
    }
    entries
}

/// The entries once no field is needed any more.
pub fn reset_all(previous: &[ConflictStatus]) -> Vec<ConflictStatus> {
    let mut entries = previous.to_vec();
    for entry in &mut entries {
        ContentionState::Uncontested.write_to(entry);
    }
    entries
}

/// The entry after `event`; `None` if there is nothing to record.
fn entry(
    previous: Option<&ConflictStatus>,
    uid: &str,
    part: ContestedPart,
    event: &FieldEvent,
    base: Duration,
    now: Timestamp,
) -> Option<ConflictStatus> {
    let state = previous
        .map(ContentionState::from_entry)
        .unwrap_or_default();
    let state = match event {
        FieldEvent::Reset => ContentionState::Uncontested,
        FieldEvent::Written => state.after_write(),
        FieldEvent::Conflict(it) if it.yields => ContentionState::Yielded(it.revision.clone()),
        FieldEvent::Conflict(it) => state.after_conflict(it.revision.clone(), base, now),
    };
    let mut entry = match (previous, event) {
        (None, FieldEvent::Reset | FieldEvent::Written) => return None,
        (previous, FieldEvent::Conflict(conflict)) => ConflictStatus {
            field: conflict.field.clone(),
            object: conflict.object.clone(),
            manager: conflict.manager.clone(),
            count: previous.map_or(0, |it| it.count).saturating_add(1),
            last_time: Some(Time(to_the_second(now))),
            part: part.name().to_owned(),
            uid: uid.to_owned(),
            ..ConflictStatus::default()
        },
        (Some(previous), FieldEvent::Reset | FieldEvent::Written) => previous.clone(),
    };
    state.write_to(&mut entry);
    Some(entry)
}

/// The entries for which a reconcile has recorded a conflict.
pub fn new_conflicts<'a>(
    previous: &'a [ConflictStatus],
    after: &'a [ConflictStatus],
) -> impl Iterator<Item = &'a ConflictStatus> {
    after.iter().filter(|entry| {
        let known = previous
            .iter()
            .find(|previous| (&previous.part, &previous.uid) == (&entry.part, &entry.uid));
        known.map_or(0, |it| it.count) < entry.count
    })
}

/// The number of conflicts over all fields.
pub fn total_conflicts(entries: &[ConflictStatus]) -> i64 {
    entries
        .iter()
        .fold(0, |sum, it| sum.saturating_add(it.count))
}

pub fn last_conflict_time(entries: &[ConflictStatus]) -> Option<Time> {
    let times = entries.iter().filter_map(|it| it.last_time.clone());
    times.max_by_key(|it| it.0)
}

/// Message about unresolved conflicts; `evicts_pods`: pods that the roll annotation does not restart are evicted
/// (CONF-9).
pub fn conflict_message(entries: &[ConflictStatus], evicts_pods: bool) -> Option<String> {
    let unresolved = entries
        .iter()
        .filter(|entry| ContentionState::from_entry(entry) != ContentionState::Uncontested)
        .filter_map(|entry| Some((entry, part_of(entry)?)));
    let messages: Vec<_> = unresolved
        .map(|(it, part)| entry_message(it, part, evicts_pods))
        .collect();
    (!messages.is_empty()).then(|| messages.join("\n"))
}

pub fn entry_message(entry: &ConflictStatus, part: ContestedPart, evicts_pods: bool) -> String {
    let manager = entry.manager.as_deref().unwrap_or(UNKNOWN_MANAGER);
    let times = match ContentionState::from_entry(entry).conflicts() {
        _ if evicts_pods && part == ContestedPart::Roll => String::new(),
        0 | 1 => String::new(),
        times => format!(" {times} times"),
    };
    let yielded = matches!(
        ContentionState::from_entry(entry),
        ContentionState::Yielded(_)
    );
    let consequence = consequence(part, yielded, evicts_pods);
    let ConflictStatus { object, field, .. } = entry;
    format!("{object}: {manager} took over {field}{times}; {consequence}")
}

/// What the operator does about a conflict, and what the user can do.
fn consequence(part: ContestedPart, yielded: bool, evicts_pods: bool) -> &'static str {
    match (part, yielded) {
        (ContestedPart::Roll, true) if evicts_pods => {
            "its pods are evicted one by one instead; no action is needed"
        }
        (ContestedPart::Roll, true) => {
            "the operator no longer writes it: pods without the sidecar keep running, and new ones get it; restart \
             the pods yourself, or make that manager ignore this annotation and then change the spec of the actor or \
             of the target"
        }
        (ContestedPart::Roll, false) => {
            "the operator writes it again after a delay, at most four times; make that manager ignore this \
             annotation, or set spec.binding.rollout to OnRestart and restart the pods yourself"
        }
        (ContestedPart::Template, true) => {
            "the operator no longer writes the sidecar to the template; set spec.binding.strategy to Pod, which \
             leaves the template alone"
        }
        (ContestedPart::Template, false) => {
            "the operator writes it again after a delay, at most four times; make that manager ignore it, or set \
             spec.binding.strategy to Pod, which leaves the template alone"
        }
        (ContestedPart::Autoscaler, true) => {
            "the operator no longer writes it, so the queue does not scale the target; make that manager ignore this \
             annotation and then change the spec of the actor or of the target, or set spec.scaling.enabled to false"
        }
        (ContestedPart::Autoscaler, false) => {
            "the operator writes it again after a delay, at most four times; make that manager ignore this \
             annotation, or set spec.scaling.enabled to false"
        }
        (ContestedPart::Replicas, true) => {
            "the ScaledObject is paused so that two managers do not fight; make that manager leave the number of \
             replicas alone and then change the spec of the actor or of the target, or set spec.scaling.enabled to \
             false"
        }
        (ContestedPart::Replicas, false) => {
            "the autoscaler sets it again; make that manager leave the number of replicas alone, or set \
             spec.scaling.enabled to false"
        }
        // Reported by [`super::drift_restore`]: our own objects are always restored.
        (ContestedPart::Workload, _) => "it is restored",
        (ContestedPart::ScaledObject, true) => {
            "the operator no longer writes it, so KEDA uses the current value; change spec.scaling of the actor \
             instead, which also makes the operator write it again"
        }
        (ContestedPart::ScaledObject, false) => {
            "the operator writes it again after a delay, at most four times; change spec.scaling of the actor \
             instead"
        }
    }
}

/// The part that an entry names; `None` if another version wrote it.
pub fn part_of(entry: &ConflictStatus) -> Option<ContestedPart> {
    ContestedPart::ALL
        .into_iter()
        .find(|part| part.name() == entry.part)
}

impl ContentionState {
    /// Reads the state from an entry; anything that we would not have written is [`ContentionState::Uncontested`].
    fn from_entry(entry: &ConflictStatus) -> Self {
        let count = ConflictCount::new(entry.consecutive_conflicts);
        let until = entry.retry_time.as_ref().map(|it| it.0);
        match (&*entry.state, count, until) {
            (REWRITTEN, Some(count), _) => Self::Rewritten(count),
            (WAITING, Some(count), Some(until)) => Self::Waiting(count, until),
            (YIELDED, ..) => Self::Yielded(SpecRevision {
                generation: entry.generation.unwrap_or_default(),
                spec_hash: entry.spec_hash.clone(),
            }),
            _ => Self::Uncontested,
        }
    }

    fn write_to(&self, entry: &mut ConflictStatus) {
        entry.consecutive_conflicts = self.conflicts();
        let state = match self {
            Self::Uncontested => "",
            Self::Rewritten(_) => REWRITTEN,
            Self::Waiting(..) => WAITING,
            Self::Yielded(_) => YIELDED,
        };
        state.clone_into(&mut entry.state);
        entry.retry_time = match self {
            Self::Waiting(_, until) => Some(Time(to_the_next_second(*until))),
            Self::Uncontested | Self::Rewritten(_) | Self::Yielded(_) => None,
        };
        let revision = match self {
            Self::Yielded(revision) => Some(revision),
            Self::Uncontested | Self::Rewritten(_) | Self::Waiting(..) => None,
        };
        entry.generation = revision.map(|it| it.generation);
        entry.spec_hash = revision.map(|it| it.spec_hash.clone()).unwrap_or_default();
    }
}

/// Rounds up to the resolution of timestamps in status, so that a wait never ends early.
fn to_the_next_second(time: Timestamp) -> Timestamp {
    let round_up = i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(time.as_second().saturating_add(round_up)).unwrap_or(time)
}

#[cfg(test)]
mod tests;
