//! How pods of a binding that run without the sidecar get it.

use asya_shared::names::annotation;
use serde_json::Value;

/// The actor's rollout strategy and its meaning; `None` if the actor binds nothing, or its sidecar is in the pod
/// template.
pub fn strategy(actor: &Value) -> Option<&'static str> {
    let spec = &actor["spec"];
    if !spec["workloadRef"].is_object() || spec["binding"]["strategy"] == "Template" {
        return None;
    }
    Some(match spec["binding"]["rollout"].as_str() {
        Some("OnRestart") => {
            "OnRestart: the operator replaces no pods; they get the sidecar when they restart"
        }
        _ => "Always: the operator replaces pods without the current sidecar",
    })
}

/// The value of the annotation that replaces pods regardless of the rollout strategy: since when.
pub fn roll_now(actor: &Value) -> Option<&str> {
    actor["metadata"]["annotations"]
        .get(annotation::ROLL_NOW)?
        .as_str()
}

/// What the actor's rollout strategy does about running pods without the sidecar, and the command that replaces them.
pub fn next_step(actor: &Value) -> Option<String> {
    strategy(actor)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &actor["metadata"];
    let target = format!(
        "{} -n {}",
        text(&metadata["name"]),
        text(&metadata["namespace"])
    );
    let is_on_restart = actor["spec"]["binding"]["rollout"] == "OnRestart";
    let is_halted = actor["status"]["rollout"]["halted"] == true;
    if is_paused(actor) {
        return Some(format!(
            "the actor is paused, so the operator replaces no pods; `kubectl asya resume {target}` ends that"
        ));
    }
    Some(match (roll_now(actor), is_on_restart) {
        (Some(_), _) if is_halted => {
            "the rollout is halted, because replacements start without the sidecar; correct what \
             `kubectl asya why` says of them, then change the spec of the actor or its target"
                .to_owned()
        }
        (Some(_), _) => format!(
            "annotation {} is set, so the operator replaces such pods now; `kubectl asya status {target} --watch` shows it",
            annotation::ROLL_NOW
        ),
        (None, true) => format!(
            "spec.binding.rollout is OnRestart, so the operator does not replace such pods: they get the sidecar when they \
             restart; `kubectl asya roll {target}` replaces them now"
        ),
        (None, false) if is_halted => format!(
            "spec.binding.rollout is Always, but the rollout is halted; `kubectl asya roll {target}` starts it again"
        ),
        (None, false) => format!(
            "spec.binding.rollout is Always, so the operator replaces such pods by itself; condition Injected says what that \
             waits for, and `kubectl asya status {target} --watch` shows it"
        ),
    })
}

/// FW-21
fn is_paused(actor: &Value) -> bool {
    let annotations = &actor["metadata"]["annotations"];
    annotations[annotation::PAUSED] == "true" || annotations[annotation::RECONCILE] == "Paused"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn actor(binding: &Value, annotations: &Value, status: &Value) -> Value {
        json!({
            "metadata": {"namespace": "models", "name": "embed", "annotations": annotations},
            "spec": {"workloadRef": {"kind": "Deployment", "name": "phi"}, "binding": binding},
            "status": status,
        })
    }

    /// ROLL-7, ROLL-8 (e)
    #[test]
    fn next_step_names_the_rollout_strategy_and_the_command() {
        let (none, on_restart) = (json!({}), json!({"rollout": "OnRestart"}));
        let rolled = json!({"asya.sh/roll-now": "2026-11-23T12:00:00Z"});
        let halted = json!({"rollout": {"halted": true}});
        for (binding, annotations, status, texts) in [
            (
                &on_restart,
                &none,
                &none,
                [
                    "OnRestart",
                    "`kubectl asya roll embed -n models` replaces them now",
                ],
            ),
            (
                &none,
                &none,
                &none,
                ["Always", "replaces such pods by itself"],
            ),
            (
                &none,
                &none,
                &halted,
                ["halted", "`kubectl asya roll embed -n models` starts"],
            ),
            (
                &on_restart,
                &rolled,
                &none,
                ["asya.sh/roll-now", "replaces such pods now"],
            ),
            (&none, &rolled, &halted, ["halted", "change the spec"]),
            (
                &on_restart,
                &json!({"asya.sh/paused": "true"}),
                &none,
                ["paused", "`kubectl asya resume embed -n models`"],
            ),
        ] {
            let step = next_step(&actor(binding, annotations, status)).unwrap();
            for text in texts {
                assert!(step.contains(text), "{text}: {step}");
            }
        }
    }

    #[test]
    fn only_sidecars_that_the_webhook_adds_have_a_rollout_strategy() {
        let template = json!({"strategy": "Template"});
        assert_eq!(next_step(&actor(&template, &json!({}), &json!({}))), None);
        assert_eq!(next_step(&json!({"spec": {"workload": {}}})), None);
    }
}
