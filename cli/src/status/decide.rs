//! Summary of an actor in one line, and whether it needs attention.

use asya_shared::api::{AsyncActorStatus, State};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::actor::{condition, status_of};
use crate::catalogue;
use crate::output::age;

/// Conditions, ordered so that the cause of a problem precedes its effects.
const ORDER: [&str; 5] = [
    "TransportReady",
    "TargetResolved",
    "WorkloadReady",
    "Injected",
    "ScalingReady",
];

/// An actor on one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActorSummary {
    pub namespace: String,
    pub name: String,
    pub status: String,
    /// Ready pods, out of the desired ones.
    pub ready: String,
    pub queued_messages: Option<i64>,
    pub processing_messages: Option<i64>,
    pub transport: String,
    /// Kind/name of the workload, or of the target.
    pub target: String,
    pub age: String,
    /// The problem that needs attention, if there is one.
    pub attention: Option<Attention>,
}

/// Why an actor needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attention {
    pub id: String,
    pub reason: String,
    pub message: String,
}

/// Summarises an actor.
pub fn summary(actor: &Value, now: Timestamp) -> ActorSummary {
    let status = status_of(actor);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &actor["metadata"];
    let word = actor["status"]["status"].as_str().unwrap_or("Unknown");
    ActorSummary {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        status: word.to_owned(),
        ready: status
            .replicas_summary
            .clone()
            .unwrap_or_else(|| "-".to_owned()),
        queued_messages: status.queued_messages,
        processing_messages: status.processing_messages,
        transport: text(&actor["spec"]["transport"]),
        target: target(actor, &status),
        age: age(metadata["creationTimestamp"].as_str(), now),
        attention: attention(actor, &status),
    }
}

fn target(actor: &Value, status: &AsyncActorStatus) -> String {
    let reference = &actor["spec"]["workloadRef"];
    match (reference["kind"].as_str(), reference["name"].as_str()) {
        (Some(kind), Some(name)) => format!("{kind}/{name}"),
        _ => status
            .workload_ref
            .as_ref()
            .map_or_else(String::new, |it| format!("{}/{}", it.kind, it.name)),
    }
}

/// An actor's problem: that of its first condition that reports one.
fn attention(actor: &Value, status: &AsyncActorStatus) -> Option<Attention> {
    let generation = actor["metadata"]["generation"].as_i64();
    if status.observed_generation.is_none() {
        return Some(of_reason(
            "NotReconciled",
            "the operator has not reported on this actor yet".to_owned(),
        ));
    }
    let conflict = condition(status, "Conflict").filter(|it| it.status == "True");
    let broken = ORDER.iter().filter_map(|kind| condition(status, kind));
    let mut broken = broken.filter(|it| it.status == "False" && !is_transient(&it.reason));
    let cause = broken.next().or(conflict);
    match cause {
        Some(condition) => Some(of_reason(&condition.reason, condition.message.clone())),
        None if status.status.is_some_and(is_failing) => {
            // All conditions of a binding may be True although its pods are not ready, which only STATUS shows.
            let ready = condition(status, "Ready").filter(|it| it.status != "True");
            let summary = status.replicas_summary.as_deref().unwrap_or("-");
            let message =
                ready.map_or_else(|| format!("ready pods: {summary}"), |it| it.message.clone());
            Some(of_reason(&text_of(status.status), message))
        }
        None if generation > status.observed_generation => Some(of_reason(
            "NotReconciled",
            "the operator has not acted on the latest spec yet".to_owned(),
        )),
        None => None,
    }
}

fn of_reason(reason: &str, message: String) -> Attention {
    Attention {
        id: catalogue::id(reason),
        reason: reason.to_owned(),
        message,
    }
}

/// Whether a condition is False only until something in progress has finished.
pub fn is_transient(reason: &str) -> bool {
    matches!(
        reason,
        "Progressing"
            | "RollingOut"
            | "Scaling"
            | "RolloutInProgress"
            | "Paused"
            | "Terminating"
            | "TargetStopped"
            | "ScaledObjectCreated"
    )
}

/// Whether a STATUS means a problem.
fn is_failing(state: State) -> bool {
    match state {
        State::Creating
        | State::Running
        | State::Napping
        | State::Updating
        | State::ScalingUp
        | State::ScalingDown
        | State::Terminating => false,
        State::Degraded
        | State::PendingResources
        | State::ConfigError
        | State::VolumeError
        | State::ImagePullError
        | State::RuntimeError
        | State::SidecarError
        | State::WorkloadError
        | State::TransportError
        | State::ScalingError => true,
    }
}

fn text_of(state: Option<State>) -> String {
    let value = serde_json::to_value(state).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn actor(status: &Value) -> Value {
        json!({
            "metadata": {
                "namespace": "models", "name": "embed", "generation": 2, "creationTimestamp": "2026-11-23T11:00:00Z",
            },
            "spec": {"transport": "rabbitmq", "workloadRef": {"kind": "Deployment", "name": "phi"}},
            "status": status,
        })
    }

    fn conditions(all: &[(&str, &str, &str)]) -> Value {
        let all = all.iter().map(|(kind, status, reason)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": format!("text of {kind}"),
                "lastTransitionTime": "2026-11-23T11:00:00Z",
            })
        });
        Value::Array(all.collect())
    }

    fn attention_of(word: &str, all: &[(&str, &str, &str)]) -> Option<String> {
        let status = json!({
            "status": word, "observedGeneration": 2, "replicasSummary": "1/2", "conditions": conditions(all),
        });
        let found = summary(&actor(&status), Timestamp::UNIX_EPOCH).attention;
        found.map(|it| format!("{}: {}", it.reason, it.message))
    }

    #[test]
    fn attention_is_the_first_cause() {
        let ready = ("TransportReady", "True", "QueueReady");
        for (word, all, expected) in [
            ("Running", &[ready][..], None),
            (
                "Napping",
                &[ready, ("Conflict", "False", "NoConflict")],
                None,
            ),
            (
                "Updating",
                &[ready, ("Injected", "False", "RolloutInProgress")],
                None,
            ),
            (
                "TransportError",
                &[
                    ("WorkloadReady", "False", "TransportNotReady"),
                    ("TransportReady", "False", "BrokerUnreachable"),
                ],
                Some("BrokerUnreachable: text of TransportReady"),
            ),
            (
                "Running",
                &[ready, ("Injected", "False", "PodsNotInjected")],
                Some("PodsNotInjected: text of Injected"),
            ),
            (
                "Running",
                &[ready, ("Conflict", "True", "BindingConflict")],
                Some("BindingConflict: text of Conflict"),
            ),
            (
                "Degraded",
                &[ready, ("Ready", "False", "RuntimeError")],
                Some("Degraded: text of Ready"),
            ),
            (
                "Degraded",
                &[ready, ("Ready", "True", "AllReady")],
                Some("Degraded: ready pods: 1/2"),
            ),
        ] {
            assert_eq!(
                attention_of(word, all).as_deref(),
                expected,
                "{word} {all:?}"
            );
        }
    }

    #[test]
    fn actor_that_no_operator_has_seen_needs_attention() {
        let found = summary(&actor(&Value::Null), Timestamp::UNIX_EPOCH);
        assert_eq!(
            found.attention.map(|it| it.reason).as_deref(),
            Some("NotReconciled")
        );
        let behind = actor(&json!({"status": "Running", "observedGeneration": 1}));
        let found = summary(&behind, Timestamp::UNIX_EPOCH);
        assert_eq!(
            found.attention.map(|it| it.reason).as_deref(),
            Some("NotReconciled")
        );
    }
}
