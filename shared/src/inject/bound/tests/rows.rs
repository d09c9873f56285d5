//! The decision table, row by row (INJ-1).

use serde_json::{Value, json};

use crate::api::InjectionStatus;
use crate::inject::bound::testing::{
    Binding, container, injected, names, patched, pod, review, review_by, reviewed,
};
use crate::inject::bound::{
    Action, BoundActor, InjectionReason, InjectionState, JsonPointer, PodView, decide,
};

/// INJ-1, row 2
#[test]
fn unbound_pod_is_admitted_silently() {
    let actor = Binding::new(&json!({})).actor();
    let mut unrelated = pod(&json!({}));
    unrelated["metadata"]["ownerReferences"][0]["name"] = json!("other-5d8f7c");
    let decision = review(&actor, &unrelated);
    assert_eq!(decision.reason, InjectionReason::NoActor);
    assert_eq!(decision.action, Action::Allow);
    assert!(decision.actor.is_none() && decision.warnings.is_empty());
}

/// INJ-1, row 3
#[test]
fn inactive_actor_leaves_its_pods_unchanged() {
    let template = json!({"binding": {"strategy": "Template"}});
    for (change, reason) in [
        (
            |it: &mut Binding| it.deleting = true,
            InjectionReason::ActorDeleting,
        ),
        (
            |it: &mut Binding| it.bound = false,
            InjectionReason::NotBoundYet,
        ),
    ] as [(fn(&mut Binding), InjectionReason); 2]
    {
        // even with binding.required, because no pod could start while the queue is being created
        for mut binding in [Binding::new(&json!({})), Binding::required()] {
            change(&mut binding);
            let actor = binding.actor();
            let decision = review(&actor, &pod(&json!({})));
            assert_eq!((decision.reason, decision.action), (reason, Action::Allow));
        }
    }
    let actor = Binding::new(&template).actor();
    let decision = review(&actor, &pod(&json!({})));
    assert_eq!(
        (decision.reason, decision.action),
        (InjectionReason::StrategyTemplate, Action::Allow)
    );
}

/// Pods that get no sidecar, with the reason.
fn not_injectable() -> Vec<(Value, InjectionReason)> {
    let mut opted_out = pod(&json!({}));
    opted_out["metadata"]["labels"]["asya.sh/inject"] = json!("false");
    vec![
        (opted_out, InjectionReason::OptedOut),
        (
            pod(&json!({"hostNetwork": true})),
            InjectionReason::HostNetwork,
        ),
        (
            pod(&json!({"os": {"name": "windows"}})),
            InjectionReason::Windows,
        ),
        (
            pod(&json!({"nodeSelector": {"kubernetes.io/os": "windows"}})),
            InjectionReason::Windows,
        ),
        (
            pod(&json!({"restartPolicy": "OnFailure"})),
            InjectionReason::RestartPolicy,
        ),
        (
            pod(
                &json!({"containers": [{"name": "asya-sidecar", "image": "x", "ports": [{"containerPort": 1}]}]}),
            ),
            InjectionReason::SpecConflict,
        ),
        (
            pod(&json!({"initContainers": [{"name": "asya-runtime", "image": "x"}]})),
            InjectionReason::SpecConflict,
        ),
        (
            pod(&json!({"volumes": [{"name": "asya-tmp", "emptyDir": {}}]})),
            InjectionReason::SpecConflict,
        ),
        (
            pod(&json!({"containers": [{"name": "model", "image": "me/model:1"}]})),
            InjectionReason::TargetUrlUnknown,
        ),
    ]
}

/// INJ-1, rows 4 and 7; BIND-7, BIND-29
#[test]
fn optional_pod_that_cannot_have_the_sidecar_is_only_annotated() {
    let actor = Binding::new(&json!({})).actor();
    for (pod, reason) in not_injectable() {
        let decision = review(&actor, &pod);
        assert_eq!(decision.reason, reason);
        let Action::Annotate(patch) = decision.action else {
            panic!("{reason}: {:?}", decision.action);
        };
        let mut expected = pod.clone();
        expected["metadata"]["annotations"] = json!({"asya.sh/not-injected": reason.as_str()});
        let marked = patched(&pod, &patch);
        assert_eq!(marked, expected);
        assert_eq!(
            decision.warnings.len(),
            usize::from(reason != InjectionReason::OptedOut)
        );
        // reinvocation
        assert_eq!(review(&actor, &marked).action, Action::Allow);
    }
}

/// INJ-1, rows 4 and 7; BIND-46
#[test]
fn required_pod_that_cannot_have_the_sidecar_is_rejected() {
    let actor = Binding::required().actor();
    for (pod, reason) in not_injectable() {
        let decision = review(&actor, &pod);
        assert_eq!(decision.reason, reason);
        let Action::Deny(text) = decision.action else {
            panic!("{reason}: {:?}", decision.action);
        };
        let begin = format!(
            "AsyncActor team-a/embed has binding.required, and this pod cannot get its sidecar ({reason}): "
        );
        assert!(text.starts_with(&begin), "{text}");
        assert!(decision.warnings.is_empty());
    }
    let conflict = pod(&json!({"volumes": [{"name": "asya-tmp", "emptyDir": {}}]}));
    let Action::Deny(text) = review(&actor, &conflict).action else {
        panic!();
    };
    assert!(
        text.ends_with(
            "its volume asya-tmp has a name that is reserved by Asya; rename it in the pod template"
        ),
        "{text}"
    );
}

#[test]
fn unusable_actor_is_reported_and_blocks_required_pods() {
    for (spec, why) in [
        (
            json!({"transport": "none"}),
            "spec.transport: transport \"none\" is not configured",
        ),
        (
            json!({"transport": "off"}),
            "spec.transport: transport \"off\" is disabled",
        ),
        (
            json!({"runtime": {"handler": "undotted"}}),
            "spec.runtime.handler: ",
        ),
    ] {
        let actor = Binding::new(&spec).actor();
        assert!(
            matches!(&actor.state, InjectionState::Unusable(text) if text.starts_with(why)),
            "{actor:?}"
        );
        let decision = review(&actor, &pod(&json!({})));
        assert_eq!(decision.reason, InjectionReason::ActorUnusable);
        assert!(matches!(decision.action, Action::Annotate(_)));
        let mut required = spec.clone();
        required["binding"] = json!({"required": true});
        let actor = Binding::new(&required).actor();
        let Action::Deny(text) = review(&actor, &pod(&json!({}))).action else {
            panic!("{spec}");
        };
        assert!(text.contains(why), "{text}");
    }
}

/// INJ-1, row 8; BIND-20, BIND-22
#[test]
fn pod_gets_runtime_and_sidecar_after_its_own_containers() {
    let actor = Binding::new(&json!({})).actor();
    let before = pod(&json!({}));
    let after = injected(&actor, &before);
    assert_eq!(
        names(&after, "containers"),
        ["model", "asya-runtime", "asya-sidecar"]
    );
    assert_eq!(
        names(&after, "volumes"),
        [
            "data",
            "asya-socket-dir",
            "asya-tmp",
            "asya-runtime",
            "asya-no-token"
        ]
    );
    assert_eq!(container(&after, "model"), container(&before, "model"));
    let metadata = &after["metadata"];
    assert_eq!(metadata["labels"]["asya.sh/asya"], "embed");
    assert_eq!(metadata["labels"]["asya.sh/actor"], "embed");
    assert_eq!(metadata["labels"]["app"], "phi");
    assert_eq!(metadata["annotations"]["asya.sh/injected-by"], "uid-1");
    let hash = metadata["annotations"]["asya.sh/injected-hash"]
        .as_str()
        .unwrap();
    assert_eq!(hash, actor.plan().unwrap().hash().to_string());
    assert!(hash.len() == 33 && hash.as_bytes()[16] == b'.', "{hash}");
    // everything else is unchanged
    let mut rest = after.clone();
    for (list, own) in [("containers", 1), ("volumes", 1)] {
        rest["spec"][list].as_array_mut().unwrap().truncate(own);
    }
    rest["metadata"] = before["metadata"].clone();
    assert_eq!(rest, before);
}

/// INJ-5
#[test]
fn missing_parents_are_created_first() {
    let actor = Binding::new(&json!({"sidecar": {"native": true}})).actor();
    let mut before = pod(&json!({}));
    before["spec"].as_object_mut().unwrap().remove("volumes");
    let after = injected(&actor, &before);
    assert_eq!(names(&after, "volumes").len(), 4);
    assert_eq!(names(&after, "initContainers"), ["asya-sidecar"]);
    assert_eq!(names(&after, "containers"), ["model", "asya-runtime"]);

    for (member, value) in [("labels", Value::Null), ("annotations", Value::Null)] {
        let mut odd = pod(&json!({"volumes": null, "initContainers": null}));
        odd["metadata"][member] = value;
        let by_kind = Binding {
            spec: serde_json::from_value(json!({
                "transport": "rabbit",
                "workloadRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "phi"},
            }))
            .unwrap(),
            ..Binding::new(&json!({}))
        };
        odd["metadata"]["ownerReferences"][0]["kind"] = json!("StatefulSet");
        odd["metadata"]["ownerReferences"][0]["name"] = json!("phi");
        let after = injected(&by_kind.actor(), &odd);
        assert_eq!(after["metadata"]["labels"]["asya.sh/actor"], "embed");
        assert_eq!(
            after["metadata"]["annotations"]["asya.sh/injected-by"],
            "uid-1"
        );
    }
}

/// INJ-4
#[test]
fn key_with_slashes_and_tildes_is_one_token() {
    let path = JsonPointer::of("metadata").then("a~1b/c").item(0).end();
    assert_eq!(
        serde_json::to_value(path).unwrap(),
        "/metadata/a~01b~1c/0/-"
    );

    let actor = Binding::new(&json!({})).actor();
    let mut before = pod(&json!({}));
    before["metadata"]["annotations"] =
        json!({"a~1b/c": "kept", "asya.sh": {}, "asya.sh/not-injected": "WebhookUnavailable"});
    before["metadata"]["annotations"]["asya.sh"] = json!("kept");
    let after = injected(&actor, &before);
    let annotations = after["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations["a~1b/c"], "kept");
    assert_eq!(annotations["asya.sh"], "kept");
    assert_eq!(annotations["asya.sh/injected-by"], "uid-1");
    assert!(!annotations.contains_key("asya.sh/not-injected"));
}

/// INJ-2, BIND-45
#[test]
fn older_of_two_actors_wins() {
    let older = Binding {
        created: Some("2026-05-04T09:00:00Z"),
        uid: "uid-9",
        name: "older",
        ..Binding::required()
    }
    .actor();
    let younger = Binding::new(&json!({})).actor();
    for actors in [[&older, &younger], [&younger, &older]] {
        let decision = review_by(actors, &pod(&json!({})));
        assert_eq!(decision.actor, Some(&older));
        assert_eq!(
            decision.warnings,
            [
                "AsyncActors team-a/older and team-a/embed both bind this pod; the older one, team-a/older, is used. \
                 Set queue.deletionPolicy of one of them to Retain, which keeps its queue and messages, and delete it"
            ]
        );
    }
    // created within the same second
    let twin = Binding {
        uid: "uid-0",
        name: "twin",
        ..Binding::new(&json!({}))
    }
    .actor();
    let decision = review_by([&younger, &twin], &pod(&json!({})));
    assert_eq!(decision.actor, Some(&twin));
}

/// BIND-28
#[test]
fn grace_period_below_graceful_shutdown_has_a_warning() {
    let actor = Binding::new(&json!({"timeout": {"gracefulShutdown": 31}})).actor();
    let decision = review(&actor, &pod(&json!({})));
    assert_eq!(decision.reason, InjectionReason::Injected);
    assert_eq!(decision.warnings.len(), 1);
    assert!(decision.warnings[0].contains("terminationGracePeriodSeconds is less than"));
    let after = reviewed(&actor, &pod(&json!({})));
    assert_eq!(after["spec"]["terminationGracePeriodSeconds"], 30);
    let just_enough = Binding::new(&json!({"timeout": {"gracefulShutdown": 30}})).actor();
    assert!(review(&just_enough, &pod(&json!({}))).warnings.is_empty());
}

/// ADM-8
#[test]
fn malformed_pod_is_an_error_and_not_a_panic() {
    for text in [
        "",
        "[]",
        "{}",
        r#"{"spec":{}}"#,
        r#"{"spec":{"containers":{}}}"#,
        r#"{"spec":{"containers":[{"name":7}]}}"#,
        r#"{"metadata":{"labels":[]},"spec":{"containers":[]}}"#,
    ] {
        assert!(PodView::decode(text).is_err(), "{text}");
    }
    let escaped = r#"{"metadata":{"labels":{"a\u002fb":"c\n"}},"spec":{"containers":[]}}"#;
    assert_eq!(PodView::decode(escaped).unwrap().label("a/b"), Some("c\n"));
}

/// An actor with this probe result.
fn with_probe_result(mut binding: Binding, verified: bool, refused: bool) -> BoundActor {
    let actor_hash = binding.actor().plan().unwrap().hash().actor.clone();
    binding.injection = Some(InjectionStatus {
        verified_actor_hash: verified.then(|| actor_hash.clone()),
        rejected_actor_hash: refused.then(|| actor_hash.clone()),
        message: refused.then(|| "exceeded quota: small".to_owned()),
        ..InjectionStatus::default()
    });
    binding.actor()
}

/// SAFE-1, SAFE-3; INJ-1, row 8
#[test]
fn pod_that_may_be_rejected_with_the_sidecar_starts_without_it() {
    let before = pod(&json!({}));
    for (verified, refused, reason) in [
        (false, false, InjectionReason::NotProved),
        (false, true, InjectionReason::ProbeRejected),
        (true, true, InjectionReason::ProbeRejected),
        (true, false, InjectionReason::Injected),
    ] {
        let actor = with_probe_result(Binding::new(&json!({})), verified, refused);
        let decision = review(&actor, &before);
        assert_eq!(decision.reason, reason);
        let Action::Annotate(patch) = decision.action else {
            assert_eq!(reason, InjectionReason::Injected);
            continue;
        };
        let mut expected = before.clone();
        expected["metadata"]["annotations"] = json!({"asya.sh/not-injected": reason.as_str()});
        let marked = patched(&before, &patch);
        assert_eq!(marked, expected);
        assert_eq!(review(&actor, &marked).action, Action::Allow, "second call");
        let text = decision.warnings.join("");
        assert_eq!(text.contains("exceeded quota: small"), refused, "{text}");
    }
    let legacy = Binding::new(&json!({})).actor();
    assert_eq!(review(&legacy, &before).reason, InjectionReason::Injected);
}

/// Reinvocation must not annotate the pod as not injected (SAFE-1).
#[test]
fn injected_pod_keeps_its_sidecar_if_a_probe_fails_before_reinvocation() {
    let before = injected(&Binding::new(&json!({})).actor(), &pod(&json!({})));
    let closed = with_probe_result(Binding::new(&json!({})), true, true);
    let decision = review(&closed, &before);
    assert_eq!(
        (decision.reason, decision.action),
        (InjectionReason::AlreadyInjected, Action::Allow)
    );
}

/// SAFE-8
#[test]
fn required_pod_that_the_api_server_would_reject_is_denied_with_the_reason() {
    let unverified = with_probe_result(Binding::required(), false, false);
    let decision = review(&unverified, &pod(&json!({})));
    assert_eq!(decision.reason, InjectionReason::Injected);
    let refused = with_probe_result(Binding::required(), false, true);
    let Action::Deny(text) = review(&refused, &pod(&json!({}))).action else {
        panic!("it passes");
    };
    assert!(
        text.starts_with("AsyncActor team-a/embed has binding.required")
            && text.contains("exceeded quota: small"),
        "{text}"
    );
}

/// SAFE-2
#[test]
fn only_a_dry_run_that_names_the_actor_is_a_probe() {
    let closed = with_probe_result(Binding::new(&json!({})), false, true);
    for (name, dry_run, uid, reason) in [
        ("the probe", true, Some("uid-1"), InjectionReason::Injected),
        (
            "another's",
            true,
            Some("uid-2"),
            InjectionReason::ProbeRejected,
        ),
        ("a user's", true, None, InjectionReason::ProbeRejected),
        (
            "a copy that runs",
            false,
            Some("uid-1"),
            InjectionReason::ProbeRejected,
        ),
    ] {
        let mut pod = pod(&json!({}));
        if let Some(uid) = uid {
            pod["metadata"]["annotations"] = json!({"asya.sh/probe": uid});
        }
        let raw = pod.to_string();
        let pod = PodView::decode(&raw).unwrap().with_dry_run(dry_run);
        let decision = decide([&closed], &pod);
        assert_eq!(decision.reason, reason, "{name}");
    }
}
