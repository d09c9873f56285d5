use std::collections::BTreeMap;

use serde_json::json;

use super::super::gather::Prerequisites;
use super::*;
use crate::cluster::Right;
use crate::installation::Installation;

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
    }
}

fn healthy() -> Observed {
    let controller = deployment("asya-operator", &[]);
    let webhook = deployment(
        "asya-operator-webhook",
        &["--facts-config-map=facts", "--validation=Enforce"],
    );
    Observed {
        version: "v1.33.2".to_owned(),
        crd: Ok(Some(
            json!({"metadata": {"annotations": {"asya.sh/crd-version": OWN_VERSION}}}),
        )),
        keda: Ok(true),
        operator_namespace: "asya-system".to_owned(),
        installation: Installation::parse(&controller.variables).map_err(|error| error.to_string()),
        deployments: Ok(vec![controller, webhook]),
        lease: Ok(Some(json!({"spec": {
            "holderIdentity": "asya-operator-0", "renewTime": "2026-11-23T11:59:58.000000Z", "leaseDurationSeconds": 10,
        }}))),
        webhook_configurations: Ok(vec![json!({"webhooks": [{
            "name": VALIDATION, "failurePolicy": "Ignore", "clientConfig": {"caBundle": "LS0t"},
        }]})]),
        review: Review::Rejected,
        actors: Ok(Vec::new()),
    }
}

fn findings(observed: &Observed) -> Vec<String> {
    let checks = installed(observed, NOW.parse().unwrap());
    checks.into_iter().filter_map(|check| check.id).collect()
}

#[test]
fn healthy_installation_has_no_findings() {
    assert_eq!(findings(&healthy()), Vec::<String>::new());
}

#[test]
fn each_fault_is_found_by_its_id() {
    type Fault = fn(&mut Observed);
    let faults: [(Fault, &str); 17] = [
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
                it.lease.as_mut().unwrap().as_mut().unwrap()["spec"]["renewTime"] =
                    json!("2026-11-23T11:00:00Z");
            },
            "LeaderMissing",
        ),
        (
            |it| it.webhook_configurations = Ok(Vec::new()),
            "WebhookConfigurationMissing",
        ),
        (
            |it| {
                it.webhook_configurations.as_mut().unwrap()[0]["webhooks"][0]["clientConfig"] =
                    json!({});
            },
            "WebhookCAMissing",
        ),
        (|it| it.review = Review::Admitted, "WebhookUnreachable"),
        (|it| it.keda = Ok(false), "KEDAMissing"),
        (
            |it| it.installation = Ok(Installation::parse(&BTreeMap::new()).unwrap()),
            "NoTransport",
        ),
    ];
    for (fault, id) in faults {
        let mut observed = healthy();
        fault(&mut observed);
        assert_eq!(findings(&observed), [catalogue::id(id)]);
    }
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
        ["ASYA-TransportFailing", "ASYA-ActorFailing"]
    );
    let checks = installed(&observed, NOW.parse().unwrap());
    let texts: Vec<_> = checks.iter().map(|it| it.detail.as_str()).collect();
    assert!(texts.contains(&"Actors report that a transport cannot be used. mq (1 actors): BrokerUnreachable: refused"), "{texts:?}");
}

#[test]
fn what_may_not_be_read_is_unknown_and_the_rest_is_checked() {
    let mut observed = healthy();
    observed.lease = Err("you may not get leases".to_owned());
    let checks = installed(&observed, NOW.parse().unwrap());
    let unknown: Vec<_> = checks
        .iter()
        .filter(|it| it.result == CheckResult::Unknown)
        .collect();
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0].answer(), Answer::Unknown);
    assert!(
        unknown[0].detail.ends_with("you may not get leases"),
        "{}",
        unknown[0].detail
    );
}

#[test]
fn missing_right_is_a_finding_before_installing() {
    let right = |resource| Right {
        verb: "create",
        group: "apps",
        resource,
        namespace: None,
    };
    let checks = before_installing(&Prerequisites {
        version: "v1.33.0".to_owned(),
        crd: Ok(None),
        keda: Ok(true),
        rights: vec![
            (right("deployments"), Ok(true)),
            (right("daemonsets"), Ok(false)),
        ],
    });
    let found: Vec<_> = checks.iter().map(|it| (it.result, &*it.detail)).collect();
    assert_eq!(
        found,
        [
            (CheckResult::Ok, "v1.33.0"),
            (CheckResult::Ok, "installed"),
            (CheckResult::Ok, "not installed yet"),
            (CheckResult::Ok, "create deployments.apps"),
            (
                CheckResult::Failed,
                "You lack a permission that installing the chart takes. You may not create daemonsets.apps."
            ),
        ]
    );
}
