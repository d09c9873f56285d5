//! `why` and the webhook give the same reason for every pod.

use std::collections::BTreeMap;

use asya_fuzz::injectors;
use fastrand::Rng;
use serde_json::Value;

use super::*;
use crate::testing::{
    NAMESPACE, OPERATOR_NAMESPACE, actor, actors, any_pod, installation, plain_pod, specs, webhook,
};

const PODS: u64 = 10_000;

/// Asks both. Returns the reason.
fn agreed(pod: &Value, namespace: &str, actors: &[Value], what: &str) -> String {
    let installation = installation();
    let known: Vec<_> = actors
        .iter()
        .map(|it| KnownActor::new(it.clone()))
        .collect();
    let explained = explain(&Question {
        pod,
        namespace,
        operator_namespace: OPERATOR_NAMESPACE,
        actors: &known,
        installation: Some(&installation),
        clusters: None,
        offline: false,
    });
    let reviewed = webhook(&installation, namespace, actors)
        .review(pod)
        .unwrap();
    assert_eq!(
        explained.reason,
        reviewed.reason.as_str(),
        "{what}: {pod} {actors:?}"
    );
    let is_rejected = explained.outcome == Outcome::Rejected;
    assert_eq!(
        is_rejected,
        reviewed.denied.is_some(),
        "{what}: {pod} {actors:?}"
    );
    explained.reason
}

/// INJ-1
#[test]
fn why_agrees_with_the_webhook_on_generated_pods() {
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..PODS {
        let rng = &mut Rng::with_seed(seed);
        let (actors, mut pod) = (actors(rng), any_pod(rng));
        let namespace = *rng
            .choice(&[NAMESPACE, NAMESPACE, NAMESPACE, NAMESPACE, "kube-system"])
            .unwrap();
        if rng.u8(..4) == 0 {
            // Reinvocation.
            pod = webhook(&installation(), namespace, &actors)
                .review(&pod)
                .unwrap()
                .pod;
        }
        let reason = agreed(&pod, namespace, &actors, &seed.to_string());
        *reasons.entry(reason).or_default() += 1;
    }
    for reason in [
        "NotServed",
        "Unreadable",
        "NoActor",
        "ActorDeleting",
        "NotBoundYet",
        "StrategyTemplate",
        "ActorUnusable",
        "OptedOut",
        "HostNetwork",
        "Windows",
        "RestartPolicy",
        "AlreadyInjected",
        "SpecConflict",
        "TargetURLUnknown",
        "NotProved",
        "Injected",
    ] {
        let count = reasons.get(reason).copied().unwrap_or_default();
        assert!(count >= 10, "{reason}: {reasons:?}");
    }
}

/// INJ-1, INJ-12
#[test]
fn why_agrees_with_the_webhook_on_pods_of_other_injectors() {
    let installation = installation();
    for spec in specs() {
        let mut actor = actor("embed", &spec);
        actor["status"] = serde_json::json!({"boundSince": "2026-05-04T10:00:01Z"});
        let actors = [actor];
        let webhook = webhook(&installation, NAMESPACE, &actors);
        for (name, injector) in injectors::ALL {
            let what = format!("{name} {spec}");
            let mut theirs_first = plain_pod();
            injector(&mut theirs_first);
            assert_eq!(
                agreed(&theirs_first, NAMESPACE, &actors, &what),
                "Injected",
                "{what}"
            );
            let mut ours_first = webhook.review(&plain_pod()).unwrap().pod;
            injector(&mut ours_first);
            for _ in 0..2 {
                agreed(&ours_first, NAMESPACE, &actors, &what);
                ours_first = webhook.review(&ours_first).unwrap().pod;
            }
            assert_eq!(
                agreed(&ours_first, NAMESPACE, &actors, &what),
                "AlreadyInjected",
                "{what}"
            );
        }
    }
}
