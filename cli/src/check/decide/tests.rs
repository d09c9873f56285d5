mod leader;
mod operators;

use std::collections::BTreeMap;
use std::time::Duration;

use asya_certs::data::{CA_BUNDLE, Data, LEAF, LEAF_KEY};
use asya_certs::issuer::{Ca, Settings};
use asya_shared::admission::VALIDATION_ENTRY;
use k8s_openapi::ByteString;
use serde_json::json;

use super::super::gather::{Prerequisites, Review};
use super::super::permissions;
use super::*;
use crate::cluster::Permission;
use crate::installation::Installation;
use crate::queue::QueueState;

const NOW: &str = "2026-11-23T12:00:00Z";

fn deployment(name: &str, args: &[&str]) -> OperatorDeployment {
    let transports = json!({"transports": {"mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "b"}}}});
    OperatorDeployment {
        name: name.to_owned(),
        image: format!("asya-operator:{OWN_VERSION}"),
        desired: 2,
        ready: 2,
        variables: BTreeMap::from([("ASYA_TRANSPORT_CONFIG".to_owned(), transports.to_string())]),
        args: args.iter().map(|it| (*it).to_owned()).collect(),
        service_account: name.to_owned(),
        config_map: None,
    }
}

fn controller_in(namespace: &str) -> ControllerLocation {
    ControllerLocation {
        namespace: namespace.to_owned(),
        name: "asya-operator".to_owned(),
    }
}

const NAME: &str = "asya-operator-webhook.asya-system.svc";

/// A Secret with a leaf certificate that was issued this many days ago for 30 days, and the `caBundle` that trusts it.
fn certificate(name: &str, days: u32) -> (Data, Value) {
    let ago = Duration::from_hours(24) * days;
    let issued = now() - k8s_openapi::jiff::SignedDuration::try_from(ago).unwrap();
    let settings = Settings::with_defaults(vec![name.to_owned()]);
    let ca = Ca::new(&settings, issued).unwrap();
    let leaf = ca.issue(&settings, issued).unwrap();
    let mut data = Data::default();
    data.set(LEAF, &leaf.certificate.pem());
    data.set(LEAF_KEY, &leaf.key);
    data.set(CA_BUNDLE, &ca.certificate.pem());
    let bundle = ByteString(ca.certificate.pem().into_bytes());
    (data, json!(bundle))
}

/// Replaces the certificate and the bundle that trusts it.
fn with_certificate(observed: &mut Observed, (data, bundle): (Data, Value)) {
    observed.serving_secret = Ok(Some(data));
    entry(&mut observed.validating_configurations)["clientConfig"]["caBundle"] = bundle.clone();
    entry(&mut observed.mutating_configurations)["clientConfig"]["caBundle"] = bundle;
}

fn entry(configurations: &mut Read<Vec<Value>>) -> &mut Value {
    &mut configurations.as_mut().unwrap()[0]["webhooks"][0]
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// An actor with a target in namespace `models`.
fn bound_actor() -> Value {
    json!({
        "metadata": {"namespace": "models", "name": "embed", "generation": 1},
        "spec": {"transport": "mq", "workloadRef": {"kind": "Deployment", "name": "phi"}},
        "status": {"status": "Running", "observedGeneration": 1, "boundSince": NOW, "conditions": [{
            "type": "TargetResolved", "status": "True", "reason": "Resolved", "message": "", "lastTransitionTime": NOW,
        }]},
    })
}

fn healthy() -> Observed {
    let controller = deployment("asya-operator", &[]);
    let webhook = deployment(
        "asya-operator-webhook",
        &[
            "--facts-config-map=facts",
            "--validation=Enforce",
            "--tls-names=asya-operator-webhook.asya-system.svc",
        ],
    );
    let needed = permissions::needed(std::slice::from_ref(&controller), "asya-system", &[]);
    let (served, trusted) = certificate(NAME, 1);
    Observed {
        version: "v1.33.2".to_owned(),
        crd: Ok(Some(
            json!({"metadata": {"annotations": {"asya.sh/crd-version": OWN_VERSION}}}),
        )),
        keda: Ok(true),
        operator_namespace: "asya-system".to_owned(),
        installation: Installation::parse(&controller.variables).map_err(|error| error.to_string()),
        deployments: Ok(vec![controller, webhook]),
        lease: Ok(Some(ObservedLease {
            spec: json!({
                "holderIdentity": "asya-operator-0", "renewTime": "2026-11-23T11:59:58.000000Z", "leaseDurationSeconds": 10,
            }),
            read_at: now(),
            is_renewed: false,
        })),
        operator_permissions: Ok(needed.into_iter().map(|it| (it, true)).collect()),
        validating_configurations: Ok(vec![json!({"webhooks": [{
            "name": VALIDATION_ENTRY, "failurePolicy": "Ignore", "clientConfig": {"caBundle": trusted},
            "rules": [{"apiGroups": ["asya.sh"], "resources": ["asyncactors"], "operations": ["CREATE", "UPDATE"]}],
        }]})]),
        mutating_configurations: Ok(vec![json!({"webhooks": [{
            "name": "apps.inject.asya.sh", "clientConfig": {"caBundle": trusted},
            "namespaceSelector": {"matchExpressions": [{"values": ["models"]}]},
        }]})]),
        serving_secret: Ok(Some(served)),
        endpoints: Ok(Some(2)),
        review: Review::Rejected,
        actors: Ok(vec![bound_actor()]),
        controllers: Ok(vec![controller_in("asya-system")]),
        queues: Vec::new(),
        notes: Vec::new(),
    }
}

fn findings(observed: &Observed) -> Vec<String> {
    let checks = installed(observed, now());
    checks.into_iter().filter_map(|check| check.id).collect()
}

#[test]
fn healthy_installation_has_no_findings() {
    assert_eq!(findings(&healthy()), Vec::<String>::new());
}

type Fault = fn(&mut Observed);

const FAULTS: &[(Fault, &str)] = &[
    (|it| it.version = "v1.28.4".to_owned(), "KubernetesTooOld"),
    (|it| it.crd = Ok(None), "CRDMissing"),
    (
        |it| {
            it.crd = Ok(Some(
                json!({"metadata": {"annotations": {"asya.sh/crd-version": "0.0.1"}}}),
            ));
        },
        "CRDOutdated",
    ),
    (|it| it.deployments = Ok(Vec::new()), "OperatorMissing"),
    (
        |it| it.deployments.as_mut().unwrap()[0].ready = 0,
        "ControllerDown",
    ),
    (
        |it| it.deployments.as_mut().unwrap()[0].ready = 1,
        "ControllerDegraded",
    ),
    (
        |it| it.deployments.as_mut().unwrap()[1].ready = 0,
        "WebhookDown",
    ),
    (
        |it| it.deployments.as_mut().unwrap()[1].ready = 1,
        "WebhookDegraded",
    ),
    (
        |it| it.deployments.as_mut().unwrap()[1].image = "asya-operator:9.9.9".to_owned(),
        "VersionSkew",
    ),
    (
        |it| drop(it.deployments.as_mut().unwrap().pop()),
        "WebhookNotInstalled",
    ),
    (|it| it.lease = Ok(None), "LeaderMissing"),
    (
        |it| {
            it.lease.as_mut().unwrap().as_mut().unwrap().spec["renewTime"] =
                json!("2026-11-23T11:00:00Z");
        },
        "LeaderMissing",
    ),
    (
        |it| it.validating_configurations = Ok(Vec::new()),
        "WebhookConfigurationMissing",
    ),
    (
        |it| {
            entry(&mut it.validating_configurations)["clientConfig"] = json!({});
        },
        "WebhookCAMissing",
    ),
    (
        |it| {
            entry(&mut it.validating_configurations)["rules"][0]["operations"] = json!(["CREATE"]);
        },
        "WebhookRuleMissing",
    ),
    (
        |it| it.mutating_configurations = Ok(Vec::new()),
        "InjectorEntryMissing",
    ),
    (|it| it.endpoints = Ok(Some(0)), "WebhookWithoutEndpoints"),
    (
        |it| {
            entry(&mut it.mutating_configurations)["clientConfig"]["caBundle"] =
                certificate(NAME, 1).1;
        },
        "WebhookCAMismatch",
    ),
    (
        |it| with_certificate(it, certificate(NAME, 31)),
        "CertificateExpired",
    ),
    (
        |it| with_certificate(it, certificate(NAME, 26)),
        "CertificateExpiring",
    ),
    (
        |it| with_certificate(it, certificate("elsewhere.svc", 1)),
        "CertificateInvalid",
    ),
    (|it| it.serving_secret = Ok(None), "CertificateInvalid"),
    (
        |it| it.operator_permissions.as_mut().unwrap()[0].1 = false,
        "OperatorPermissionMissing",
    ),
    (|it| it.review = Review::Admitted, "WebhookUnreachable"),
    (|it| it.keda = Ok(false), "KEDAMissing"),
    (
        |it| it.installation = Ok(Installation::parse(&BTreeMap::new()).unwrap()),
        "NoTransport",
    ),
];

#[test]
fn each_fault_is_found_by_its_id() {
    for (fault, id) in FAULTS {
        let mut observed = healthy();
        fault(&mut observed);
        assert_eq!(findings(&observed), [catalogue::id(id)], "{id}");
    }
}

/// The leader creates the entry once the binding is in effect.
#[test]
fn binding_that_is_not_effective_needs_no_entry() {
    let mut observed = healthy();
    observed.mutating_configurations = Ok(Vec::new());
    assert_eq!(findings(&observed), [catalogue::id("InjectorEntryMissing")]);
    let actors = observed.actors.as_mut().unwrap();
    actors[0]["status"]["boundSince"] = Value::Null;
    assert_eq!(findings(&observed), Vec::<String>::new());
}

#[test]
fn only_the_missing_operator_is_reported_in_a_namespace_without_one() {
    let mut observed = healthy();
    observed.operator_namespace = "default".to_owned();
    observed.deployments = Ok(Vec::new());
    observed.lease = Ok(None);
    observed.installation = Err("no operator".to_owned());
    for (controllers, text) in [
        (
            Ok(vec![controller_in("asya-system")]),
            "There is one in asya-system: pass --operator-namespace asya-system.",
        ),
        (Ok(Vec::new()), "none in any other namespace"),
        (
            Err("you may not".to_owned()),
            "could not be searched: you may not",
        ),
    ] {
        observed.controllers = controllers;
        assert_eq!(findings(&observed), ["ASYA-OperatorMissing"]);
        let checks = installed(&observed, now());
        let missing = checks.iter().find(|it| it.id.is_some()).unwrap();
        assert!(missing.detail.contains(text), "{}", missing.detail);
    }
}

#[test]
fn warnings_are_findings_only_if_that_is_asked_for() {
    let mut observed = healthy();
    observed.keda = Ok(false);
    let checks = installed(&observed, now());
    let worst = |strict| checks.iter().map(|it| it.answer(strict)).max().unwrap();
    assert_eq!(
        (worst(false), worst(true)),
        (Answer::Fine, Answer::Findings)
    );
}

#[test]
fn messages_that_nobody_receives_and_dead_letters_are_found() {
    let mut observed = healthy();
    observed.actors.as_mut().unwrap()[0]["status"]["readyReplicas"] = json!(1);
    let state = |waiting, shared| QueueState {
        queue: "asya-embed".to_owned(),
        waiting: Some(waiting),
        consumers: Some(0),
        dead_letter_queue: Some("dlq".to_owned()),
        dead_letters: Some(2),
        has_shared_dead_letters: shared,
    };
    let name = || "models/embed".to_owned();
    observed.queues = vec![(name(), state(3, false))];
    assert_eq!(
        findings(&observed),
        ["ASYA-NoConsumers", "ASYA-DeadLetters"]
    );
    let says_all_is_well = |observed: &Observed| {
        let checks = installed(observed, now());
        checks.iter().any(|it| it.subject == "actors")
    };
    assert!(!says_all_is_well(&observed), "an actor has a finding");
    observed.queues = vec![(name(), state(0, true)), (name(), state(0, true))];
    assert_eq!(
        findings(&observed),
        ["ASYA-DeadLetters"],
        "a shared queue is reported once"
    );
    assert!(says_all_is_well(&observed), "dead letters are a warning");
    let checks = installed(&observed, now());
    let found = checks.iter().find(|it| it.id.is_some()).unwrap();
    assert_eq!(
        (&*found.subject, found.result),
        ("queue dlq", CheckResult::Warning)
    );
}

#[test]
fn failing_transport_and_actor_are_named() {
    let mut observed = healthy();
    observed.actors = Ok(vec![json!({
        "metadata": {"namespace": "models", "name": "embed", "generation": 1},
        "spec": {"transport": "mq"},
        "status": {"status": "TransportError", "observedGeneration": 1, "conditions": [{
            "type": "TransportReady", "status": "False", "reason": "BrokerUnreachable", "message": "refused",
            "lastTransitionTime": NOW,
        }]},
    })]);
    assert_eq!(
        findings(&observed),
        ["ASYA-TransportFailing", "ASYA-BrokerUnreachable"]
    );
    let checks = installed(&observed, now());
    let texts: Vec<_> = checks.iter().map(|it| it.detail.as_str()).collect();
    assert!(texts.contains(&"Actors report that a transport cannot be used: mq (1 actor): BrokerUnreachable: refused"), "{texts:?}");
}

#[test]
fn details_read_as_sentences_or_after_a_colon() {
    for (detail, expected) in [
        ("", "It is broken."),
        ("The reason: rust.", "It is broken. The reason: rust."),
        ("1 of 2 are.", "It is broken. 1 of 2 are."),
        ("it rusted", "It is broken: it rusted"),
    ] {
        assert_eq!(joined("It is broken.", detail), expected);
    }
}

#[test]
fn numbers_of_one_have_no_plural() {
    let mut observed = healthy();
    observed.endpoints = Ok(Some(1));
    observed.actors = Ok(Vec::new());
    let checks = installed(&observed, now());
    let of = |subject: &str| {
        let found = checks.iter().find(|it| it.subject == subject);
        found.map(|it| it.detail.as_str())
    };
    assert_eq!(of("webhook Service"), Some("1 ready endpoint"));
    assert_eq!(of("actors"), Some("there are none yet"));
    observed.actors = Ok(vec![bound_actor()]);
    let checks = installed(&observed, now());
    let actors = checks.iter().find(|it| it.subject == "actors").unwrap();
    assert_eq!(actors.detail, "1 actor, none needs attention");
}

#[test]
fn failed_dry_run_has_the_fix_of_the_webhooks_reason() {
    let mut observed = healthy();
    let mut actor = bound_actor();
    actor["status"]["conditions"] = json!([{
        "type": "Injected", "status": "False", "reason": "ProbeFailed", "lastTransitionTime": NOW,
        "message": "no pod is replaced, because a new one would not get the sidecar: HostNetwork",
    }]);
    observed.actors = Ok(vec![actor]);
    let checks = installed(&observed, now());
    let found = checks
        .iter()
        .find(|it| it.id == Some(catalogue::id("ProbeFailed")));
    assert_eq!(
        found.and_then(|it| it.fix),
        Some("Remove hostNetwork from the pod template.")
    );
}

/// No test cluster is that old: its API server reports the release that it was compiled from.
#[test]
fn too_old_is_judged_by_the_minor_version_alone() {
    for (version, is_old) in [
        ("v1.29.15", true),
        ("v1.29.3-eks-1234567", true),
        ("v1.30.0", false),
        ("v1.30.0+k3s1", false),
        ("v1.30.5-gke.1443001", false),
        ("v1.36.3", false),
        ("unknown", false),
    ] {
        let found = kubernetes(version);
        let expected = is_old.then(|| catalogue::id("KubernetesTooOld"));
        assert_eq!(found.id, expected, "{version}");
        assert!(found.detail.contains(version), "{}", found.detail);
    }
}

#[test]
fn reason_that_the_program_does_not_know_is_quoted() {
    let mut observed = healthy();
    observed.actors = Ok(vec![json!({
        "metadata": {"namespace": "models", "name": "embed", "generation": 1},
        "spec": {"transport": "mq"},
        "status": {"status": "TransportError", "observedGeneration": 1, "conditions": [{
            "type": "TransportReady", "status": "False", "reason": "OfTomorrow", "message": "moved",
            "lastTransitionTime": NOW,
        }]},
    })]);
    let checks = installed(&observed, now());
    let found: Vec<_> = checks.iter().filter(|it| it.id.is_some()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].id, Some(catalogue::id("ActorFailing")));
    assert!(
        found[0].detail.ends_with("OfTomorrow: moved"),
        "{}",
        found[0].detail
    );
}

#[test]
fn what_may_not_be_read_is_unknown_and_the_rest_is_checked() {
    let mut observed = healthy();
    observed.lease = Err("you may not get leases".to_owned());
    let checks = installed(&observed, now());
    let unknown: Vec<_> = checks
        .iter()
        .filter(|it| it.result == CheckResult::Unknown)
        .collect();
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0].answer(true), Answer::Unknown);
    assert!(
        unknown[0].detail.ends_with("you may not get leases"),
        "{}",
        unknown[0].detail
    );
}

#[test]
fn missing_right_is_a_finding_before_installing() {
    let permission = |resource| Permission {
        verb: "create",
        group: "apps",
        resource,
    };
    let checks = before_installing(&Prerequisites {
        version: "v1.33.0".to_owned(),
        crd: Ok(None),
        keda: Ok(true),
        operator_namespace: "asya-system".to_owned(),
        controllers: Ok(Vec::new()),
        permissions: vec![
            (permission("deployments"), Ok(true)),
            (permission("daemonsets"), Ok(false)),
        ],
    });
    let found: Vec<_> = checks.iter().map(|it| (it.result, &*it.detail)).collect();
    assert_eq!(
        found,
        [
            (CheckResult::Ok, "v1.33.0"),
            (CheckResult::Ok, "installed"),
            (CheckResult::Ok, "not installed yet"),
            (CheckResult::Ok, "none installed yet"),
            (CheckResult::Ok, "create deployments.apps"),
            (
                CheckResult::Failed,
                "You lack a permission that installing the chart takes. You may not create daemonsets.apps."
            ),
        ]
    );
}
