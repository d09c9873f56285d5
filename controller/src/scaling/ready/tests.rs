use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{ScalingReady, scaling_ready};
use crate::condition::ConditionStatus;
use crate::fault::{Fault, Reason};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

const NOW: &str = "2026-01-01T00:02:00Z";

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn keda_reports(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status, "message": "details"}]}})
}

fn hpa_reports(status: &str, reason: &str, since: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "ScalingActive", "status": status, "reason": reason, "message": "no response", "lastTransitionTime": since,
    }]}})
}

fn evaluate(object: &Value, autoscaler: &Value, last_scaled: Option<&str>) -> ScalingReady {
    evaluate_within(
        Some(Duration::from_mins(2)),
        object,
        autoscaler,
        last_scaled,
    )
}

fn evaluate_within(
    limit: Option<Duration>,
    object: &Value,
    autoscaler: &Value,
    last_scaled: Option<&str>,
) -> ScalingReady {
    scaling_ready(
        None,
        Some(&scaled_object(object)),
        Some(&hpa(autoscaler)),
        limit,
        last_scaled.map(at),
        at(NOW),
    )
}

/// KEDA-10
#[test]
fn condition_reflects_keda_and_the_hpa() {
    let long_ago = "2026-01-01T00:00:00Z";
    let active = hpa_reports("True", "ValidMetricFound", long_ago);
    let failing = hpa_reports("False", "FailedGetExternalMetric", long_ago);
    let disabled = hpa_reports("False", "ScalingDisabled", long_ago);
    let rows = [
        (
            keda_reports("True"),
            &active,
            ConditionStatus::True,
            Reason::ScaledObjectReady,
        ),
        (
            keda_reports("Unknown"),
            &active,
            ConditionStatus::True,
            Reason::ScaledObjectCreated,
        ),
        (
            json!({}),
            &active,
            ConditionStatus::True,
            Reason::ScaledObjectCreated,
        ),
        (
            keda_reports("False"),
            &active,
            ConditionStatus::False,
            Reason::ScaledObjectNotReady,
        ),
        (
            keda_reports("False"),
            &failing,
            ConditionStatus::False,
            Reason::ScaledObjectNotReady,
        ),
        (
            keda_reports("True"),
            &failing,
            ConditionStatus::False,
            Reason::MetricsUnavailable,
        ),
        (
            keda_reports("Unknown"),
            &failing,
            ConditionStatus::False,
            Reason::MetricsUnavailable,
        ),
        (
            keda_reports("True"),
            &disabled,
            ConditionStatus::True,
            Reason::ScaledObjectReady,
        ),
    ];
    for (object, autoscaler, status, reason) in rows {
        let ready = evaluate(&object, autoscaler, None);
        assert_eq!(
            (ready.condition.status, ready.condition.reason),
            (status, reason),
            "{object} {autoscaler}"
        );
        assert_eq!(ready.recheck_at, None);
    }
}

/// KEDA-10
#[test]
fn messages_of_keda_and_the_hpa_are_included() {
    let active = hpa_reports("True", "ValidMetricFound", NOW);
    assert!(
        evaluate(&keda_reports("False"), &active, None)
            .condition
            .message
            .ends_with("details")
    );
    let failing = hpa_reports("False", "FailedGetExternalMetric", "2026-01-01T00:00:00Z");
    let text = evaluate(&keda_reports("True"), &failing, None)
        .condition
        .message;
    assert!(
        text.ends_with("FailedGetExternalMetric: no response"),
        "{text}"
    );
}

/// KEDA-10, STA-6
#[test]
fn missing_metrics_are_tolerated_until_a_deadline() {
    let failing = hpa_reports("False", "FailedGetExternalMetric", "2026-01-01T00:00:01Z");
    let ready = evaluate(&keda_reports("True"), &failing, None);
    assert_eq!(ready.condition.reason, Reason::ScaledObjectReady);
    assert_eq!(ready.recheck_at, Some(at("2026-01-01T00:02:01Z")));
}

/// KEDA-10
#[test]
fn deadline_for_missing_metrics_is_configurable() {
    let failing = hpa_reports("False", "FailedGetExternalMetric", "2026-01-01T00:00:00Z");
    let within = |limit| evaluate_within(limit, &keda_reports("True"), &failing, None);
    let short = within(Some(Duration::from_secs(30)));
    assert_eq!(short.condition.reason, Reason::MetricsUnavailable);
    assert!(
        short.condition.message.contains("for 30 s"),
        "{}",
        short.condition.message
    );
    let long = within(Some(Duration::from_mins(10)));
    assert_eq!(long.condition.reason, Reason::ScaledObjectReady);
    assert_eq!(long.recheck_at, Some(at("2026-01-01T00:10:00Z")));
    let never = within(None);
    assert_eq!(
        (never.condition.reason, never.recheck_at),
        (Reason::ScaledObjectReady, None)
    );
}

/// KEDA-10: if metrics fail after a scale-up from 0, the HPA keeps the transition time of when scaling stopped at 0,
/// hours ago.
#[test]
fn time_at_zero_replicas_does_not_count_as_missing_metrics() {
    let failing = hpa_reports("False", "FailedGetExternalMetric", "2025-12-31T00:00:00Z");
    let ready = evaluate(
        &keda_reports("True"),
        &failing,
        Some("2026-01-01T00:01:50Z"),
    );
    assert_eq!(ready.condition.reason, Reason::ScaledObjectReady);
    assert_eq!(ready.recheck_at, Some(at("2026-01-01T00:03:50Z")));
    let later = evaluate(
        &keda_reports("True"),
        &failing,
        Some("2026-01-01T00:00:00Z"),
    );
    assert_eq!(later.condition.reason, Reason::MetricsUnavailable);
}

/// KEDA-9
#[test]
fn fault_of_the_plan_takes_precedence() {
    let fault = Fault::until_change(Reason::RivalAutoscaler, "web scales it");
    let object = scaled_object(&keda_reports("True"));
    let ready = scaling_ready(Some(&fault), Some(&object), None, None, None, at(NOW));
    assert_eq!(
        (
            ready.condition.status,
            ready.condition.reason,
            &*ready.condition.message
        ),
        (
            ConditionStatus::False,
            Reason::RivalAutoscaler,
            "web scales it"
        )
    );
}

#[test]
fn condition_is_unknown_until_the_scaled_object_exists() {
    let deleted = scaled_object(&json!({"metadata": {"deletionTimestamp": NOW}}));
    for object in [None, Some(&*deleted)] {
        let ready = scaling_ready(None, object, None, None, None, at(NOW));
        assert_eq!(
            (ready.condition.status, ready.condition.reason),
            (ConditionStatus::Unknown, Reason::Progressing)
        );
    }
}

/// KEDA-7: paused by the user, so not a failure.
#[test]
fn pause_is_reported_and_counts_as_ready() {
    for (annotation, expected) in [
        ("paused", "KEDA does not scale"),
        ("paused-scale-out", "KEDA adds no pods"),
    ] {
        let mut object = keda_reports("True");
        let name = format!("autoscaling.keda.sh/{annotation}");
        object["metadata"] = json!({"annotations": {name: "true"}});
        let paused = json!({"type": "Paused", "status": "True"});
        let conditions = object["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(paused);
        let object = scaled_object(&object);
        let ready = scaling_ready(None, Some(&object), None, None, None, at(NOW));
        assert_eq!(
            (ready.condition.is_true(), ready.starts_pods),
            (true, false)
        );
        let message = &ready.condition.message;
        assert!(message.ends_with(expected), "{message}");
    }
}
