//! The writes of a command, and their consequences.

use asya_shared::names::annotation;
use asya_shared::validate::is_switched_on;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::queues::queues_afterwards;
use crate::actor::{annotation_of, is_orphaned, keeps_queue};
use crate::answer::Failure;

/// The change that the user requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedChange {
    Pause,
    Resume,
    Roll,
    Retain,
    Unbind { keep_queue: bool },
}

/// Writes, in order, and their consequences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub consequences: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum Step {
    /// Sets a field; `None` means absent.
    Set {
        field: String,
        before: Option<String>,
        after: Option<String>,
        #[serde(skip)]
        patch: Value,
    },
    Delete,
}

impl RequestedChange {
    pub fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Roll => "rolled",
            Self::Retain => "retained",
            Self::Unbind { .. } => "unbound",
        }
    }
}

impl Step {
    /// The write as one line, for the user to confirm.
    pub fn described(&self) -> String {
        let shown = |value: &Option<String>| {
            value
                .as_ref()
                .map_or_else(|| "absent".to_owned(), |it| format!("{it:?}"))
        };
        match self {
            Self::Set {
                field,
                before,
                after,
                ..
            } => format!("{field}: {} -> {}", shown(before), shown(after)),
            Self::Delete => "delete it".to_owned(),
        }
    }
}

/// Plans the writes for a change; no steps if there is nothing to change.
///
/// # Errors
/// If the change makes no sense for the actor.
pub fn plan(action: RequestedChange, actor: &Value, now: Timestamp) -> Result<Plan, Failure> {
    match action {
        RequestedChange::Pause => Ok(Plan {
            steps: annotate(actor, annotation::PAUSED, Some("true")),
            consequences: vec!["the operator writes nothing for it until it is resumed; pods, messages and scaling go on".to_owned()],
        }),
        RequestedChange::Resume => Ok(resume(actor)),
        RequestedChange::Roll => roll(actor, now),
        RequestedChange::Retain => Ok(Plan {
            steps: retain(actor),
            consequences: vec!["its queue and messages stay when it is deleted".to_owned()],
        }),
        RequestedChange::Unbind { keep_queue } => unbind(actor, keep_queue),
    }
}

/// Both annotations pause an actor (FW-21).
fn is_paused(actor: &Value) -> bool {
    is_switched_on(annotation_of(actor, annotation::PAUSED)) || reconciles_paused(actor)
}

fn reconciles_paused(actor: &Value) -> bool {
    annotation_of(actor, annotation::RECONCILE) == Some("Paused")
}

fn resume(actor: &Value) -> Plan {
    let mut steps = Vec::new();
    if is_switched_on(annotation_of(actor, annotation::PAUSED)) {
        steps.extend(annotate(actor, annotation::PAUSED, None));
    }
    if reconciles_paused(actor) {
        steps.extend(annotate(actor, annotation::RECONCILE, None));
    }
    Plan {
        steps,
        consequences: vec!["the operator catches up with what has changed meanwhile".to_owned()],
    }
}

fn roll(actor: &Value, now: Timestamp) -> Result<Plan, Failure> {
    must_bind(
        actor,
        "kubectl rollout restart replaces the pods of its own workload",
    )?;
    let name = actor["metadata"]["name"].as_str().unwrap_or_default();
    let waits =
        format!("the actor is paused: no pod is replaced until `kubectl asya resume {name}`");
    Ok(Plan {
        steps: annotate(
            actor,
            annotation::ROLL_NOW,
            Some(&now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ),
        consequences: [
            outdated(actor),
            format!(
                "the annotation stays in effect until `kubectl annotate asya {name} {}-`",
                annotation::ROLL_NOW
            ),
        ]
        .into_iter()
        .chain(is_paused(actor).then_some(waits))
        .collect(),
    })
}

/// How many pods are replaced.
fn outdated(actor: &Value) -> String {
    let pods = &actor["status"]["pods"];
    let count = |field: &str| pods[field].as_i64().unwrap_or_default();
    let (outdated, without) = (count("outdated"), count("notInjected"));
    format!(
        "pods with an outdated sidecar ({outdated}) or without one ({without}) are replaced, as PodDisruptionBudgets allow"
    )
}

fn retain(actor: &Value) -> Vec<Step> {
    let policy = actor["spec"]["queue"]["deletionPolicy"].as_str();
    let (field, wanted) = ("spec.queue.deletionPolicy", "Retain");
    if policy == Some(wanted) {
        return Vec::new();
    }
    vec![Step::Set {
        field: field.to_owned(),
        before: policy.map(str::to_owned),
        after: Some(wanted.to_owned()),
        patch: json!({"spec": {"queue": {"deletionPolicy": wanted}}}),
    }]
}

fn unbind(actor: &Value, keep_queue: bool) -> Result<Plan, Failure> {
    must_bind(
        actor,
        "its workload would be deleted with it; `kubectl asya retain` keeps at least its queue",
    )?;
    let mut steps = if keep_queue {
        retain(actor)
    } else {
        Vec::new()
    };
    steps.push(Step::Delete);
    Ok(Plan {
        steps,
        consequences: [pods_afterwards(actor, keep_queue).to_owned()]
            .into_iter()
            .chain(queues_afterwards(actor, keep_queue))
            .collect(),
    })
}

/// What happens to the target's pods.
fn pods_afterwards(actor: &Value, keep_queue: bool) -> &'static str {
    let skips_unbind = is_switched_on(annotation_of(actor, annotation::SKIP_UNBIND));
    let is_left =
        actor["spec"]["binding"]["rollout"] == "OnRestart" && (keep_queue || keeps_queue(actor));
    if skips_unbind || is_orphaned(actor) || is_left {
        "the target stays; its pods keep the sidecar, which goes on receiving messages, until they are replaced"
    } else {
        "the target stays; its pods are replaced by pods without the sidecar"
    }
}

fn must_bind(actor: &Value, why: &str) -> Result<(), Failure> {
    if actor["spec"]["workloadRef"].is_object() {
        return Ok(());
    }
    let name = actor["metadata"]["name"].as_str().unwrap_or_default();
    Err(Failure::new(format!(
        "AsyncActor {name} has its own workload (spec.workload), and binds none: {why}"
    )))
}

fn annotate(actor: &Value, name: &str, value: Option<&str>) -> Vec<Step> {
    let before = annotation_of(actor, name);
    if before == value {
        return Vec::new();
    }
    vec![Step::Set {
        field: format!("metadata.annotations[{name}]"),
        before: before.map(str::to_owned),
        after: value.map(str::to_owned),
        patch: json!({"metadata": {"annotations": {name: value}}}),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(annotations: &Value, spec: &Value) -> Value {
        json!({
            "metadata": {"name": "embed", "annotations": annotations},
            "spec": spec,
            "status": {"queue": {"name": "asya-embed"}, "queuedMessages": 12, "processingMessages": 3},
        })
    }

    fn described(action: RequestedChange, annotations: &Value, spec: &Value) -> Vec<String> {
        let now = "2026-11-23T12:00:00Z".parse().unwrap();
        let plan = plan(action, &actor(annotations, spec), now).unwrap();
        plan.steps.iter().map(Step::described).collect()
    }

    #[test]
    fn each_action_writes_one_thing_and_only_if_it_differs() {
        let (none, binding) = (json!({}), json!({"workloadRef": {"kind": "Deployment"}}));
        let retained = json!({"workloadRef": {}, "queue": {"deletionPolicy": "Retain"}});
        for (action, annotations, spec, expected) in [
            (
                RequestedChange::Pause,
                &none,
                &binding,
                &["metadata.annotations[asya.sh/paused]: absent -> \"true\""][..],
            ),
            (
                RequestedChange::Pause,
                &json!({"asya.sh/paused": "true"}),
                &binding,
                &[],
            ),
            (RequestedChange::Resume, &none, &binding, &[]),
            (
                RequestedChange::Resume,
                &json!({"asya.sh/paused": "false"}),
                &binding,
                &[],
            ),
            (
                RequestedChange::Resume,
                &json!({"asya.sh/paused": "true", "asya.sh/reconcile": "Paused"}),
                &binding,
                &[
                    "metadata.annotations[asya.sh/paused]: \"true\" -> absent",
                    "metadata.annotations[asya.sh/reconcile]: \"Paused\" -> absent",
                ],
            ),
            (
                RequestedChange::Roll,
                &none,
                &binding,
                &["metadata.annotations[asya.sh/roll-now]: absent -> \"2026-11-23T12:00:00Z\""],
            ),
            (
                RequestedChange::Retain,
                &none,
                &binding,
                &["spec.queue.deletionPolicy: absent -> \"Retain\""],
            ),
            (RequestedChange::Retain, &none, &retained, &[]),
            (
                RequestedChange::Unbind { keep_queue: false },
                &none,
                &binding,
                &["delete it"],
            ),
            (
                RequestedChange::Unbind { keep_queue: true },
                &none,
                &binding,
                &[
                    "spec.queue.deletionPolicy: absent -> \"Retain\"",
                    "delete it",
                ],
            ),
            (
                RequestedChange::Unbind { keep_queue: true },
                &none,
                &retained,
                &["delete it"],
            ),
        ] {
            assert_eq!(
                described(action, annotations, spec),
                expected,
                "{action:?} {annotations} {spec}"
            );
        }
    }

    /// BIND-44, FW-23
    #[test]
    fn unbinding_says_whether_the_pods_keep_the_sidecar() {
        let skip = |value: &str| json!({"asya.sh/skip-unbind": value});
        let orphan = json!({"deletionPolicy": "Orphan"});
        let on_restart = json!({"binding": {"rollout": "OnRestart"}});
        let retained = json!({
            "binding": {"rollout": "OnRestart"}, "queue": {"deletionPolicy": "Retain"},
        });
        for (annotations, spec, keep_queue, keeps) in [
            (json!({}), json!({}), true, false),
            (skip("false"), json!({}), false, false),
            (skip("true"), json!({}), false, true),
            (json!({}), orphan, false, true),
            (json!({}), on_restart.clone(), false, false),
            (json!({}), on_restart, true, true),
            (json!({}), retained, false, true),
        ] {
            let text = pods_afterwards(&actor(&annotations, &spec), keep_queue);
            assert_eq!(text.contains("keep the sidecar"), keeps, "{spec}: {text}");
        }
    }

    /// FW-21: the operator writes nothing for a paused actor.
    #[test]
    fn roll_of_a_paused_actor_says_that_it_waits() {
        let spec = json!({"workloadRef": {"kind": "Deployment"}});
        let waits = "the actor is paused: no pod is replaced until `kubectl asya resume embed`";
        for (annotations, expected) in [
            (json!({}), false),
            (json!({"asya.sh/paused": "false"}), false),
            (json!({"asya.sh/paused": "true"}), true),
            (json!({"asya.sh/reconcile": "Paused"}), true),
        ] {
            let planned = roll(&actor(&annotations, &spec), Timestamp::UNIX_EPOCH).unwrap();
            let says = planned.consequences.iter().any(|it| it == waits);
            assert_eq!(says, expected, "{:?}", planned.consequences);
        }
    }

    #[test]
    fn actor_with_its_own_workload_is_neither_rolled_nor_unbound() {
        let standalone = actor(&json!({}), &json!({"workload": {}}));
        for action in [
            RequestedChange::Roll,
            RequestedChange::Unbind { keep_queue: true },
        ] {
            let refused = plan(action, &standalone, Timestamp::UNIX_EPOCH)
                .unwrap_err()
                .to_string();
            assert!(
                refused.starts_with("AsyncActor embed has its own workload"),
                "{refused}"
            );
        }
    }
}
