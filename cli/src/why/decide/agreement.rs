//! `why` gives the same reason as the webhook for every pod.

use std::collections::BTreeMap;

use asya_fuzz::injectors;
use asya_webhook::offline::Webhook;
use fastrand::Rng;
use serde_json::Value;

use super::*;
use crate::why::testing::{
    NAMESPACE, OPERATOR_NAMESPACE, actor, actors, any_pod, installation, plain_pod, specs, webhook,
};

const PODS: u64 = 10_000;

/// The actors of a namespace, known to both programs.
struct Both<'a> {
    installation: &'a Installation,
    namespace: &'static str,
    known: Vec<KnownActor>,
    webhook: Webhook,
}

impl<'a> Both<'a> {
    fn new(installation: &'a Installation, namespace: &'static str, actors: &[Value]) -> Self {
        Self {
            installation,
            namespace,
            known: actors.iter().cloned().map(KnownActor::new).collect(),
            webhook: webhook(installation, namespace, actors),
        }
    }

    /// The pod after its review.
    fn reviewed(&self, pod: &Value) -> Value {
        self.webhook.review(pod).unwrap().pod
    }

    /// Asks both; returns the reason.
    fn agreed(&self, pod: &Value, what: &str) -> String {
        let explained = explain(&Question {
            pod,
            namespace: self.namespace,
            operator_namespace: OPERATOR_NAMESPACE,
            actors: &self.known,
            installation: Some(self.installation),
            clusters: None,
            offline: false,
        });
        let reviewed = self.webhook.review(pod).unwrap();
        let reason = reviewed.reason.as_str();
        assert_eq!(explained.reason, reason, "{what}: {pod}");
        let is_rejected = explained.outcome == Outcome::Rejected;
        assert_eq!(is_rejected, reviewed.denied.is_some(), "{what}: {pod}");
        explained.reason
    }
}

/// INJ-1
#[test]
fn why_agrees_with_the_webhook_on_generated_pods() {
    let installation = installation();
    let mut known: BTreeMap<String, Both<'_>> = BTreeMap::new();
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..PODS {
        let rng = &mut Rng::with_seed(seed);
        let namespace = *rng
            .choice(&[NAMESPACE, NAMESPACE, NAMESPACE, NAMESPACE, "kube-system"])
            .unwrap();
        let (actors, mut pod) = (actors(rng), any_pod(rng));
        let both = known
            .entry(format!("{namespace} {actors:?}"))
            .or_insert_with(|| Both::new(&installation, namespace, &actors));
        if rng.u8(..4) == 0 {
            // Reinvocation of the webhook.
            pod = both.reviewed(&pod);
        }
        let reason = both.agreed(&pod, &seed.to_string());
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
        let both = Both::new(&installation, NAMESPACE, &[actor]);
        for (name, injector) in injectors::ALL {
            let what = format!("{name} {spec}");
            let mut theirs_first = plain_pod();
            injector(&mut theirs_first);
            assert_eq!(both.agreed(&theirs_first, &what), "Injected", "{what}");
            let mut ours_first = both.reviewed(&plain_pod());
            injector(&mut ours_first);
            for _ in 0..2 {
                both.agreed(&ours_first, &what);
                ours_first = both.reviewed(&ours_first);
            }
            assert_eq!(both.agreed(&ours_first, &what), "AlreadyInjected", "{what}");
        }
    }
}
