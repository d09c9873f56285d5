use asya_fuzz::injectors;
use asya_shared::resolve::{Related, Resolution, resolver};
use fastrand::Rng;

use super::*;
use crate::why::testing::{
    NAMESPACE, OPERATOR_NAMESPACE, actor, any_pod, installation, plain_pod, specs, webhook,
};

/// Number of pods per spec.
const PODS: u64 = 100;

fn target() -> Target {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "phi", "uid": "uid-of-phi"},
        "spec": {"selector": {"matchLabels": {"app": "phi"}}, "template": {"spec": {}}},
    });
    match resolver("apps", "Deployment").resolve(&deployment, &Related::default()) {
        Resolution::Found(target) => *target,
        other => panic!("{other:?}"),
    }
}

fn pods(
    installation: &Installation,
    (manifest, existing): (&Value, Option<&Value>),
    limits: &[String],
    pod: &Value,
) -> Pods {
    let inputs = Inputs {
        namespace: NAMESPACE,
        operator_namespace: OPERATOR_NAMESPACE,
        installation,
        clusters: None,
        actor: manifest,
        existing,
        others: &[],
        target: &target(),
        limits,
    };
    review(&inputs, pod).unwrap()
}

/// The actor once the operator has bound it, with the hash verified by its dry run.
fn stored(manifest: &Value, limits: &[String]) -> Value {
    let probed = pods(&installation(), (manifest, None), limits, &plain_pod());
    let mut stored = manifest.clone();
    stored["status"] = json!({
        "boundSince": "2026-05-04T10:00:01Z",
        "resolvedTarget": target().to_status(NAMESPACE),
        "injection": {"proved": probed.hash().unwrap(), "limits": limits},
    });
    stored
}

/// INJ-1: the preview shows what the webhook patches once the actor is applied.
#[test]
fn preview_shows_the_containers_of_the_webhooks_patch() {
    let installation = installation();
    let limits = [vec![], vec!["memory".to_owned()]];
    let mut injected = 0;
    for spec in specs() {
        for limits in &limits {
            let manifest = actor("embed", &spec);
            let webhook = webhook(&installation, NAMESPACE, &[stored(&manifest, limits)]);
            for seed in 0..PODS {
                let pod = any_pod(&mut Rng::with_seed(seed));
                let shown = pods(&installation, (&manifest, None), limits, &pod);
                let patched = webhook.review(&pod).unwrap();
                assert_eq!(shown.after, patched, "{seed} {spec}");
                assert_eq!(shown.before, pod, "{seed} {spec}");
                injected += u64::from(shown.is_injected());
            }
            for (name, injector) in injectors::ALL {
                let mut pod = plain_pod();
                injector(&mut pod);
                let shown = pods(&installation, (&manifest, None), limits, &pod);
                assert_eq!(shown.after, webhook.review(&pod).unwrap(), "{name} {spec}");
                assert!(shown.is_injected(), "{name} {spec}");
            }
        }
    }
    assert!(injected > 2 * PODS, "{injected}");
}

/// ROLL-8 (a)
#[test]
fn changed_actor_is_compared_with_the_stored_one() {
    let before = stored(&actor("embed", &json!({})), &[]);
    let mut after = before.clone();
    after["spec"]["sidecar"] = json!({"env": [{"name": "A", "value": "b"}]});
    let shown = pods(&installation(), (&after, Some(&before)), &[], &plain_pod());
    let (was, is) = (actor_hash(&shown.before), shown.hash());
    assert!(was.is_some() && was != is, "{shown:?}");
    let uid = "uid-of-embed";
    assert!(is_current(&shown.after.pod, uid, is.as_deref()));
    assert!(!is_current(&shown.before, uid, is.as_deref()));
    assert!(!is_current(&shown.after.pod, "another", is.as_deref()));
    let same = pods(&installation(), (&before, Some(&before)), &[], &plain_pod());
    assert_eq!(same.before, same.after.pod);
}

/// INJ-1
#[test]
fn pod_that_would_not_get_the_sidecar_says_why() {
    let mut opted_out = plain_pod();
    opted_out["metadata"]["labels"]["asya.sh/inject"] = json!("false");
    for (spec, denied) in [
        (json!({}), false),
        (json!({"binding": {"required": true}}), true),
    ] {
        let shown = pods(
            &installation(),
            (&actor("embed", &spec), None),
            &[],
            &opted_out,
        );
        assert_eq!(shown.after.reason, InjectionReason::OptedOut);
        assert_eq!((shown.after.denied.is_some(), shown.hash()), (denied, None));
    }
}
