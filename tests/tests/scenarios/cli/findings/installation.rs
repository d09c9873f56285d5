//! Problems of an installation, on its own cluster.

use asya_certs::data::{CA_BUNDLE, Data, LEAF, LEAF_KEY};
use asya_certs::issuer::{Ca, Settings};
use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{check, eventually};
use asya_tests::operator::{Operator, default_values};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::broken::{self, Before, Problem, cannot_run, set_ca, set_variable};
use super::operators::second_operator_is_found;
use super::{checked, ids, is_found, only};
use crate::binding::{bound_actor, condition, model, status_is};
use crate::cli::{MINUTE, asya, restricted};
use crate::{minimal_actor, own_cluster};

const VALIDATOR: &str = "validatingwebhookconfiguration/asya-operator-validator";
const INJECTOR: &str = "mutatingwebhookconfiguration/asya-operator-injector";
const CONTROLLER: &str = "deployment/asya-operator";
const WEBHOOK: &str = "deployment/asya-operator-webhook";
const SECRET: &str = "secret/asya-operator-webhook-tls";
/// Nothing listens there.
const UNREACHABLE: &str = r#"{"transports": {
    "rabbitmq": {"type": "rabbitmq", "enabled": true, "config": {"host": "127.0.0.1", "port": 1}}
}}"#;
const NAME: &str = "asya-operator-webhook.asya-system.svc";

/// Problems that the controller does not repair.
fn lasting() -> Vec<Problem> {
    let (down, stuck) = (
        |it: &mut Value| cannot_run(it, false),
        |it: &mut Value| cannot_run(it, true),
    );
    vec![
        broken::changed(
            "no pod of the controller can run",
            CONTROLLER,
            down,
            &["ControllerDown"],
            "Look at the pods of the controller's Deployment",
        ),
        broken::changed(
            "a rollout of the controller does not end",
            CONTROLLER,
            |it| {
                cannot_run(it, true);
                it["spec"]["replicas"] = json!(2);
            },
            &["ControllerDegraded"],
            "Look at the pods of the controller's Deployment",
        ),
        broken::changed(
            "no pod of the webhook can run",
            WEBHOOK,
            down,
            &["WebhookDown", "WebhookWithoutEndpoints"],
            "Look at the pods of the webhook's Deployment",
        ),
        broken::changed(
            "a rollout of the webhook does not end",
            WEBHOOK,
            stuck,
            &["WebhookDegraded"],
            "Look at the pods of the webhook's Deployment",
        ),
        broken::deleted(
            "the webhook is not installed",
            WEBHOOK,
            &["WebhookNotInstalled"],
            "Set the chart's value webhook.enabled",
        ),
        broken::changed(
            "two versions",
            WEBHOOK,
            |it| {
                it["spec"]["template"]["spec"]["containers"][0]["image"] =
                    json!("asya-operator:9.9.9");
            },
            &["VersionSkew"],
            "Upgrade them together",
        ),
        broken::changed(
            "no transport is enabled",
            WEBHOOK,
            |it| set_variable(it, "ASYA_TRANSPORT_CONFIG", r#"{"transports": {}}"#),
            &["NoTransport"],
            "Enable one in the chart's values",
        ),
        broken::changed(
            "a rule of the ClusterRole is missing",
            "clusterrole/asya-operator",
            |it| {
                if let Some(rules) = it["rules"].as_array_mut() {
                    rules
                        .retain(|rule| !rule["resources"].to_string().contains("\"statefulsets\""));
                }
            },
            &["OperatorPermissionMissing"],
            "Run helm upgrade",
        ),
        broken::changed(
            "the webhook's Service selects nothing",
            "service/asya-operator-webhook",
            |it| it["spec"]["selector"]["app"] = json!("nothing"),
            &["WebhookWithoutEndpoints"],
            "Compare the selector of the webhook's Service",
        ),
    ]
}

/// Problems that a controller would repair, if one were running.
fn without_leader() -> Vec<Problem> {
    vec![
        broken::changed(
            "a CRD of an older release",
            "crd/asyncactors.asya.sh",
            |it| it["metadata"]["annotations"]["asya.sh/crd-version"] = json!("0.0.1"),
            &["CRDOutdated"],
            "Apply crds/asyncactors.yaml",
        ),
        broken::deleted(
            "the validating configuration is gone",
            VALIDATOR,
            &["WebhookConfigurationMissing", "WebhookUnreachable"],
            "Look at the controller's log: it writes the configuration",
        ),
        broken::changed(
            "a rule of the validating configuration is missing",
            VALIDATOR,
            |it| {
                let entries = it["webhooks"].as_array_mut().into_iter().flatten();
                for entry in entries.filter(|it| it["name"] == "validate.asyncactors.asya.sh") {
                    entry["rules"][0]["operations"] = json!(["UPDATE"]);
                }
            },
            &["WebhookRuleMissing", "WebhookUnreachable"],
            "Look at the controller's log: it restores the rule",
        ),
        broken::changed(
            "the validating configuration has no CA",
            VALIDATOR,
            |it| set_ca(it, &Value::Null),
            &["WebhookCAMissing", "WebhookUnreachable"],
            "Look at the controller's log: it writes the CA",
        ),
        broken::changed(
            "the validating configuration has a wrong CA",
            VALIDATOR,
            |it| set_ca(it, &certificate(0).1),
            &["WebhookCAMismatch", "WebhookUnreachable"],
            "Look at the controller's log: it writes the CA",
        ),
        broken::deleted(
            "the mutating configuration is gone",
            INJECTOR,
            &["InjectorEntryMissing"],
            "Look at the controller's log: it writes the configuration",
        ),
        broken::deleted(
            "the Secret with the certificate is gone",
            SECRET,
            &["CertificateInvalid"],
            "Look at the controller's log: it repairs the Secret",
        ),
    ]
}

/// A leaf that was issued this many days ago for 30 days, and the CA that issued it.
fn certificate(days: i64) -> (Data, Value) {
    let issued = Timestamp::now() - SignedDuration::from_hours(24 * days);
    let names = [NAME.to_owned(), format!("{NAME}.cluster.local")];
    let settings = Settings::with_defaults(names.into());
    let ca = Ca::new(&settings, issued).unwrap();
    let leaf = ca.issue(&settings, issued).unwrap();
    let mut data = Data::default();
    data.set(LEAF, &leaf.certificate.pem());
    data.set(LEAF_KEY, &leaf.key);
    data.set(CA_BUNDLE, &ca.certificate.pem());
    let bundle = ByteString(ca.certificate.pem().into_bytes());
    (data, json!(bundle))
}

/// Causes each problem, and undoes it. `base`: what is found in any case.
async fn are_found(scenario: &Scenario, problems: Vec<Problem>, base: &[&str]) -> Result<()> {
    for problem in problems {
        let before = Before::edit(scenario, problem.object, &problem.edit).await?;
        let checks = only(scenario, problem.what, &[base, problem.ids].concat()).await?;
        let id = problem.ids[0];
        let fix = |it: &&Value| it["id"] == format!("ASYA-{id}");
        let found = checks.as_array().into_iter().flatten().find(fix);
        let fix = found.and_then(|it| it["fix"].as_str()).unwrap_or_default();
        assert!(fix.starts_with(problem.fix), "{}: {fix}", problem.what);
        before.restore(scenario).await?;
        only(scenario, &format!("{} no more", problem.what), base).await?;
    }
    Ok(())
}

/// Replaces the certificate with an old one that the webhook entries trust.
async fn old_certificates_are_found(scenario: &Scenario) -> Result<()> {
    for (days, id) in [(31, "CertificateExpired"), (26, "CertificateExpiring")] {
        let (data, bundle) = certificate(days);
        let data = serde_json::to_value(data)?;
        let mut before = Vec::new();
        let secret = move |it: &mut Value| it["data"] = data.clone();
        before.push(Before::edit(scenario, SECRET, &Some(Box::new(secret))).await?);
        for object in [VALIDATOR, INJECTOR] {
            let bundle = bundle.clone();
            let trusts = move |it: &mut Value| set_ca(it, &bundle);
            before.push(Before::edit(scenario, object, &Some(Box::new(trusts))).await?);
        }
        let fix = "Look at the log of the controller, or of cert-manager";
        eventually(id, MINUTE, async || {
            let (_, checks) = checked(scenario, &[]).await?;
            let finding = ("webhook certificate", id, fix);
            check(is_found(&checks, finding), format_args!("{checks:#}"))
        })
        .await?;
        for object in before {
            object.restore(scenario).await?;
        }
        only(scenario, "the certificate is as before", &["LeaderMissing"]).await?;
    }
    Ok(())
}

/// An actor that no operator has acted on, and one whose status a newer operator has written.
async fn actors_without_a_leader_are_found(scenario: &Scenario) -> Result<()> {
    let (new, strange) = (scenario.name("new"), scenario.name("strange"));
    scenario
        .apply_all(&[minimal_actor(&new), minimal_actor(&strange)])
        .await?;
    let condition = json!({
        "type": "TransportReady", "status": "False", "reason": "OfTomorrow", "message": "moved",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status =
        json!({"status": "TransportError", "observedGeneration": 1, "conditions": [condition]});
    let patch = json!({"status": status}).to_string();
    let args = [
        "patch",
        "asya",
        &strange,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ];
    scenario.kubectl(&args).await?;
    let expected = ["LeaderMissing", "NotReconciled", "ActorFailing"];
    let checks = only(scenario, "nobody reconciles actors", &expected).await?;
    let subject = |name: &str| format!("actor {}/{name}", scenario.namespace());
    for finding in [
        (&*subject(&new), "NotReconciled", "Wait a moment"),
        (
            &*subject(&strange),
            "ActorFailing",
            "See `kubectl asya status NAME`",
        ),
    ] {
        assert!(is_found(&checks, finding), "{finding:?} {checks:#}");
    }
    let page = asya(scenario, &["status", &strange]).await?;
    let hint = "OfTomorrow is not known to this program";
    assert!(page.out.contains(hint), "{}", page.out);
    Ok(())
}

/// Transports that do not work.
async fn brokers_are_found(scenario: &Scenario) -> Result<()> {
    let mut actors = Vec::new();
    for transport in ["rejected", "secretless"] {
        let mut actor = minimal_actor(&scenario.name(transport));
        actor["spec"]["transport"] = json!(transport);
        actors.push(actor);
    }
    scenario.apply_all(&actors).await?;
    let subject = |base: &str| {
        let namespace = scenario.namespace();
        format!("actor {namespace}/{}", scenario.name(base))
    };
    let (rejected, secretless) = (subject("rejected"), subject("secretless"));
    let findings = [
        ("transports", "TransportFailing", "See the message"),
        (&*rejected, "BrokerAuthFailed", "Correct the Secret"),
        (&*secretless, "CredentialsMissing", "Create the Secret"),
    ];
    eventually("brokers' problems are found", MINUTE, async || {
        let (ended, checks) = checked(scenario, &[]).await?;
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        for finding in findings {
            check(
                is_found(&checks, finding),
                format_args!("{finding:?} {checks:#}"),
            )?;
        }
        Ok(())
    })
    .await?;
    let names = ["rejected", "secretless"].map(|it| scenario.name(it));
    let [one, other] = &names;
    let skip = "asya.sh/skip-queue-deletion=true";
    scenario
        .kubectl(&["annotate", "asya", one, other, skip])
        .await?;
    scenario
        .kubectl(&["delete", "asya", one, other, "--timeout=60s"])
        .await
        .map(drop)
}

/// Before anything is installed, and with few permissions.
async fn nothing_is_installed(scenario: &Scenario) -> Result<()> {
    let (ended, checks) = checked(scenario, &[]).await?;
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    for finding in [
        ("CRD", "CRDMissing", "Install the operator's chart"),
        ("controller", "OperatorMissing", "Install the chart"),
        ("KEDA", "KEDAMissing", "Install KEDA"),
    ] {
        assert!(is_found(&checks, finding), "{finding:?} {checks:#}");
    }
    let before = asya(scenario, &["check", "--pre"]).await?;
    assert_eq!(before.code, Some(0), "{}{}", before.out, before.err);
    let config = restricted(scenario)?;
    let (ended, checks) = checked(scenario, &["--pre", "--kubeconfig", &config]).await?;
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let finding = (
        "permission",
        "InstallPermissionMissing",
        "Ask an administrator",
    );
    assert!(is_found(&checks, finding), "{checks:#}");
    Ok(())
}

/// A broker that this machine cannot reach is a note, not a finding: the operator may be able to reach it.
async fn unreachable_broker_is_a_note(scenario: &Scenario, name: &str) -> Result<()> {
    let moved = |it: &mut Value| set_variable(it, "ASYA_TRANSPORT_CONFIG", UNREACHABLE);
    let before = Before::edit(scenario, WEBHOOK, &Some(Box::new(moved))).await?;
    only(scenario, "the rollout of the webhook has ended", &[]).await?;
    for (args, what) in [
        (
            &["check"][..],
            "dead letters and consumers on transport rabbitmq are missing",
        ),
        (&["status", name], "consumers and dead letters are missing"),
        (&["trace", name], "consumers and dead letters are missing"),
    ] {
        let ended = asya(scenario, args).await?;
        assert_eq!(ended.code, Some(0), "{args:?}: {}", ended.out);
        for part in ["note: ", what, "cannot reach RabbitMQ at 127.0.0.1:1"] {
            assert!(ended.err.contains(part), "{part}: {}", ended.err);
        }
    }
    before.restore(scenario).await?;
    only(scenario, "nothing is found again", &[])
        .await
        .map(drop)
}

/// Without KEDA, then with it: an installation at rest has no findings.
async fn healthy(scenario: &Scenario, cluster: &mut RunningCluster) -> Result<()> {
    let name = scenario.name("bound");
    let deployments = scenario.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &model("model", 1)?)
        .await?;
    let mut actor = bound_actor(&name, "model");
    actor["spec"]["scaling"] = json!({"enabled": true, "minReplicas": 1});
    scenario.apply(&actor).await?;
    status_is(scenario, &name, "its pod is injected", MINUTE, |status| {
        condition(status, "Injected") == ("True", "AllPodsInjected")
    })
    .await?;
    let found = ["KEDAMissing", "KedaNotInstalled"];
    let checks = only(scenario, "KEDA is missing", &found).await?;
    let (ended, _) = checked(scenario, &["--strict"]).await?;
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let subject = format!("actor {}/{name}", scenario.namespace());
    let fix = "Install KEDA 2.16 or newer, or set `spec.scaling.enabled: false`.";
    assert!(
        is_found(&checks, ("KEDA", "KEDAMissing", fix)),
        "{checks:#}"
    );
    assert!(
        is_found(&checks, (&subject, "KedaNotInstalled", fix)),
        "{checks:#}"
    );

    cluster.start_keda().await?;
    only(scenario, "nothing is found", &[]).await?;
    let (ended, checks) = checked(scenario, &[]).await?;
    assert_eq!(ended.code, Some(0), "{checks:#}");
    let is_ok = |it: &Value| it["result"] == "ok";
    assert!(
        checks.as_array().is_some_and(|all| all.iter().all(is_ok)),
        "{checks:#}"
    );

    unreachable_broker_is_a_note(scenario, &name).await?;

    let elsewhere = ["--operator-namespace", "default"];
    let (_, checks) = checked(scenario, &elsewhere).await?;
    assert_eq!(ids(&checks), ["OperatorMissing"], "{checks:#}");
    let there = "There is one in asya-system: pass --operator-namespace asya-system.";
    assert!(checks.to_string().contains(there), "{checks:#}");
    let config = restricted(scenario)?;
    let (ended, checks) = checked(scenario, &["--kubeconfig", &config]).await?;
    assert_eq!(
        (ended.code, ids(&checks)),
        (Some(2), vec!["NotChecked".to_owned()]),
        "{checks:#}"
    );
    Ok(())
}

#[tokio::test]
async fn check_finds_each_problem_of_an_installation_and_none_in_a_healthy_one() {
    let _turn = own_cluster().await;
    let mut cluster = RunningCluster::start(Options::default()).await.unwrap();
    let its_own = Ok((*cluster).clone());
    Scenario::run_on(its_own, "cli-problems", async |scenario| {
        nothing_is_installed(scenario).await?;
        let rabbitmq = default_values(&cluster)["transports"]["rabbitmq"].clone();
        let (mut rejected, mut secretless) = (rabbitmq.clone(), rabbitmq);
        rejected["config"]["passwordSecretRef"] = json!({"name": "sqs-secret", "key": "key"});
        secretless["config"]["passwordSecretRef"] = json!({"name": "none", "key": "key"});
        let transports = json!({"rejected": rejected, "secretless": secretless});
        let operator = Operator::install(&cluster, json!({"transports": transports})).await?;
        let controller = operator.start("asya-operator-0").await?;
        let mut webhook = Webhook::start(&operator).await?;
        healthy(scenario, &mut cluster).await?;
        brokers_are_found(scenario).await?;
        only(scenario, "nothing is found any more", &[]).await?;
        are_found(scenario, lasting(), &[]).await?;
        second_operator_is_found(scenario).await?;

        controller.kill().await;
        let checks = only(scenario, "nobody leads", &["LeaderMissing"]).await?;
        let finding = ("leader", "LeaderMissing", "Look at the controller's log");
        assert!(is_found(&checks, finding), "{checks:#}");
        are_found(scenario, without_leader(), &["LeaderMissing"]).await?;
        old_certificates_are_found(scenario).await?;
        webhook.kill().await?;
        let both = ["LeaderMissing", "WebhookUnreachable"];
        let checks = only(scenario, "the webhook is unreachable", &both).await?;
        let finding = (
            "webhook review",
            "WebhookUnreachable",
            "Check the webhook's Service",
        );
        assert!(is_found(&checks, finding), "{checks:#}");

        webhook.fill().await?;
        actors_without_a_leader_are_found(scenario).await?;
        let _second = operator.start("asya-operator-1").await?;
        only(scenario, "nothing is found at the end", &[])
            .await
            .map(drop)
    })
    .await;
}
