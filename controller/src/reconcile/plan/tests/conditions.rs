use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::*;

fn condition(kind: &str, status: &str, reason: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: Some(2),
        last_transition_time: Time(now()),
    }
}

/// Actors in every phase of their lifecycle.
fn phases() -> Vec<Observed> {
    let created = recorded(new(), &deployment(&new()));
    let mut drifted = deployment(&new());
    drifted["metadata"]["managedFields"] = json!([]);
    let mut verified = recorded(new(), &deployment(&new()));
    verified.queue = ObservedQueue::Verified;
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:30Z"});
    let mut deleting = observed(&actor(&deleting, &spec(&json!({})), &json!({})));
    deleting.workload = created.workload.clone();
    let invalid = with_spec(&json!({"transport": "nowhere"}));
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let paused = observed(&actor(&paused, &spec(&json!({})), &json!({})));
    let drifted = recorded(new(), &drifted);
    vec![new(), created, drifted, verified, deleting, invalid, paused]
}

/// FW-30
#[test]
fn conditions_never_influence_the_plan() {
    let reported = [
        vec![],
        ["TransportReady", "WorkloadReady", "ScalingReady", "Ready"]
            .map(|kind| condition(kind, "True", "AllReady"))
            .into(),
        [
            ("TransportReady", "QueueMissing"),
            ("WorkloadReady", "NotOwned"),
            ("ScalingReady", "KedaNotInstalled"),
            ("Ready", "Terminating"),
        ]
        .map(|(kind, reason)| condition(kind, "False", reason))
        .into(),
    ];
    for mut observed in phases() {
        let plans = reported.clone().map(|conditions| {
            observed.previous.conditions = conditions;
            format!("{:?}", plan(&observed, now()))
        });
        assert_eq!(plans[0], plans[1]);
        assert_eq!(plans[0], plans[2]);
    }
}
