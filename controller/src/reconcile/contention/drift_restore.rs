//! When drift of our own objects is restored (WRK-8).
//!
//! The state is in status, like the conflicts of a binding, so that the backoff survives a restart.

use std::time::Duration;

use asya_shared::api::ConflictStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{ContestedPart, UNKNOWN_MANAGER, WAITING};
use crate::clock_skew::time_left;
use crate::restore_delay::{MAX_DELAY, QUIET_PERIOD, restore_delay};

/// When to restore drift of one of our objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreTiming {
    Now,
    /// After this delay.
    In(Duration),
}

#[derive(Clone, Debug, PartialEq)]
pub struct RestoredDrift {
    /// The kind of object, as recorded in status.
    pub part: ContestedPart,
    pub uid: String,
    /// The object, as Kind/name.
    pub object: String,
    pub field: String,
    /// The manager that changed it, if known.
    pub manager: Option<String>,
}

/// Decides for the object with this UID.
pub fn decide(
    entries: &[ConflictStatus],
    uid: &str,
    part: ContestedPart,
    now: Timestamp,
) -> RestoreTiming {
    let entry = entries.iter().find(|entry| is_for(entry, uid, part));
    let until = entry.and_then(|it| it.retry_time.as_ref());
    until
        .and_then(|until| time_left(until.0, MAX_DELAY, now))
        .map_or(RestoreTiming::Now, RestoreTiming::In)
}

/// Whether condition `Conflict` reports this entry of a standalone actor: occasional changes are restored at once, and
/// not reported.
pub fn is_reported(entry: &ConflictStatus) -> bool {
    entry.state == WAITING
}

/// The entries after a reconcile that restored this drift; each replaces the entry for its kind of object.
pub fn record(
    previous: &[ConflictStatus],
    restored: &[RestoredDrift],
    base: Duration,
    now: Timestamp,
) -> Vec<ConflictStatus> {
    let mut entries = previous.to_vec();
    for entry in &mut entries {
        if quiet_time_left(entry, now).is_none() {
            entry.state.clear();
            (entry.consecutive_conflicts, entry.retry_time) = (0, None);
        }
    }
    for drift in restored {
        let at = entries
            .iter()
            .position(|entry| entry.part == drift.part.name());
        let previous = at.and_then(|at| entries.get(at));
        let after = record_restore(previous, drift, base, now);
        match at.and_then(|at| entries.get_mut(at)) {
            Some(entry) => *entry = after,
            None => entries.push(after),
        }
    }
    entries
}

fn record_restore(
    previous: Option<&ConflictStatus>,
    restored: &RestoredDrift,
    base: Duration,
    now: Timestamp,
) -> ConflictStatus {
    let count = previous.map_or(0, |it| it.count);
    let same_object = previous.filter(|entry| entry.uid == restored.uid);
    let conflicts = same_object
        .map_or(0, |it| it.consecutive_conflicts)
        .saturating_add(1);
    let delay = delay_after(conflicts, base);
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let until = delay.and_then(|delay| now.checked_add(delay).ok());
    ConflictStatus {
        field: restored.field.clone(),
        object: restored.object.clone(),
        manager: restored.manager.clone(),
        count: count.saturating_add(1),
        last_time: Some(Time(now)),
        part: restored.part.name().to_owned(),
        uid: restored.uid.clone(),
        state: until.map(|_| WAITING.to_owned()).unwrap_or_default(),
        consecutive_conflicts: conflicts,
        retry_time: until.map(Time),
        ..ConflictStatus::default()
    }
}

fn delay_after(conflicts: i32, base: Duration) -> Option<Duration> {
    restore_delay(u32::try_from(conflicts).ok()?, base)
}

/// The remaining quiet time of a contested object; `None` if it has passed.
fn quiet_time_left(entry: &ConflictStatus, now: Timestamp) -> Option<Duration> {
    let last = entry
        .last_time
        .as_ref()
        .filter(|_| entry.consecutive_conflicts > 0)?;
    let until = last.0.checked_add(QUIET_PERIOD).ok()?;
    time_left(until, QUIET_PERIOD, now)
}

/// Time until the message about these entries changes.
pub fn recheck_after(entries: &[ConflictStatus], now: Timestamp) -> Option<Duration> {
    let waiting = entries.iter().filter(|entry| is_reported(entry));
    waiting
        .filter_map(|entry| quiet_time_left(entry, now))
        .min()
}

/// Message about objects that are restored repeatedly.
pub fn conflict_message(entries: &[ConflictStatus], base: Duration) -> Option<String> {
    let waiting = entries.iter().filter(|entry| is_reported(entry));
    let messages: Vec<_> = waiting.map(|entry| entry_message(entry, base)).collect();
    (!messages.is_empty()).then(|| messages.join("\n"))
}

fn entry_message(entry: &ConflictStatus, base: Duration) -> String {
    let ConflictStatus {
        object,
        field,
        consecutive_conflicts: conflicts,
        ..
    } = entry;
    let manager = entry.manager.as_deref().unwrap_or(UNKNOWN_MANAGER);
    let delay = delay_after(*conflicts, base).unwrap_or_default().as_secs();
    let remedy = if entry.part == ContestedPart::ScaledObject.name() {
        "change spec.scaling of the actor instead"
    } else if field == "spec.replicas" {
        "set spec.workload.replicas of the actor instead, or spec.scaling"
    } else {
        "change spec.workload of the actor instead"
    };
    format!(
        "{object}: {field} was changed {conflicts} times in a row, last by {manager}, and restored each time; further \
         changes are restored after up to {delay} s; make that manager leave it alone, or {remedy}"
    )
}

fn is_for(entry: &ConflictStatus, uid: &str, part: ContestedPart) -> bool {
    entry.part == part.name() && entry.uid == uid
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_secs(5);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn replicas_drift() -> RestoredDrift {
        RestoredDrift {
            part: ContestedPart::Workload,
            uid: "uid".to_owned(),
            object: "Deployment/a".to_owned(),
            field: "spec.replicas".to_owned(),
            manager: Some("kubectl (Update)".to_owned()),
        }
    }

    fn timing(entries: &[ConflictStatus], second: i64) -> RestoreTiming {
        decide(entries, "uid", ContestedPart::Workload, at(second))
    }

    /// A manager that reverts the field every second costs 14 writes in the first 20 minutes, then 12 an hour (WRK-8).
    #[test]
    fn persistent_drift_is_restored_at_most_every_five_minutes() {
        let mut entries = Vec::new();
        let mut writes = Vec::new();
        for second in 0..2 * 60 * 60 {
            let writes_now = timing(&entries, second) == RestoreTiming::Now;
            let restored: Vec<_> = writes_now.then(replicas_drift).into_iter().collect();
            writes.extend(writes_now.then_some(second));
            entries = record(&entries, &restored, BASE, at(second));
        }
        let within = |from: i64, to: i64| {
            let minutes = writes.iter().map(|second| second / 60);
            minutes.filter(|minute| (from..to).contains(minute)).count()
        };
        assert_eq!(&writes[..7], [0, 1, 2, 3, 4, 14, 34]);
        assert!(within(0, 20) <= 14, "{writes:?}");
        assert!((11..=13).contains(&within(60, 120)), "{writes:?}");
        let message = conflict_message(&entries, BASE).unwrap();
        for text in [
            "Deployment/a: spec.replicas",
            "kubectl (Update)",
            "up to 300 s",
            "spec.workload.replicas",
        ] {
            assert!(message.contains(text), "{message}");
        }
    }

    /// WRK-4, WRK-8
    #[test]
    fn occasional_drift_is_restored_at_once_and_not_reported() {
        let mut entries = Vec::new();
        for change in 0..50 {
            let now = change * 15 * 60;
            assert_eq!(timing(&entries, now), RestoreTiming::Now);
            entries = record(&entries, &[replicas_drift()], BASE, at(now));
            assert_eq!(conflict_message(&entries, BASE), None);
        }
        assert_eq!(entries[0].count, 50);
    }

    /// WRK-8
    #[test]
    fn count_is_reset_after_a_quiet_period_and_for_a_new_object() {
        let mut entries = Vec::new();
        for second in 0..6 {
            entries = record(&entries, &[replicas_drift()], BASE, at(second));
        }
        assert_eq!(
            timing(&entries, 6),
            RestoreTiming::In(Duration::from_secs(19))
        );
        let new_object = decide(&entries, "other", ContestedPart::Workload, at(6));
        assert_eq!(new_object, RestoreTiming::Now);
        assert_eq!(
            decide(&entries, "uid", ContestedPart::ScaledObject, at(6)),
            RestoreTiming::Now
        );
        assert_eq!(
            recheck_after(&entries, at(6)),
            Some(Duration::from_secs(15 * 60 - 1))
        );

        let end = 5 + 15 * 60;
        assert!(conflict_message(&record(&entries, &[], BASE, at(end - 1)), BASE).is_some());
        let after = record(&entries, &[], BASE, at(end));
        assert_eq!(
            (
                conflict_message(&after, BASE),
                recheck_after(&after, at(end))
            ),
            (None, None)
        );
        assert_eq!((after[0].count, after[0].consecutive_conflicts), (6, 0));
        let recreated = RestoredDrift {
            uid: "other".to_owned(),
            ..replicas_drift()
        };
        let after = record(&entries, &[recreated], BASE, at(6));
        assert_eq!((after[0].count, after[0].consecutive_conflicts), (7, 1));
    }
}
