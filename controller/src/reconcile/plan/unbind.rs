//! How the sidecars of an actor that goes leave the pods of its target (BIND-43, BIND-44).

use std::time::Duration;

use asya_shared::resolve::Roll;
use k8s_openapi::jiff::Timestamp;

use super::evict;
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::rollout::Availability;
use crate::reconcile::model::rollout::Live;

/// What stands in for the actor's hash where nothing but another value makes pods roll.
pub const UNBOUND: &str = "unbound";
/// A controller that makes workloads has begun by then.
const BEGUN: Duration = Duration::from_secs(30);
/// Whoever has not begun by then never will.
const GIVEN_UP: Duration = Duration::from_mins(10);
const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(10);

/// All that is decided by.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The user, or the end of the namespace, makes it needless.
    pub skip: bool,
    /// Pods with the actor's sidecar that stay.
    pub pods: &'a [OutdatedPod],
    /// Such a pod is going.
    pub going: bool,
    /// The queue has scaled the target to 0, and it is woken when this is done (SO-6).
    pub asleep: bool,
    /// How many pods of the target can serve.
    pub availability: &'a Availability,
    /// Pods of the target when one was last evicted.
    pub before: Option<i32>,
    /// When something was last done, or the actor was deleted.
    pub since: Option<Timestamp>,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    /// Now.
    pub now: Timestamp,
    /// How the target's pods are replaced; `None`: there is no target of the actor's any more.
    pub roll: Option<&'a Roll>,
    /// What was annotated, and what is rolled by that.
    pub live: &'a [Live],
    /// Why nobody knows what the target's pods are, and whether we wrote something there when somebody did.
    pub unresolved: Option<(&'a str, bool)>,
    /// How long ago the annotation was given up; `None`: it was not.
    pub released: Option<Duration>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Unbind {
    /// No pod has the sidecar, or none needs to lose it.
    Done,
    /// The watches have yet to show what there is.
    Unknown,
    /// Pods are being replaced.
    Wait(Duration),
    /// Somebody has to do something first.
    Blocked(String, Duration),
    /// No further pod is replaced until the others are there and ready.
    Stalled(String, Duration),
    /// Give up our annotation: the spec is as before the binding, and its controller replaces the pods.
    Release,
    /// Another value, which makes pods roll where giving the annotation up does not.
    Change,
    /// Nothing of ours is left that would make pods roll: evict this one.
    Evict(OutdatedPod),
}

/// Decides about one actor that goes.
pub fn decide(facts: &Facts<'_>) -> Unbind {
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
    // One that stays after it was given up has become another's.
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
            // A pod that is woken before the owner has written its template would be replaced at once.
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

/// A clean pod is what there would be without us, so what cannot serve anyway is replaced at once. One that serves goes
/// only while all others do (SAFE-11).
fn one_by_one(facts: &Facts<'_>) -> Unbind {
    let evicting = evict::Facts {
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
