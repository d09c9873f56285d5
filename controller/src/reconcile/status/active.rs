//! Reports an active actor: what both modes have in common, then what its mode adds, and last the conditions.

use asya_shared::api::{AsyncActorStatus, State};
use k8s_openapi::jiff::Timestamp;

use super::binding::binding_report;
use super::common::{ModeReport, Report};
use super::conditions::set_conditions;
use super::drain::{DrainReport, drain_report};
use super::inventory::inventory;
use super::queue::queue_report;
use super::standalone::standalone_report;
use super::transport::summarize_transport;
use crate::fault::Requeue;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::drain::DrainState;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{BindingOutcome, CommonOutcome, StandaloneOutcome};

/// What to report about the mode of an active actor.
#[derive(Clone, Copy)]
pub(super) enum ActiveMode<'a> {
    Standalone(&'a StandaloneOutcome),
    Binding(&'a ObservedBinding, &'a BindingOutcome),
}

impl<'a> ActiveMode<'a> {
    fn common(self) -> &'a CommonOutcome {
        match self {
            Self::Standalone(outcome) => &outcome.common,
            Self::Binding(_, outcome) => &outcome.common,
        }
    }

    fn standalone(self) -> Option<&'a StandaloneOutcome> {
        match self {
            Self::Standalone(outcome) => Some(outcome),
            Self::Binding(..) => None,
        }
    }
}

pub(super) fn active_report(observed: &Observed, mode: ActiveMode<'_>, now: Timestamp) -> Report {
    let outcome = mode.common();
    let mut status = AsyncActorStatus {
        observed_generation: Some(observed.actor.generation),
        inventory: inventory(observed, outcome, mode.standalone()),
        ..AsyncActorStatus::default()
    };
    let queues = queue_report(observed, outcome);
    queues.fields.write_into(&mut status);
    let transport = summarize_transport(observed, outcome);
    let ModeReport {
        state,
        mut conditions,
        requeue,
        recheck_at,
        events,
    } = match mode {
        ActiveMode::Standalone(outcome) => {
            standalone_report(&mut status, observed, outcome, &transport, now)
        }
        ActiveMode::Binding(binding, outcome) => {
            binding_report(&mut status, observed, binding, outcome, &transport, now)
        }
    };
    let changes = transport.condition.into_iter().chain(conditions.changes);
    conditions.changes = changes.collect();
    status.status = Some(state);
    let drain = match &observed.drain {
        Some(DrainState::Waiting(remaining)) => drain_report(observed, remaining),
        _ => DrainReport::default(),
    };
    set_conditions(&mut status, observed, conditions, drain.conditions, now);
    // A workload that was scaled to zero must be applied again once it may run.
    if mode.standalone().is_some_and(|it| it.stopped.is_some()) {
        status.ready_generation = None;
    }
    if drain.requeue.is_some() {
        status.status = Some(State::Terminating);
    }
    let faults = [
        transport.fault,
        transport.spec_fault,
        outcome.fault.as_ref(),
    ];
    let recheck = recheck_at.and_then(|at| at.duration_since(now).try_into().ok());
    let requeues = faults.into_iter().flatten().map(|fault| fault.requeue);
    Report {
        requeue: requeues
            .chain(recheck.map(Requeue::After))
            .chain(outcome.queue.requeue())
            .chain(queues.requeue)
            .chain(drain.requeue)
            .fold(requeue, Requeue::sooner),
        events: (queues.events.into_iter())
            .chain(events)
            .chain(drain.event)
            .collect(),
        status,
    }
}
