//! Checks of an installation.

mod actors;
mod webhook;

use asya_shared::names::annotation;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::gather::{Observed, Prerequisites};
use super::lease::ObservedLease;
use super::permissions::Needed;
use super::reading::Read;
use crate::answer::Answer;
use crate::catalogue;
use crate::installation::{self, ControllerLocation, OperatorDeployment};
use crate::output::since;

const OLDEST_MINOR: u32 = 30;
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The subject of the check.
    pub subject: String,
    pub result: CheckResult,
    pub detail: String,
    /// The finding, if there is one.
    pub id: Option<String>,
    pub fix: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    Ok,
    /// It works, but probably not as intended.
    Warning,
    Failed,
    /// Could not be read.
    Unknown,
}

impl Check {
    /// With `strict`, warnings count as findings.
    pub fn answer(&self, strict: bool) -> Answer {
        match self.result {
            CheckResult::Warning if strict => Answer::Findings,
            CheckResult::Ok | CheckResult::Warning => Answer::Fine,
            CheckResult::Failed => Answer::Findings,
            CheckResult::Unknown => Answer::Unknown,
        }
    }

    fn ok(subject: &str, detail: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            result: CheckResult::Ok,
            detail: detail.into(),
            id: None,
            fix: None,
        }
    }

    /// A result for the finding with this name in the catalogue.
    fn finding(subject: &str, result: CheckResult, name: &str, detail: &str) -> Self {
        let entry = catalogue::entry(name);
        let meaning = entry.map_or("", |it| it.meaning);
        Self {
            subject: subject.to_owned(),
            result,
            detail: joined(meaning, detail),
            id: Some(catalogue::id(name)),
            fix: entry.map(|it| it.fix),
        }
    }

    fn failed(subject: &str, name: &str, detail: &str) -> Self {
        Self::finding(subject, CheckResult::Failed, name, detail)
    }

    fn warning(subject: &str, name: &str, detail: &str) -> Self {
        Self::finding(subject, CheckResult::Warning, name, detail)
    }

    fn unknown(subject: &str, why: &str) -> Self {
        Self::finding(subject, CheckResult::Unknown, "NotChecked", why)
    }
}

/// The meaning of a finding, and the detail: as its own sentence, or, like messages of conditions, after a colon.
fn joined(meaning: &str, detail: &str) -> String {
    if detail.is_empty() {
        meaning.to_owned()
    } else if detail.starts_with(char::is_lowercase) {
        format!("{}: {detail}", meaning.trim_end_matches('.'))
    } else {
        format!("{meaning} {detail}")
    }
}

/// A count with its noun.
fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// Checks an installation.
pub fn installed(observed: &Observed, now: Timestamp) -> Vec<Check> {
    let deployments = observed.deployments.as_deref().unwrap_or_default();
    let controller = installation::controller(deployments);
    let release = controller.and_then(OperatorDeployment::release);
    let mut checks = vec![kubernetes(&observed.version), crd(&observed.crd, release)];
    checks.extend(operator(observed));
    // Without an operator, nothing else of it can exist, so one finding is enough.
    let is_elsewhere = observed.deployments.is_ok() && controller.is_none();
    if !is_elsewhere {
        checks.extend(several_operators(&observed.controllers));
        checks.extend(operator_permissions(observed));
        checks.push(match controller {
            Some(controller) if !controller.elects_leader() => {
                Check::ok("leader", "leader election is off")
            }
            _ => leader(&observed.lease),
        });
        checks.extend(webhook::checks(observed, now));
    }
    checks.push(keda(&observed.keda));
    if !is_elsewhere {
        checks.push(actors::transports(observed));
    }
    let queues = actors::queues(observed);
    let mut actors = actors::actors(&observed.actors, now);
    if queues.iter().any(|it| it.result == CheckResult::Failed) {
        // The actors report no problem, but the broker does.
        actors.retain(|it| it.result != CheckResult::Ok);
    }
    checks.extend(actors);
    checks.extend(queues);
    checks
}

/// Checks a cluster before the installation.
pub fn before_installing(found: &Prerequisites) -> Vec<Check> {
    let mut checks = vec![kubernetes(&found.version), keda(&found.keda)];
    checks.push(match &found.crd {
        Ok(Some(crd)) => Check::ok(
            "CRD",
            format!(
                "already installed ({})",
                crd_version(crd).unwrap_or("unknown release")
            ),
        ),
        Ok(None) => Check::ok("CRD", "not installed yet"),
        Err(why) => Check::unknown("CRD", why),
    });
    checks.push(installed_operators(
        &found.controllers,
        &found.operator_namespace,
    ));
    for (permission, has) in &found.permissions {
        let action = permission.to_string();
        checks.push(match has {
            Ok(true) => Check::ok("permission", action),
            Ok(false) => Check::failed(
                "permission",
                "InstallPermissionMissing",
                &format!("You may not {action}."),
            ),
            Err(why) => Check::unknown("permission", why),
        });
    }
    checks
}

fn kubernetes(version: &str) -> Check {
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|it| it.parse::<u32>().ok());
    match minor {
        Some(minor) if minor < OLDEST_MINOR => Check::failed(
            "Kubernetes",
            "KubernetesTooOld",
            &format!("It is {version}."),
        ),
        _ => Check::ok("Kubernetes", version),
    }
}

fn crd_version(crd: &Value) -> Option<&str> {
    crd["metadata"]["annotations"]
        .get(annotation::CRD_VERSION)?
        .as_str()
}

fn crd(crd: &Read<Option<Value>>, release: Option<&str>) -> Check {
    let crd = match crd {
        Ok(Some(crd)) => crd,
        Ok(None) => return Check::failed("CRD", "CRDMissing", ""),
        Err(why) => return Check::unknown("CRD", why),
    };
    match (crd_version(crd), release) {
        (Some(version), Some(release)) if version != release => Check::warning(
            "CRD",
            "CRDOutdated",
            &format!("The CRD is of {version}, the operator of {release}."),
        ),
        (version, _) => Check::ok(
            "CRD",
            version.map_or_else(|| "installed".to_owned(), |it| format!("of release {it}")),
        ),
    }
}

fn operator(observed: &Observed) -> Vec<Check> {
    let namespace = &observed.operator_namespace;
    let deployments = match &observed.deployments {
        Ok(deployments) => deployments,
        Err(why) => return vec![Check::unknown("controller", why)],
    };
    let Some(controller) = installation::controller(deployments) else {
        return vec![Check::failed(
            "controller",
            "OperatorMissing",
            &format!(
                "The namespace is {namespace}.{}",
                elsewhere(&observed.controllers)
            ),
        )];
    };
    let webhook = installation::webhook(deployments);
    let releases = [Some(controller), webhook]
        .into_iter()
        .flatten()
        .filter_map(OperatorDeployment::release);
    let mut other = releases.filter(|release| *release != OWN_VERSION);
    let mut checks = vec![replicas(
        "controller",
        controller,
        "ControllerDown",
        "ControllerDegraded",
    )];
    checks.push(match other.next() {
        Some(release) => Check::warning(
            "versions",
            "VersionSkew",
            &format!("The operator is of {release}, this program of {OWN_VERSION}."),
        ),
        None => Check::ok("versions", OWN_VERSION),
    });
    checks
}

/// Where the operator is installed instead.
fn elsewhere(controllers: &Read<Vec<ControllerLocation>>) -> String {
    let namespaces = controllers.as_ref().map(|all| {
        let mut namespaces: Vec<&str> = all.iter().map(|it| &*it.namespace).collect();
        namespaces.dedup();
        namespaces
    });
    match namespaces.as_deref() {
        Ok([]) => " There is none in any other namespace either.".to_owned(),
        Ok([namespace]) => {
            format!(" There is one in {namespace}: pass --operator-namespace {namespace}.")
        }
        Ok(several) => format!(
            " There are some in {}: pass one of them.",
            several.join(", ")
        ),
        Err(why) => format!(" Others could not be searched: {why}."),
    }
}

/// Two operators would reconcile the same actors and undo each other's changes.
fn several_operators(controllers: &Read<Vec<ControllerLocation>>) -> Option<Check> {
    let subject = "operators";
    match controllers.as_deref() {
        Ok([] | [_]) => None,
        Ok(several) => Some(Check::failed(subject, "SeveralOperators", &listed(several))),
        Err(why) => Some(Check::unknown(subject, why)),
    }
}

/// An upgrade of the operator in `namespace` is fine, but not a second operator elsewhere.
fn installed_operators(controllers: &Read<Vec<ControllerLocation>>, namespace: &str) -> Check {
    let subject = "operators";
    match controllers.as_deref() {
        Ok([]) => Check::ok(subject, "none installed yet"),
        Ok([one]) if one.namespace == namespace => {
            Check::ok(subject, format!("{one}: upgrade its release"))
        }
        Ok(others) => Check::failed(subject, "SeveralOperators", &listed(others)),
        Err(why) => Check::unknown(subject, why),
    }
}

fn listed(controllers: &[ControllerLocation]) -> String {
    let all: Vec<String> = controllers.iter().map(ToString::to_string).collect();
    format!("Found {}.", all.join(", "))
}

fn replicas(subject: &str, deployment: &OperatorDeployment, down: &str, degraded: &str) -> Check {
    let OperatorDeployment {
        name,
        ready,
        desired,
        ..
    } = deployment;
    let detail = format!("{ready} of {desired} replicas of deployment/{name} are ready.");
    match ready {
        0 => Check::failed(subject, down, &detail),
        ready if ready < desired => Check::warning(subject, degraded, &detail),
        _ => Check::ok(subject, detail.trim_end_matches('.')),
    }
}

/// Whether the operator's programs have the permissions that they need.
fn operator_permissions(observed: &Observed) -> Option<Check> {
    let subject = "operator permissions";
    let permissions = match &observed.operator_permissions {
        Ok(permissions) => permissions,
        Err(why) => return Some(Check::unknown(subject, why)),
    };
    let missing = permissions.iter().filter(|(_, has)| !has);
    let missing: Vec<String> = missing.map(|(needed, _)| lacks(needed)).collect();
    if permissions.is_empty() {
        return None;
    }
    Some(if missing.is_empty() {
        Check::ok(subject, format!("all {} are granted", permissions.len()))
    } else {
        let detail = format!("Missing: {}.", missing.join(", "));
        Check::failed(subject, "OperatorPermissionMissing", &detail)
    })
}

fn lacks(needed: &Needed) -> String {
    let name = needed.name.iter().map(|it| format!(" {it}"));
    let namespace = needed.namespace.iter();
    let namespace = namespace.map(|it| format!(" in namespace {it}"));
    let rest: String = name.chain(namespace).collect();
    format!(
        "ServiceAccount {}: {}{rest}",
        needed.service_account, needed.permission
    )
}

/// The holder must have renewed its lease within its duration, or renew it now.
fn leader(lease: &Read<Option<ObservedLease>>) -> Check {
    let lease = match lease {
        Ok(Some(lease)) => lease,
        Ok(None) => return Check::failed("leader", "LeaderMissing", "There is no Lease."),
        Err(why) => return Check::unknown("leader", why),
    };
    let (Some(holder), Some(renewed)) = (lease.holder(), lease.renewed()) else {
        return Check::failed("leader", "LeaderMissing", "Nobody holds the Lease.");
    };
    if lease.is_renewed {
        return Check::ok("leader", format!("{holder}, which renews its Lease"));
    }
    let age = lease.read_at.duration_since(renewed).as_secs();
    if lease.looks_held() {
        return Check::ok("leader", format!("{holder}, renewed {}s ago", age.max(0)));
    }
    let detail = if age < 0 {
        format!("{holder} does not renew it.")
    } else {
        format!("{holder} renewed it {} ago.", since(renewed, lease.read_at))
    };
    Check::failed("leader", "LeaderMissing", &detail)
}

fn keda(is_installed: &Read<bool>) -> Check {
    match is_installed {
        Ok(true) => Check::ok("KEDA", "installed"),
        Ok(false) => Check::warning("KEDA", "KEDAMissing", ""),
        Err(why) => Check::unknown("KEDA", why),
    }
}

#[cfg(test)]
mod tests;
