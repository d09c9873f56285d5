//! Numbers of `scaling`, `timeout` and `workload`.

use super::Subject;
use super::violation::Violations;
use crate::api::{MAX_CONCURRENCY, MetricType, messages};

/// VAL-12.
pub(super) fn are_in_range(subject: &Subject<'_>, found: &mut Violations) {
    let spec = subject.spec;
    let workload = spec.workload.as_ref();
    let timeout = spec.timeout.as_ref();
    let scaling = spec.scaling.as_ref();
    let at_least_0 = [
        (
            "spec.workload.replicas",
            workload.and_then(|it| it.replicas),
        ),
        (
            "spec.timeout.processing",
            timeout.and_then(|it| it.processing),
        ),
        (
            "spec.timeout.gracefulShutdown",
            timeout.and_then(|it| it.graceful_shutdown),
        ),
        ("spec.timeout.progress", timeout.and_then(|it| it.progress)),
        (
            "spec.scaling.minReplicas",
            scaling.and_then(|it| it.min_replicas),
        ),
        (
            "spec.scaling.pollingInterval",
            scaling.and_then(|it| it.polling_interval),
        ),
        (
            "spec.scaling.cooldownPeriod",
            scaling.and_then(|it| it.cooldown_period),
        ),
        (
            "spec.scaling.initialCooldownPeriod",
            scaling.and_then(|it| it.initial_cooldown_period),
        ),
        (
            "spec.scaling.activationQueueLength",
            scaling.and_then(|it| it.activation_queue_length),
        ),
    ];
    let at_least_1 = [
        (
            "spec.scaling.maxReplicas",
            scaling.and_then(|it| it.max_replicas),
        ),
        (
            "spec.scaling.queueLength",
            scaling.and_then(|it| it.queue_length),
        ),
    ];
    for (path, _) in at_least_0
        .iter()
        .filter(|(_, value)| value.is_some_and(|it| it < 0))
    {
        found.add(*path, messages::AT_LEAST_0);
    }
    for (path, _) in at_least_1
        .iter()
        .filter(|(_, value)| value.is_some_and(|it| it < 1))
    {
        found.add(*path, messages::AT_LEAST_1);
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
