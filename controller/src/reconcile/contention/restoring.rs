//! How soon drift of our own objects is restored (WRK-8). Manual changes are undone at once. Repeated changes meet a
//! growing backoff, because two writers that undo each other would never stop.
//!
//! The state is in status, like the conflicts of a binding, so that a restart resumes the backoff.

use std::time::Duration;

use asya_shared::api::BindingConflict;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::Part;

/// Manual changes come one at a time: this many in a row are undone at once.
const QUICK: i32 = 5;
const LONGEST: Duration = Duration::from_mins(5);
/// Contention over an object ends after this long without a change.
const PEACE: Duration = Duration::from_mins(15);
const WAITING: &str = "Waiting";
const UNKNOWN: &str = "another field manager (unknown)";

/// What to do about drift of an object of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoring {
    /// Restore it now.
    Now,
    /// Leave it as it is for this long.
    In(Duration),
}

/// Drift that was restored.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
    /// The kind of object.
    pub part: Part,
    pub uid: String,
    /// The object, as Kind/name.
    pub object: String,
    /// The path of the field.
    pub field: String,
    /// Who changed it; `None`: unknown.
    pub rival: Option<String>,
}

/// Decides for the object with this UID.
pub fn decide(entries: &[BindingConflict], (uid, part): (&str, Part), now: Timestamp) -> Restoring {
    let found = entries.iter().find(|it| is_of(it, uid, part));
    let until = found.and_then(|it| it.retry_time.as_ref());
    match until.map(|it| it.0.duration_since(now).try_into()) {
        Some(Ok(wait)) if wait > Duration::ZERO => Restoring::In(wait),
        _ => Restoring::Now,
    }
}

/// The entries after a reconcile that has restored these; each replaces the entry for its kind of object.
pub fn follow(
    before: &[BindingConflict],
    restored: &[Restored],
    base: Duration,
    now: Timestamp,
) -> Vec<BindingConflict> {
    let mut entries = before.to_vec();
    for entry in &mut entries {
        if peace_in(entry, now).is_none() {
            entry.state.clear();
            (entry.losses, entry.retry_time) = (0, None);
        }
    }
    for it in restored {
        let at = entries
            .iter()
            .position(|entry| entry.part == it.part.name());
        let before = at.and_then(|at| entries.get(at));
        let after = lost(before, it, base, now);
        match at.and_then(|at| entries.get_mut(at)) {
            Some(slot) => *slot = after,
            None => entries.push(after),
        }
    }
    entries
}

fn lost(
    before: Option<&BindingConflict>,
    restored: &Restored,
    base: Duration,
    now: Timestamp,
) -> BindingConflict {
    let count = before.map_or(0, |it| it.count);
    let same = before.filter(|it| it.uid == restored.uid);
    let losses = same.map_or(0, |it| it.losses).saturating_add(1);
    let pause = pause(losses, base);
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let until = pause.and_then(|pause| now.checked_add(pause).ok());
    BindingConflict {
        field: restored.field.clone(),
        object: restored.object.clone(),
        rival: restored.rival.clone(),
        count: count.saturating_add(1),
        last_time: Some(Time(now)),
        part: restored.part.name().to_owned(),
        uid: restored.uid.clone(),
        state: until.map(|_| WAITING.to_owned()).unwrap_or_default(),
        losses,
        retry_time: until.map(Time),
        ..BindingConflict::default()
    }
}

/// Backoff from one restoration to the next.
fn pause(losses: i32, base: Duration) -> Option<Duration> {
    let more = u32::try_from(losses.checked_sub(QUICK)?).ok()?;
    let factor = 1_u32 << more.saturating_add(1).min(16);
    Some(base.saturating_mul(factor).min(LONGEST))
}

/// Time until a contested object has been left alone for long enough; `None`: it has.
fn peace_in(entry: &BindingConflict, now: Timestamp) -> Option<Duration> {
    let last = entry.last_time.as_ref().filter(|_| entry.losses > 0)?;
    let until = last.0.checked_add(PEACE).ok()?;
    let wait = until.duration_since(now).try_into().ok();
    wait.filter(|wait| *wait > Duration::ZERO)
}

/// Time until the message about these entries changes.
pub fn again(entries: &[BindingConflict], now: Timestamp) -> Option<Duration> {
    let told = entries.iter().filter(|it| it.state == WAITING);
    told.filter_map(|it| peace_in(it, now)).min()
}

/// Message about objects that are restored again and again.
pub fn told(entries: &[BindingConflict], base: Duration) -> Option<String> {
    let told = entries.iter().filter(|it| it.state == WAITING);
    let told: Vec<_> = told.map(|it| text(it, base)).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

fn text(entry: &BindingConflict, base: Duration) -> String {
    let BindingConflict {
        object,
        field,
        losses,
        ..
    } = entry;
    let rival = entry.rival.as_deref().unwrap_or(UNKNOWN);
    let pause = pause(*losses, base).unwrap_or_default().as_secs();
    let way_out = if entry.part == Part::ScaledObject.name() {
        "change spec.scaling of the actor instead"
    } else if field == "spec.replicas" {
        "set spec.workload.replicas of the actor instead, or spec.scaling"
    } else {
        "change spec.workload of the actor instead"
    };
    format!(
        "{object}: {field} was changed {losses} times in a row, last by {rival}, and restored each time; what is changed from now on stays for up to {pause} s; let that manager leave it alone, or {way_out}"
    )
}

fn is_of(entry: &BindingConflict, uid: &str, part: Part) -> bool {
    entry.part == part.name() && entry.uid == uid
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_secs(5);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn scaled() -> Restored {
        Restored {
            part: Part::Workload,
            uid: "uid".to_owned(),
            object: "Deployment/a".to_owned(),
            field: "spec.replicas".to_owned(),
            rival: Some("kubectl (Update)".to_owned()),
        }
    }

    fn of(entries: &[BindingConflict], second: i64) -> Restoring {
        decide(entries, ("uid", Part::Workload), at(second))
    }

    /// A manager that changes it back every second costs 14 writes in the first 20 minutes, then 12 an hour (WRK-8).
    #[test]
    fn a_duel_slows_down_to_a_write_in_five_minutes() {
        let mut entries = Vec::new();
        let mut writes = Vec::new();
        for second in 0..2 * 60 * 60 {
            let writes_now = of(&entries, second) == Restoring::Now;
            let done: Vec<_> = writes_now.then(scaled).into_iter().collect();
            writes.extend(writes_now.then_some(second));
            entries = follow(&entries, &done, BASE, at(second));
        }
        let within = |from: i64, to: i64| {
            let minutes = writes.iter().map(|it| it / 60);
            minutes.filter(|it| (from..to).contains(it)).count()
        };
        assert_eq!(&writes[..7], [0, 1, 2, 3, 4, 14, 34]);
        assert!(within(0, 20) <= 14, "{writes:?}");
        assert!((11..=13).contains(&within(60, 120)), "{writes:?}");
        let told = told(&entries, BASE).unwrap();
        for part in [
            "Deployment/a: spec.replicas",
            "kubectl (Update)",
            "up to 300 s",
            "spec.workload.replicas",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }

    /// WRK-4, WRK-8
    #[test]
    fn occasional_drift_is_restored_at_once_and_not_reported() {
        let mut entries = Vec::new();
        for turn in 0..50 {
            let now = turn * 15 * 60;
            assert_eq!(of(&entries, now), Restoring::Now);
            entries = follow(&entries, &[scaled()], BASE, at(now));
            assert_eq!(told(&entries, BASE), None);
        }
        assert_eq!(entries[0].count, 50);
    }

    /// WRK-8
    #[test]
    fn losses_are_forgotten_in_time_and_do_not_affect_a_new_object() {
        let mut entries = Vec::new();
        for second in 0..6 {
            entries = follow(&entries, &[scaled()], BASE, at(second));
        }
        assert_eq!(of(&entries, 6), Restoring::In(Duration::from_secs(19)));
        let another = decide(&entries, ("other", Part::Workload), at(6));
        assert_eq!(another, Restoring::Now);
        assert_eq!(
            decide(&entries, ("uid", Part::ScaledObject), at(6)),
            Restoring::Now
        );
        assert_eq!(
            again(&entries, at(6)),
            Some(Duration::from_secs(15 * 60 - 1))
        );

        let end = 5 + 15 * 60;
        assert!(told(&follow(&entries, &[], BASE, at(end - 1)), BASE).is_some());
        let after = follow(&entries, &[], BASE, at(end));
        assert_eq!((told(&after, BASE), again(&after, at(end))), (None, None));
        assert_eq!((after[0].count, after[0].losses), (6, 0));
        let other = Restored {
            uid: "other".to_owned(),
            ..scaled()
        };
        let made_anew = follow(&entries, &[other], BASE, at(6));
        assert_eq!((made_anew[0].count, made_anew[0].losses), (7, 1));
    }
}
