use serde_json::json;

use super::super::render;
use super::*;

fn actor(rollout: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {
            "namespace": "models", "name": "embed", "generation": 1, "annotations": annotations,
            "creationTimestamp": "2026-11-23T11:00:00Z",
        },
        "spec": {
            "transport": "mq", "workloadRef": {"kind": "Deployment", "name": "phi"}, "binding": {"rollout": rollout},
        },
        "status": {
            "status": "ScalingUp", "observedGeneration": 1, "readyReplicas": 0, "desiredReplicas": 2,
            "totalReplicas": 2, "queue": {"transport": "mq", "name": "asya-embed"},
            "pods": {
                "matched": 2, "injected": 0, "notInjected": 2, "outdated": 0,
                "reasons": [{"reason": "StartedBeforeBinding", "count": 2, "examples": ["phi-0", "phi-1"]}],
            },
        },
    })
}

fn pod(ready: &str, container: &str) -> Value {
    json!({
        "metadata": {"name": "phi-0"}, "spec": {"containers": [{"name": container}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn text(actor: &Value, around: Around) -> String {
    let now = "2026-11-23T12:00:00Z".parse().unwrap();
    render::page(&page(actor, around, now), None)
}

/// BIND-6, ROLL-7
#[test]
fn page_says_why_ready_pods_are_not_counted_and_which_command_gives_them_the_sidecar() {
    let pods = vec![
        pod("True", "model"),
        pod("True", "model"),
        pod("False", "model"),
        pod("True", "asya-sidecar"),
    ];
    let around = Around {
        pods: Some(pods),
        ..Around::default()
    };
    let text = text(&actor("OnRestart", &json!({})), around);
    for part in [
        "2 pods are ready, without the sidecar: the actor counts pods as ready once they have it",
        "rollout   OnRestart: the operator replaces no pods; they get the sidecar when they restart",
        "next: pods without the sidecar: spec.binding.rollout is OnRestart",
        "`kubectl asya roll embed -n models` replaces them now",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// ROLL-8 (e)
#[test]
fn annotation_that_rolls_pods_is_explained_while_it_lingers() {
    let mut rolled = actor(
        "OnRestart",
        &json!({"asya.sh/roll-now": "2026-11-23T11:30:00Z"}),
    );
    assert!(text(&rolled, Around::default()).contains("the operator replaces such pods now"));
    rolled["status"]["pods"] =
        json!({"matched": 2, "injected": 2, "notInjected": 0, "outdated": 0});
    let text = text(&rolled, Around::default());
    for part in [
        "annotation asya.sh/roll-now (since 2026-11-23T11:30:00Z) stays in effect",
        "`kubectl annotate asyncactor embed -n models asya.sh/roll-now-` ends that",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn page_has_what_the_broker_says() {
    let queue = QueueState {
        queue: "asya-embed".to_owned(),
        waiting: Some(3),
        consumers: Some(0),
        dead_letter_queue: Some("asya-embed-dlq".to_owned()),
        dead_letters: Some(2),
        has_shared_dead_letters: false,
    };
    let around = Around {
        queue: Some(queue),
        ..Around::default()
    };
    let actor = actor("Always", &json!({}));
    let found = page(&actor, around.clone(), Timestamp::UNIX_EPOCH);
    assert!(found.needs_attention());
    let text = text(&actor, around);
    for part in [
        "at the broker: 3 waiting, 0 consumers; 2 dead letters in asya-embed-dlq\n",
        "ASYA-NoConsumers: Messages wait in the actor's queue",
        "ASYA-DeadLetters: Messages failed",
        "`kubectl asya dlq embed -n models redrive`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
