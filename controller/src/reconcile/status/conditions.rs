//! Conditions: reason, message and generation come from this reconcile; the transition time changes only with the
//! status.

use std::fmt::Display;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::fault::Reason;
use crate::reconcile::model::condition_types::READY;
use crate::reconcile::model::observed::Observed;

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

    /// Takes reason, message and generation from this reconcile; the transition time changes only with the status
    /// (STA-7).
    pub(super) fn set(
        &mut self,
        kind: &str,
        status: Option<bool>,
        reason: impl Display,
        message: &str,
    ) {
        let status = match status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
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
        match self.list.iter_mut().find(|it| it.type_ == kind) {
            Some(existing) => *existing = condition,
            None => self.list.push(condition),
        }
    }

    /// Removes a condition that no longer applies.
    pub(super) fn remove(&mut self, kind: &str) {
        self.list.retain(|condition| condition.type_ != kind);
    }

    /// Sets `Ready`: true if all others are, otherwise with the reason and message of the first that is not. `optional`
    /// conditions count only if they exist (STA-8).
    pub(super) fn set_ready(&mut self, needed: &[&str], optional: &[&str], paused: bool) {
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
        self.set(READY, Some(ready), reason, &message);
    }
}
