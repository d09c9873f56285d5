use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{ScalingReady, scaling_ready};
use crate::fault::{Fault, Reason};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

const NOW: &str = "2026-01-01T00:02:00Z";

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn keda_says(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status, "message": "its words"}]}})
}

fn hpa_says(status: &str, reason: &str, since: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "ScalingActive", "status": status, "reason": reason, "message": "no answer", "lastTransitionTime": since,
    }]}})
}

fn judge(object: &Value, autoscaler: &Value, last_scaled: Option<&str>) -> ScalingReady {
    judge_within(
        Some(Duration::from_mins(2)),
        object,
        autoscaler,
        last_scaled,
    )
}

fn judge_within(
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

/// KEDA-10: the table of the condition.
#[test]
fn condition_reflects_keda_and_the_hpa() {
    let long_ago = "2026-01-01T00:00:00Z";
    let active = hpa_says("True", "ValidMetricFound", long_ago);
    let failing = hpa_says("False", "FailedGetExternalMetric", long_ago);
    let asleep = hpa_says("False", "ScalingDisabled", long_ago);
    let rows = [
        (
            keda_says("True"),
            &active,
            Some(true),
            Reason::ScaledObjectReady,
        ),
        (
            keda_says("Unknown"),
            &active,
            Some(true),
            Reason::ScaledObjectCreated,
        ),
        (json!({}), &active, Some(true), Reason::ScaledObjectCreated),
        (
            keda_says("False"),
            &active,
            Some(false),
            Reason::ScaledObjectNotReady,
        ),
        (
            keda_says("False"),
            &failing,
            Some(false),
            Reason::ScaledObjectNotReady,
        ),
        (
            keda_says("True"),
            &failing,
            Some(false),
            Reason::MetricsUnavailable,
        ),
        (
            keda_says("Unknown"),
            &failing,
            Some(false),
            Reason::MetricsUnavailable,
        ),
        (
            keda_says("True"),
            &asleep,
            Some(true),
            Reason::ScaledObjectReady,
        ),
    ];
    for (object, autoscaler, ready, reason) in rows {
        let judged = judge(&object, autoscaler, None);
        assert_eq!(
            (judged.ready, judged.reason),
            (ready, reason),
            "{object} {autoscaler}"
        );
        assert_eq!(judged.again, None);
    }
}

/// KEDA-10
#[test]
fn messages_of_keda_and_the_hpa_are_passed_on() {
    let active = hpa_says("True", "ValidMetricFound", NOW);
    assert!(
        judge(&keda_says("False"), &active, None)
            .message
            .ends_with("its words")
    );
    let failing = hpa_says("False", "FailedGetExternalMetric", "2026-01-01T00:00:00Z");
    let text = judge(&keda_says("True"), &failing, None).message;
    assert!(
        text.ends_with("FailedGetExternalMetric: no answer"),
        "{text}"
    );
}

/// KEDA-10, STA-6
#[test]
fn missing_metrics_are_tolerated_until_a_deadline() {
    let failing = hpa_says("False", "FailedGetExternalMetric", "2026-01-01T00:00:01Z");
    let judged = judge(&keda_says("True"), &failing, None);
    assert_eq!(judged.reason, Reason::ScaledObjectReady);
    assert_eq!(judged.again, Some(at("2026-01-01T00:02:01Z")));
}

/// KEDA-10
#[test]
fn how_long_metrics_may_be_missing_is_a_setting() {
    let failing = hpa_says("False", "FailedGetExternalMetric", "2026-01-01T00:00:00Z");
    let within = |limit| judge_within(limit, &keda_says("True"), &failing, None);
    let short = within(Some(Duration::from_secs(30)));
    assert_eq!(short.reason, Reason::MetricsUnavailable);
    assert!(short.message.contains("for 30 s"), "{}", short.message);
    let long = within(Some(Duration::from_mins(10)));
    assert_eq!(long.reason, Reason::ScaledObjectReady);
    assert_eq!(long.again, Some(at("2026-01-01T00:10:00Z")));
    let never = within(None);
    assert_eq!(
        (never.reason, never.again),
        (Reason::ScaledObjectReady, None)
    );
}

/// KEDA-10: if metrics fail after a scale-up from 0, the HPA keeps the transition time of when scaling stopped at 0,
/// hours ago.
#[test]
fn time_at_zero_replicas_does_not_count_as_missing_metrics() {
    let failing = hpa_says("False", "FailedGetExternalMetric", "2025-12-31T00:00:00Z");
    let judged = judge(&keda_says("True"), &failing, Some("2026-01-01T00:01:50Z"));
    assert_eq!(judged.reason, Reason::ScaledObjectReady);
    assert_eq!(judged.again, Some(at("2026-01-01T00:03:50Z")));
    let later = judge(&keda_says("True"), &failing, Some("2026-01-01T00:00:00Z"));
    assert_eq!(later.reason, Reason::MetricsUnavailable);
}

/// KEDA-9
#[test]
fn fault_of_the_plan_takes_precedence() {
    let fault = Fault::until_change(Reason::RivalAutoscaler, "web scales it");
    let object = scaled_object(&keda_says("True"));
    let judged = scaling_ready(Some(&fault), Some(&object), None, None, None, at(NOW));
    assert_eq!(
        (judged.ready, judged.reason, &*judged.message),
        (Some(false), Reason::RivalAutoscaler, "web scales it")
    );
}

#[test]
fn condition_is_unknown_until_the_scaled_object_exists() {
    let going = scaled_object(&json!({"metadata": {"deletionTimestamp": NOW}}));
    for object in [None, Some(&*going)] {
        let judged = scaling_ready(None, object, None, None, None, at(NOW));
        assert_eq!((judged.ready, judged.reason), (None, Reason::Progressing));
    }
}

/// KEDA-7: the user paused scaling, so it is no failure.
#[test]
fn pause_is_reported_and_counts_as_ready() {
    let mut object = keda_says("True");
    object["metadata"] = json!({"annotations": {"autoscaling.keda.sh/paused": "true"}});
    let judged = scaling_ready(
        None,
        Some(&scaled_object(&object)),
        None,
        None,
        None,
        at(NOW),
    );
    assert_eq!(judged.ready, Some(true));
    assert!(judged.message.contains("paused"), "{}", judged.message);
}
