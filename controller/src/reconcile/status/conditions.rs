//! Conditions: reason, message and generation come from this reconcile; the transition time changes only with the
//! status. `readyGeneration`, `readySummary` and `transportStatus` follow from them.

use std::fmt::Display;

use asya_shared::api::{AsyncActorStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::Reason;
use crate::reconcile::model::condition_types::{READY, SCALING_READY, TRANSPORT_READY};
use crate::reconcile::model::observed::Observed;

/// A change to the stored conditions.
#[derive(Debug)]
pub enum ConditionChange {
    /// The condition of this type gets this value.
    Set(&'static str, ConditionValue),
    /// The condition no longer applies.
    Remove(&'static str),
}

/// The conditions of an active actor.
#[derive(Debug)]
pub struct ConditionReport {
    /// Changes to the conditions that `Ready` depends on.
    pub changes: Vec<ConditionChange>,
    pub ready: ReadyRule,
    pub conflict: ConditionChange,
}

/// How `Ready` and `readySummary` follow from the other conditions.
#[derive(Debug)]
pub struct ReadyRule {
    /// Conditions that must be true.
    pub needed: &'static [&'static str],
    /// Conditions that count only if they exist (STA-8).
    pub optional: &'static [&'static str],
    /// `readySummary` counts `ScalingReady` even while it does not exist (STA-10).
    pub expects_scaling: bool,
    /// `Ready` stays the last of the list.
    pub is_last: bool,
}

/// Writes the conditions of an active actor, and what follows from them. The `overrides` change nothing else.
pub(super) fn set_conditions(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    report: ConditionReport,
    overrides: Vec<ConditionChange>,
    now: Timestamp,
) {
    let ConditionReport {
        changes,
        ready,
        conflict,
    } = report;
    let mut conditions = Conditions::of(observed, now);
    conditions.apply(changes);
    let paused = observed.actor.annotations.paused;
    conditions.set_ready(ready.needed, ready.optional, paused);
    conditions.apply([conflict]);
    if ready.is_last {
        let list = &mut conditions.list;
        list.sort_by_key(|condition| condition.type_ == READY);
    }
    status.ready_generation = ready_generation(observed, status.status, &conditions);
    summarize(status, &conditions, &ready);
    conditions.apply(overrides);
    status.conditions = conditions.list;
}

/// The generation with which the actor was ready. A separate field, because conditions must not drive decisions
/// (FW-30). While pods of an older template run, the actor is not ready with this spec; an actor being deleted keeps
/// the generation recorded before (FW-21).
fn ready_generation(
    observed: &Observed,
    state: Option<State>,
    conditions: &Conditions,
) -> Option<i64> {
    let annotations = &observed.actor.annotations;
    let generation = observed.actor.generation;
    let known = observed.previous.ready_generation;
    let deleting = observed.actor.metadata.deleting;
    let known = known.filter(|known| *known == generation || deleting);
    let is_ready =
        conditions.is_true(READY) && state != Some(State::Updating) && !annotations.paused;
    let reached = is_ready.then_some(generation);
    known.or(reached).filter(|_| annotations.once)
}

/// Derives `readySummary` and `transportStatus` (STA-10, BIND-6).
fn summarize(status: &mut AsyncActorStatus, conditions: &Conditions, rule: &ReadyRule) {
    let scales = rule.expects_scaling || conditions.find(SCALING_READY).is_some();
    let scaling: &[&str] = if scales { &[SCALING_READY] } else { &[] };
    let expected = rule.needed.iter().chain(scaling);
    let mut ready = 0;
    let mut all = 0;
    for kind in expected {
        all += 1;
        ready += i32::from(conditions.is_true(kind));
    }
    let transport = conditions.is_true(TRANSPORT_READY);
    status.ready_summary = Some(format!("{ready}/{all}"));
    status.transport_status = Some(if transport { "Ready" } else { "NotReady" }.to_owned());
}

/// The conditions of a status under construction.
pub(super) struct Conditions {
    pub(super) list: Vec<Condition>,
    /// Those that the API server has. A condition may be set twice, and only the last status counts.
    stored: Vec<Condition>,
    generation: i64,
    now: Timestamp,
}

impl Conditions {
    /// Starts from the stored conditions.
    pub(super) fn of(observed: &Observed, now: Timestamp) -> Self {
        Self {
            list: observed.previous.conditions.clone(),
            stored: observed.previous.conditions.clone(),
            generation: observed.actor.generation,
            now,
        }
    }

    fn apply(&mut self, changes: impl IntoIterator<Item = ConditionChange>) {
        for change in changes {
            match change {
                ConditionChange::Set(kind, value) => {
                    self.set(kind, value.status, value.reason, &value.message);
                }
                ConditionChange::Remove(kind) => self.remove(kind),
            }
        }
    }

    fn find(&self, kind: &str) -> Option<&Condition> {
        self.list.iter().find(|condition| condition.type_ == kind)
    }

    fn is_true(&self, kind: &str) -> bool {
        self.find(kind)
            .is_some_and(|condition| condition.status == "True")
    }

    /// Takes reason, message and generation from this reconcile; the transition time changes only with the status
    /// (STA-7).
    pub(super) fn set(
        &mut self,
        kind: &str,
        status: impl Into<ConditionStatus>,
        reason: impl Display,
        message: &str,
    ) {
        let status = status.into().as_str();
        let stored = self
            .stored
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == status);
        let since = stored.map_or(Time(self.now), |condition| {
            condition.last_transition_time.clone()
        });
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_string(),
            message: message.to_owned(),
            observed_generation: Some(self.generation),
            last_transition_time: since,
        };
        match self
            .list
            .iter_mut()
            .find(|condition| condition.type_ == kind)
        {
            Some(existing) => *existing = condition,
            None => self.list.push(condition),
        }
    }

    /// Removes a condition that no longer applies.
    fn remove(&mut self, kind: &str) {
        self.list.retain(|condition| condition.type_ != kind);
    }

    /// Sets `Ready`: true if all others are, otherwise with the reason and message of the first that is not. `optional`
    /// conditions count only if they exist (STA-8).
    fn set_ready(&mut self, needed: &[&str], optional: &[&str], paused: bool) {
        let find = |kind: &&str| self.list.iter().find(|c| c.type_ == *kind).cloned();
        let is_true = |c: &Condition| c.status == "True";
        let known = needed.iter().all(|kind| find(kind).is_some());
        let all = needed.iter().chain(optional).filter_map(find);
        let cause = all.into_iter().find(|c| !is_true(c));
        let ready = known && cause.is_none();
        let (reason, message) = match cause {
            Some(cause) => (cause.reason, cause.message),
            None if ready => (
                Reason::AllReady.to_string(),
                "everything it needs is ready".to_owned(),
            ),
            None => (
                Reason::Progressing.to_string(),
                "the queue and the workload have not been checked yet".to_owned(),
            ),
        };
        let reason = if paused {
            Reason::Paused.to_string()
        } else {
            reason
        };
        self.set(READY, ready, reason, &message);
    }
}
