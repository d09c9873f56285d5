use asya_shared::admission::facts::WebhookFacts;
use serde_json::json;

use super::super::render;
use super::*;

fn installation() -> Installation {
    let transports = json!({"transports": {"mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "b"}}}});
    Installation {
        transports: TransportsConfig::parse(&transports.to_string()).unwrap(),
        settings: Settings::parse(None, None, None).unwrap(),
        facts: WebhookFacts::default(),
    }
}

fn actor(name: &str, deployment: &str, binding: &Value) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "metadata": {"name": name},
        "spec": {
            "transport": "mq",
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "runtime": {"targetURL": "http://127.0.0.1:8000"},
            "binding": binding,
        },
    })
}

fn pod(deployment: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{deployment}-7d9f-x"),
            "labels": {"app": deployment, "pod-template-hash": "7d9f"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-7d9f"), "uid": "u",
                "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "model", "image": "vllm"}]},
    })
}

fn explain_in(
    namespace: &str,
    pod: &Value,
    actors: &[Value],
    installation: Option<&Installation>,
) -> Explanation {
    let actors: Vec<_> = actors
        .iter()
        .map(|it| KnownActor::from_file(it, namespace))
        .collect();
    explain(&Question {
        pod,
        namespace,
        operator_namespace: "asya-system",
        actors: &actors,
        installation,
        clusters: None,
        offline: true,
    })
}

fn explain_one(pod: &Value, actors: &[Value]) -> Explanation {
    explain_in("models", pod, actors, Some(&installation()))
}

/// INJ-1: a row per rule.
#[test]
fn each_rule_decides_with_the_reason_of_the_webhook() {
    let optional = [actor("embed", "phi", &json!({}))];
    let required = [actor("embed", "phi", &json!({"required": true}))];
    let with = |path: &str, value: Value| {
        let mut pod = pod("phi");
        *pod.pointer_mut(path).unwrap() = value;
        pod
    };
    let mut unusable = optional.clone();
    unusable[0]["spec"]["transport"] = json!("other");
    let mut unbound = optional.clone();
    unbound[0]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let opted_out = with(
        "/metadata/labels",
        json!({"asya.sh/inject": "false", "pod-template-hash": "7d9f"}),
    );
    let taken = with("/spec/containers", json!([{"name": "asya-sidecar"}]));
    for (pod, actors, reason, rule, outcome) in [
        (&pod("phi"), &optional, "Injected", 9, Outcome::Injected),
        (&pod("phi"), &required, "Injected", 9, Outcome::Injected),
        (
            &with("/spec", json!({})),
            &optional,
            "Unreadable",
            1,
            Outcome::NotInjected,
        ),
        (&pod("other"), &optional, "NoActor", 2, Outcome::NotInjected),
        (
            &pod("phi"),
            &unbound,
            "ActorDeleting",
            3,
            Outcome::NotInjected,
        ),
        (
            &pod("phi"),
            &unusable,
            "ActorUnusable",
            4,
            Outcome::NotInjected,
        ),
        (&opted_out, &optional, "OptedOut", 4, Outcome::NotInjected),
        (&opted_out, &required, "OptedOut", 4, Outcome::Rejected),
        (&taken, &optional, "SpecConflict", 7, Outcome::NotInjected),
    ] {
        let found = explain_one(pod, actors);
        assert_eq!(
            (&*found.reason, found.rule, found.outcome),
            (reason, rule, outcome),
            "{pod}"
        );
        assert_eq!(found.rules.len(), 9);
    }
    for (namespace, rule) in [("kube-system", 1), ("kube-flannel", 1), ("kubeflow", 2)] {
        let found = explain_in(namespace, &pod("phi"), &[], Some(&installation()));
        assert_eq!(found.rule, rule, "{namespace}: {}", found.reason);
    }
}

#[test]
fn nearest_actor_is_named_with_what_is_missing() {
    let actors = [
        actor("chat", "llama", &json!({})),
        actor("embed", "phi", &json!({})),
    ];
    let found = explain_one(&pod("mistral"), &actors);
    let nearest = found.nearest.unwrap();
    assert_eq!(nearest.actor, "models/chat");
    assert_eq!(
        nearest.missing,
        [
            "the pod's controller is ReplicaSet/mistral-7d9f, and a ReplicaSet of Deployment/llama is needed"
        ]
    );
    let mut alone = pod("phi");
    alone["metadata"]["ownerReferences"] = json!([]);
    let nearest = explain_one(&alone, &actors).nearest.unwrap();
    assert_eq!(
        nearest.missing[0],
        "the pod has no controller, and a ReplicaSet of Deployment/llama is needed"
    );
}

/// Without the operator's settings, an actor's transport would seem not to be configured.
#[test]
fn nothing_is_claimed_that_depends_on_unknown_settings() {
    let actors = [actor("embed", "phi", &json!({}))];
    let found = explain_in("models", &pod("phi"), &actors, None);
    assert_eq!(
        (found.outcome, found.rule, found.answer()),
        (Outcome::Unknown, 4, Answer::Unknown)
    );
    let found = explain_in("models", &pod("other"), &actors, None);
    assert_eq!(
        (&*found.reason, found.answer()),
        ("NoActor", Answer::Findings)
    );
}

#[test]
fn running_pod_without_the_sidecar_gets_the_operators_reason_and_the_command_that_replaces_it() {
    let mut actor = actor("embed", "phi", &json!({"rollout": "OnRestart"}));
    actor["metadata"]["uid"] = json!("u");
    actor["metadata"]["resourceVersion"] = json!("1");
    actor["metadata"]["namespace"] = json!("models");
    let binding = KnownActor::from_file(&actor, "models");
    let question = |actors| Question {
        pod: &Value::Null,
        namespace: "models",
        operator_namespace: "asya-system",
        actors,
        installation: None,
        clusters: None,
        offline: true,
    };
    let installation = installation();
    let actors = [binding];
    let bound = bindings(&Question {
        installation: Some(&installation),
        ..question(&actors)
    });
    let hash = bound[0].plan().unwrap().hash().actor.clone();
    actor["status"] = json!({
        "boundSince": "2026-01-01T00:00:00Z",
        "injection": {"proved": hash},
        "pods": {"reasons": [{"reason": "StartedBeforeBinding", "count": 1, "examples": ["phi-7d9f-x"]}]},
    });
    let actors = [KnownActor::new(actor)];
    let mut pod = pod("phi");
    pod["metadata"]["uid"] = json!("p");
    let found = explain(&Question {
        pod: &pod,
        installation: Some(&installation),
        offline: false,
        ..question(&actors)
    });
    assert_eq!(
        (&*found.reason, found.outcome),
        ("Injected", Outcome::Injected)
    );
    assert_eq!(found.answer(), Answer::Findings);
    let running = found.running.unwrap();
    assert!(running.starts_with("StartedBeforeBinding: "), "{running}");
    let next = found.next.unwrap();
    assert!(next.contains("spec.binding.rollout is OnRestart"), "{next}");
    assert!(
        next.contains("`kubectl asya roll embed -n models` replaces them now"),
        "{next}"
    );
}

#[test]
fn pod_of_an_actors_own_workload_has_the_sidecar_from_its_template() {
    let standalone = json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "metadata": {"name": "resize"},
        "spec": {"transport": "mq", "workload": {"kind": "Deployment"}},
    });
    let actors = [actor("embed", "phi", &json!({})), standalone];
    let mut pod = pod("resize");
    pod["spec"]["containers"] = json!([{"name": "asya-sidecar", "image": "asya"}]);
    for label in ["asya.sh/asya", "asya.sh/actor"] {
        pod["metadata"]["labels"] = json!({label: "resize"});
        for actors in [&actors[..], &actors[1..]] {
            let found = explain_one(&pod, actors);
            assert_eq!(
                (found.outcome, found.answer(), found.actor.as_deref()),
                (Outcome::FromTemplate, Answer::Fine, Some("models/resize"))
            );
            let text = render::text(&found, None);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(
                lines,
                [
                    "\x1b[1mPod models/resize-7d9f-x\x1b[0m \x1b[32mhas the sidecar from the pod template of its \
                     actor\x1b[0m",
                    "why: AsyncActor resize has its own workload (spec.workload), whose pod template has the sidecar; \
                     `kubectl asya trace resize` shows its pods",
                    "",
                    "controller   ReplicaSet/resize-7d9f",
                    "actor        models/resize",
                ]
            );
        }
    }
    // A label alone does not make it a pod of the actor.
    pod["spec"]["containers"] = json!([]);
    assert_eq!(explain_one(&pod, &actors).outcome, Outcome::NotInjected);
    pod["spec"]["containers"] = json!([{"name": "asya-sidecar"}]);
    pod["metadata"]["labels"] = json!({"asya.sh/asya": "embed"});
    assert_eq!(explain_one(&pod, &actors).outcome, Outcome::NotInjected);
}

#[test]
fn page_answers_first() {
    let found = explain_one(&pod("other"), &[actor("embed", "phi", &json!({}))]);
    let text = render::text(&found, None);
    let plain: Vec<&str> = text.lines().collect();
    assert_eq!(
        plain[..4],
        [
            "\x1b[1mPod models/other-7d9f-x\x1b[0m \x1b[31mdoes not get the sidecar\x1b[0m (NoActor, rule 2)",
            "why: No AsyncActor of the namespace binds the pod: its labels and its controller must both match.",
            "nearest: models/embed",
            "  the pod's controller is ReplicaSet/other-7d9f, and a ReplicaSet of Deployment/phi is needed",
        ]
    );
    assert!(
        text.contains("\nnearest: models/embed\n  the pod's controller is ReplicaSet/other-7d9f, "),
        "{text}"
    );
    assert!(text.contains("\nfix: "), "{text}");
    let results: Vec<_> = found.rules.iter().map(|it| it.verdict).collect();
    assert_eq!(
        results[..3],
        [Verdict::Passes, Verdict::Stops, Verdict::NotReached]
    );
    for word in ["passes", "stops", "not reached"] {
        assert!(text.contains(&format!("m{word}\x1b[0m")), "{word}: {text}");
    }
}

#[test]
fn pods_with_the_same_explanation_are_told_together() {
    let bound = [actor("embed", "phi", &json!({}))];
    let named = |name: &str| {
        let mut pod = pod("other");
        pod["metadata"]["name"] = json!(name);
        explain_one(&pod, &bound)
    };
    let all = [
        named("other-a"),
        named("other-b"),
        explain_one(&pod("phi"), &bound),
    ];
    let text = render::all(&all, None);
    assert_eq!(text.matches("RESULT").count(), 2, "{text}");
    assert!(
        text.contains("the same holds for models/other-b\n"),
        "{text}"
    );
}
