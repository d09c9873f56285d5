//! Numbers of `scaling`, `timeout` and `workload`.

use super::Subject;
use super::violation::Violations;
use crate::api::{AsyncActorSpec, MAX_CONCURRENCY, MetricType, messages};

/// A number of the spec, and the least that it may be.
struct Bounded {
    path: &'static str,
    value: fn(&AsyncActorSpec) -> Option<i32>,
    least: i32,
}

const fn bounded(
    path: &'static str,
    least: i32,
    value: fn(&AsyncActorSpec) -> Option<i32>,
) -> Bounded {
    Bounded { path, value, least }
}

const BOUNDED: [Bounded; 11] = [
    bounded("spec.workload.replicas", 0, |it| {
        it.workload.as_ref()?.replicas
    }),
    bounded("spec.timeout.processing", 0, |it| {
        it.timeout.as_ref()?.processing
    }),
    bounded("spec.timeout.gracefulShutdown", 0, |it| {
        it.timeout.as_ref()?.graceful_shutdown
    }),
    bounded("spec.timeout.progress", 0, |it| {
        it.timeout.as_ref()?.progress
    }),
    bounded("spec.scaling.minReplicas", 0, |it| {
        it.scaling.as_ref()?.min_replicas
    }),
    bounded("spec.scaling.pollingInterval", 0, |it| {
        it.scaling.as_ref()?.polling_interval
    }),
    bounded("spec.scaling.cooldownPeriod", 0, |it| {
        it.scaling.as_ref()?.cooldown_period
    }),
    bounded("spec.scaling.initialCooldownPeriod", 0, |it| {
        it.scaling.as_ref()?.initial_cooldown_period
    }),
    bounded("spec.scaling.activationQueueLength", 0, |it| {
        it.scaling.as_ref()?.activation_queue_length
    }),
    bounded("spec.scaling.maxReplicas", 1, |it| {
        it.scaling.as_ref()?.max_replicas
    }),
    bounded("spec.scaling.queueLength", 1, |it| {
        it.scaling.as_ref()?.queue_length
    }),
];

/// VAL-12.
pub(super) fn are_in_range(subject: &Subject<'_>, found: &mut Violations) {
    for Bounded { path, value, least } in &BOUNDED {
        if value(subject.spec).is_some_and(|it| it < *least) {
            let message = if *least == 0 {
                messages::AT_LEAST_0
            } else {
                messages::AT_LEAST_1
            };
            found.add(*path, message);
        }
    }
}

/// VAL-21.
pub(super) fn concurrency_is_in_range(subject: &Subject<'_>, found: &mut Violations) {
    let valid = 1..=MAX_CONCURRENCY;
    if subject
        .spec
        .concurrency
        .is_some_and(|it| !valid.contains(&it))
    {
        found.add("spec.concurrency", messages::CONCURRENCY);
    }
}

/// VAL-12.
pub(super) fn min_is_not_above_max(subject: &Subject<'_>, found: &mut Violations) {
    let above =
        |it: &crate::api::Scaling| it.effective_min_replicas() > it.effective_max_replicas();
    if subject.spec.scaling.as_ref().is_some_and(above) {
        found.add("spec.scaling.minReplicas", messages::MIN_ABOVE_MAX);
    }
}

/// VAL-13.
pub(super) fn formula_has_a_target(subject: &Subject<'_>, found: &mut Violations) {
    let Some(advanced) = subject
        .spec
        .scaling
        .as_ref()
        .and_then(|it| it.advanced.as_ref())
    else {
        return;
    };
    let has_formula = advanced.formula.as_ref().is_some_and(|it| !it.is_empty());
    if has_formula && !advanced.target.as_deref().is_some_and(is_above_zero) {
        found.add("spec.scaling.advanced.target", messages::FORMULA_TARGET);
    }
}

/// VAL-13.
pub(super) fn metric_type_can_be_read(subject: &Subject<'_>, found: &mut Violations) {
    let advanced = subject
        .spec
        .scaling
        .as_ref()
        .and_then(|it| it.advanced.as_ref());
    if advanced.and_then(|it| it.metric_type) == Some(MetricType::Utilization) {
        found.add("spec.scaling.advanced.metricType", messages::METRIC_TYPE);
    }
}

/// Digits with optional fraction and exponent, as in the CRD's rule: `parse` alone would also accept signs, `inf` and
/// `nan`.
fn is_above_zero(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    starts_well
        && text.parse::<f64>().is_ok()
        && mantissa.contains(|c: char| matches!(c, '1'..='9'))
}
