//! Whether the API server calls the webhook and trusts it.

use std::collections::BTreeSet;

use asya_certs::data::{CA_BUNDLE, Data, LEAF};
use asya_certs::parsed_secret::{Leaf, SecretFault};
use asya_shared::admission::VALIDATION_ENTRY;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Check, counted, replicas};
use crate::actor;
use crate::check::gather::{Observed, Review};
use crate::check::reading::Read;
use crate::installation::{self, OperatorDeployment};
use crate::output::since;

/// Name suffixes of all webhook entries of the operator, and of those for pods.
const OURS: &str = ".asya.sh";
const INJECTION: &str = "inject.asya.sh";
/// The flag with the names that the certificate must cover.
const NAMES: &str = "--tls-names=";
/// Certificates are renewed when a third of their lifetime is left; if less than a sixth is left, renewal has failed.
const OVERDUE: i64 = 6;

/// Checks the webhook of an installed operator.
pub fn checks(observed: &Observed, now: Timestamp) -> Vec<Check> {
    let Ok(deployments) = &observed.deployments else {
        return Vec::new();
    };
    if deployments.is_empty() {
        return Vec::new();
    }
    let Some(deployment) = installation::webhook(deployments) else {
        return vec![Check::warning("webhook", "WebhookNotInstalled", "")];
    };
    let mut checks = vec![replicas(
        "webhook",
        deployment,
        "WebhookDown",
        "WebhookDegraded",
    )];
    checks.extend(endpoints(&observed.endpoints));
    checks.push(certificate(observed, deployment, now));
    checks.push(configuration(&observed.validating_configurations));
    checks.push(injection(observed));
    checks.push(review(&observed.review, deployment));
    checks
}

fn endpoints(ready: &Read<Option<usize>>) -> Option<Check> {
    let subject = "webhook Service";
    Some(match ready {
        Ok(None) => return None,
        Ok(Some(0)) => Check::failed(subject, "WebhookWithoutEndpoints", ""),
        Ok(Some(ready)) => Check::ok(subject, counted(*ready, "ready endpoint")),
        Err(why) => Check::unknown(subject, why),
    })
}

/// The certificate in the webhook's Secret, checked as by clients that trust the CAs in the webhook configurations.
fn certificate(observed: &Observed, webhook: &OperatorDeployment, now: Timestamp) -> Check {
    let subject = "webhook certificate";
    let served = match &observed.serving_secret {
        Ok(Some(served)) => served,
        Ok(None) => {
            return Check::failed(
                subject,
                "CertificateInvalid",
                "The Secret with the certificate does not exist.",
            );
        }
        Err(why) => return Check::unknown(subject, why),
    };
    let names = webhook.flag(NAMES).unwrap_or_default();
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    let mut bundles = BTreeSet::from([text_of(served, CA_BUNDLE)]);
    bundles.extend(trusted(&observed.validating_configurations));
    bundles.extend(trusted(&observed.mutating_configurations));
    let mut ends = None;
    for bundle in &bundles {
        let mut data = served.clone();
        data.set(CA_BUNDLE, bundle);
        let leaf = Leaf::read(&data);
        let verified = leaf.and_then(|leaf| {
            let issuer = leaf.verify(&names, now)?;
            Ok(leaf.certificate.not_after.min(issuer.not_after))
        });
        match verified {
            Ok(end) => ends = ends.into_iter().chain([end]).min(),
            Err(fault) => return faulty(&fault),
        }
    }
    let leaf = Leaf::read(served).ok().map(|it| it.certificate);
    let (Some(ends), Some(leaf)) = (ends, leaf) else {
        return faulty(&SecretFault::Unreadable(LEAF));
    };
    let text = format!("It ends in {}.", since(now, ends));
    if is_overdue(leaf.not_before, leaf.not_after, now) {
        return Check::warning(subject, "CertificateExpiring", &text);
    }
    Check::ok(subject, format!("valid for {}", since(now, ends)))
}

fn is_overdue(from: Timestamp, to: Timestamp, now: Timestamp) -> bool {
    let (lifetime, left): (SignedDuration, SignedDuration) =
        (to.duration_since(from), to.duration_since(now));
    left.as_secs() < lifetime.as_secs() / OVERDUE
}

fn faulty(fault: &SecretFault) -> Check {
    let name = match fault {
        SecretFault::Untrusted => "WebhookCAMismatch",
        SecretFault::Expired(_) => "CertificateExpired",
        SecretFault::Missing(_)
        | SecretFault::Unreadable(_)
        | SecretFault::Mismatch { .. }
        | SecretFault::NotACa(_)
        | SecretFault::Name(_)
        | SecretFault::NotYetValid(_) => "CertificateInvalid",
    };
    let detail = match fault {
        SecretFault::Untrusted => String::new(),
        fault => format!("The reason: {fault}."),
    };
    Check::failed("webhook certificate", name, &detail)
}

fn text_of(data: &Data, key: &str) -> String {
    String::from_utf8_lossy(data.get(key).unwrap_or_default()).into_owned()
}

/// The CAs of all entries of the operator.
fn trusted(configurations: &Read<Vec<Value>>) -> Vec<String> {
    let ours = entries(configurations).filter(|it| has_name(it, |name| name.ends_with(OURS)));
    let bundles = ours.filter_map(|entry| {
        let bundle = entry["clientConfig"]["caBundle"].clone();
        let ByteString(pem) = serde_json::from_value(bundle).ok()?;
        Some(String::from_utf8_lossy(&pem).into_owned())
    });
    bundles.filter(|it| !it.is_empty()).collect()
}

fn entries(configurations: &Read<Vec<Value>>) -> impl Iterator<Item = &Value> {
    let configurations = configurations.as_deref().unwrap_or_default().iter();
    configurations.flat_map(|it| it["webhooks"].as_array().into_iter().flatten())
}

fn has_name(entry: &Value, is_it: impl Fn(&str) -> bool) -> bool {
    entry["name"].as_str().is_some_and(is_it)
}

fn configuration(configurations: &Read<Vec<Value>>) -> Check {
    let subject = "webhook configuration";
    if let Err(why) = configurations {
        return Check::unknown(subject, why);
    }
    let Some(entry) =
        entries(configurations).find(|it| has_name(it, |name| name == VALIDATION_ENTRY))
    else {
        return Check::failed(subject, "WebhookConfigurationMissing", "");
    };
    let has_ca = |entry: &&Value| {
        let bundle = entry["clientConfig"]["caBundle"].as_str();
        bundle.is_some_and(|it| !it.is_empty())
    };
    let mut ours = entries(configurations).filter(|it| has_name(it, |name| name.ends_with(OURS)));
    if let Some(without) = ours.find(|it| !has_ca(it)) {
        let name = without["name"].as_str().unwrap_or_default();
        return Check::failed(subject, "WebhookCAMissing", &format!("It is {name}."));
    }
    let missing: Vec<&str> = ["CREATE", "UPDATE"]
        .into_iter()
        .filter(|operation| !reviews(entry, operation))
        .collect();
    if !missing.is_empty() {
        let detail = format!("No rule has {}.", missing.join(" and "));
        return Check::failed(subject, "WebhookRuleMissing", &detail);
    }
    let policy = entry["failurePolicy"].as_str().unwrap_or("Fail");
    Check::ok(subject, format!("failurePolicy {policy}"))
}

/// Whether a rule of the entry covers this operation on `AsyncActor`s.
fn reviews(entry: &Value, operation: &str) -> bool {
    let has = |list: &Value, text: &str| {
        let mut all = list.as_array().into_iter().flatten();
        all.any(|it| it == text || it == "*")
    };
    let mut rules = entry["rules"].as_array().into_iter().flatten();
    rules.any(|rule| {
        has(&rule["apiGroups"], "asya.sh")
            && has(&rule["resources"], "asyncactors")
            && has(&rule["operations"], operation)
    })
}

/// Whether the API server calls the webhook for pods of every namespace with a bound target.
fn injection(observed: &Observed) -> Check {
    let subject = "webhook injection";
    if let Err(why) = &observed.mutating_configurations {
        return Check::unknown(subject, why);
    }
    let actors = observed.actors.as_deref().unwrap_or_default().iter();
    let bound: BTreeSet<&str> = actors
        .filter(|actor| needs_injection(actor))
        .filter_map(|actor| actor["metadata"]["namespace"].as_str())
        .collect();
    let ours = entries(&observed.mutating_configurations);
    let ours = ours.filter(|it| has_name(it, |name| name.ends_with(INJECTION)));
    let namespaces = ours.flat_map(|it| {
        let selectors = it["namespaceSelector"]["matchExpressions"].as_array();
        let values = selectors.into_iter().flatten();
        values.flat_map(|it| it["values"].as_array().into_iter().flatten())
    });
    let covered: BTreeSet<&str> = namespaces.filter_map(Value::as_str).collect();
    let missing: Vec<&str> = bound.difference(&covered).copied().collect();
    if missing.is_empty() {
        return Check::ok(
            subject,
            format!("namespaces with bound targets: {}", bound.len()),
        );
    }
    let detail = format!("The namespaces: {}.", missing.join(", "));
    Check::failed(subject, "InjectorEntryMissing", &detail)
}

/// Whether the target's pods get their sidecar from the webhook rather than from the target's template.
fn needs_injection(actor: &Value) -> bool {
    let status = actor::status_of(actor);
    let is_resolved =
        actor::condition(&status, "TargetResolved").is_some_and(|it| it.status == "True");
    is_resolved
        && actor["spec"]["workloadRef"].is_object()
        && actor["spec"]["binding"]["strategy"] != "Template"
        && actor["metadata"]["deletionTimestamp"].is_null()
        && status.bound_since.is_some()
}

fn review(review: &Review, webhook: &OperatorDeployment) -> Check {
    let subject = "webhook review";
    match (review, webhook.flag("--validation=")) {
        (Review::Rejected, _) => Check::ok(subject, "a dry run of an invalid actor is rejected"),
        (Review::Admitted, Some(mode @ ("Off" | "Warn"))) => Check::ok(
            subject,
            format!("a dry run cannot tell while webhook.validation.mode is {mode}"),
        ),
        (Review::Admitted, _) => Check::failed(
            subject,
            "WebhookUnreachable",
            "A dry run of an invalid actor is admitted.",
        ),
        (Review::Unknown(why), _) => Check::unknown(subject, why),
    }
}
