//! How the sidecars of a deleted actor leave the pods of its target (BIND-43, BIND-44).

use std::time::Duration;

use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use super::evict;
use crate::fault::Reason;
use crate::reconcile::model::announced::is_announced;
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::Availability;
use crate::reconcile::model::rollout::Live;

/// Replaces the actor's hash where only another value, not removal, makes the controller roll the pods.
pub const UNBOUND: &str = "unbound";
/// How long a controller that manages workloads may take to start a rollout.
const BEGUN: Duration = Duration::from_secs(30);
/// A rollout that has not started after this long is no longer expected.
const GIVEN_UP: Duration = Duration::from_mins(10);
const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(10);

/// Inputs to [`decide`].
#[derive(Clone, Debug)]
pub struct UnbindFacts<'a> {
    /// Cleanup is not needed: the user opted out, or the namespace is being deleted.
    pub skip: bool,
    /// Pods with the actor's sidecar that are not terminating.
    pub pods: &'a [OutdatedPod],
    /// Such a pod is terminating.
    pub going: bool,
    /// The queue has scaled the target to zero; it is woken after unbinding (SO-6).
    pub asleep: bool,
    pub availability: &'a Availability,
    /// Pods of the target at the last eviction.
    pub before: Option<i32>,
    /// Time of the last action, or of the actor's deletion.
    pub since: Option<Timestamp>,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    pub now: Timestamp,
    /// How the target's pods are replaced; `None`: the actor has no target any more.
    pub roll: Option<&'a Roll>,
    /// The objects that may carry our annotation, and the workloads that it rolls.
    pub live: &'a [Live],
    /// Why the target's pods are unknown, and whether we wrote to the target while they were known.
    pub unresolved: Option<(&'a str, bool)>,
    /// Time since our annotation was given up; `None`: it was not.
    pub released: Option<Duration>,
}

/// The next step of unbinding.
#[derive(Clone, Debug, PartialEq)]
pub enum Unbind {
    /// No pod has the sidecar, or none has to lose it.
    Done,
    /// The watches have not shown the target's pods yet.
    Unknown,
    /// Pods are being replaced.
    Wait(Duration),
    /// Blocked for this reason until a user or another controller acts.
    Blocked(String, Duration),
    /// No further pod is replaced until the others exist and are ready.
    Stalled(String, Duration),
    /// Remove what we wrote: the spec is then as before the binding, and its controller replaces the pods.
    Release,
    /// Write another value: here, removing the annotation would not trigger a rollout.
    Change,
    /// Evict this pod: nothing of ours is left whose removal would trigger a rollout.
    Evict(OutdatedPod),
}

/// What a step of unbinding needs.
#[derive(Debug, Default)]
pub struct UnbindInputs {
    /// Objects that carry our annotation, but are not known to belong to the target any more.
    pub left: Vec<ObjectRef>,
    /// The workload whose pod template has our part.
    pub template: Option<ObjectRef>,
    /// Where our annotations are given up or changed.
    pub annotations: Option<Roll>,
    /// Workloads with our annotation that names the binding actor.
    pub marked: Vec<ObjectRef>,
    /// An earlier reconcile has already announced what blocks it.
    pub announced: bool,
}

impl UnbindInputs {
    pub fn new(observed: &Observed, step: &Unbind) -> Self {
        let binding = observed.binding.as_ref();
        let Some(seen) = binding.and_then(|it| it.unbinding.as_ref()) else {
            return Self::default();
        };
        let writes = matches!(step, Unbind::Release | Unbind::Change);
        let objects = |is: fn(&Live) -> bool| {
            let all = seen.live.iter().filter(move |it| is(it));
            all.map(|it| it.object.clone())
        };
        let template = objects(|it| it.templated)
            .next()
            .filter(|_| *step == Unbind::Release);
        let annotated = seen.live.iter().any(|it| it.value.is_some() || it.claimed);
        let roll = seen.roll.clone().filter(|_| writes);
        Self {
            left: seen.left.iter().filter(|_| writes).cloned().collect(),
            annotations: roll.filter(|_| template.is_none() || annotated),
            template,
            marked: objects(|it| it.marked).collect(),
            announced: is_announced(observed, Reason::UnbindBlocked),
        }
    }
}

/// Decides the next step for an actor that is being deleted.
pub fn decide(facts: &UnbindFacts<'_>) -> Unbind {
    if facts.skip {
        return Unbind::Done;
    }
    if let Some((why, written)) = facts.unresolved {
        let annotated = facts.live.iter().any(|it| it.value.is_some());
        return match (facts.pods.is_empty(), facts.going) {
            _ if annotated && facts.released.is_none() => Unbind::Release,
            (true, false) if !written => Unbind::Done,
            (true, true) => Unbind::Wait(SOON),
            _ => Unbind::Blocked(why.to_owned(), LATER),
        };
    }
    let rolls_by_change =
        matches!(facts.roll, Some(Roll::Annotate(_, path)) if path.first() == Some(&"spec"));
    // A value that remains after we gave it up belongs to another field manager.
    let given_up = facts
        .released
        .is_some_and(|it| !rolls_by_change || it > GIVEN_UP);
    let has_ours = |it: &Live| it.value.is_some() || it.templated || it.claimed;
    let annotated = !given_up && facts.live.iter().any(has_ours);
    let begins = facts.released.is_some_and(|it| it < BEGUN)
        && matches!(facts.roll, Some(Roll::Annotate(..)));
    if facts.pods.is_empty() && !facts.going {
        return match () {
            () if annotated => Unbind::Release,
            // A pod started before the owner has updated its template would be replaced at once.
            () if facts.asleep && begins => Unbind::Wait(SOON),
            () => Unbind::Done,
        };
    }
    if let Some(paused) = facts.live.iter().find(|it| it.paused) {
        let text = format!(
            "{}: spec.paused is true, so its pods keep the sidecar; resume it, or annotate the actor asya.sh/skip-unbind: \"true\"",
            paused.object
        );
        return Unbind::Blocked(text, LATER);
    }
    let is_changed = facts
        .live
        .iter()
        .any(|it| it.value.as_deref() == Some(UNBOUND));
    if annotated && rolls_by_change && !is_changed {
        return Unbind::Change;
    }
    if annotated && !rolls_by_change {
        return Unbind::Release;
    }
    if begins || facts.going || facts.availability.going {
        return Unbind::Wait(SOON);
    }
    one_by_one(facts)
}

/// A pod without the sidecar is what would run without us, so a pod that cannot serve anyway is evicted at once. A
/// serving pod is evicted only while all others serve (SAFE-11).
fn one_by_one(facts: &UnbindFacts<'_>) -> Unbind {
    let evicting = evict::EvictionFacts {
        candidates: facts.pods,
        availability: facts.availability,
        present: facts.availability.present,
        before: facts.before,
        since: facts.since,
        limit: facts.limit,
        now: facts.now,
    };
    let rolls = facts.live.iter().any(|it| it.rolling);
    let next = match evicting.obstacle() {
        Some(obstacle) if obstacle.is_overdue && evicting.unready_candidate().is_none() => {
            let text = format!(
                "{} for {}, so no further pod is replaced; see the Events of the pod and of its controller; it goes on by itself once every pod is ready",
                obstacle.text,
                evicting.limit_text()
            );
            return Unbind::Stalled(text, LATER);
        }
        Some(_) => evicting.unready_candidate(),
        None => evicting.next(),
    };
    let next = next.filter(|_| !rolls);
    next.map_or(Unbind::Wait(SOON), |pod| Unbind::Evict(pod.clone()))
}

#[cfg(test)]
mod tests;
