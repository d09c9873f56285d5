//! Decides what is wrong with the actors among manifests, according to the schema and rules of the CRD, the rules of
//! the webhook, and what several actors would share.

use std::collections::HashMap;
use std::sync::Arc;

use asya_shared::admission::facts::WebhookFacts;
use asya_shared::api::AsyncActorSpec;
use asya_shared::config::TransportsConfig;
use asya_shared::names::{GROUP, annotation};
use asya_shared::queue_claims::{self, ClaimedName};
use asya_shared::review::check_spec;
use asya_shared::validate::{self, Subject, Violation, Write};
use kube::core::cel::Validator;
use serde::Serialize;
use serde_json::Value;

use super::finding::Source;
use super::{LintFinding, Severity, schema};
use crate::installation::Installation;
use crate::manifests::{Manifest, Manifests};

const VERSION: &str = "asya.sh/v1alpha1";

#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The CRD's schema, as kube's evaluator reads it.
    pub schema: &'a Value,
    /// The installation's settings; without them, checks that depend on its transports are skipped.
    pub installation: Option<&'a Installation>,
    /// Namespace of actors that do not name one.
    pub namespace: &'a str,
    pub operator_namespace: &'a str,
}

/// The actors that were checked, and their findings.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Linted {
    pub actors: Vec<Source>,
    pub findings: Vec<LintFinding>,
}

/// An actor whose spec could be decoded.
struct Decoded<'a> {
    source: Source,
    namespace: &'a str,
    name: &'a str,
    spec: AsyncActorSpec,
}

/// Checks all actors among the manifests.
pub fn lint(manifests: &Manifests, rules: &Rules<'_>) -> Linted {
    let mut linted = Linted::default();
    for document in &manifests.unreadable {
        let source = Source {
            file: document.file.clone(),
            line: document.line,
            actor: String::new(),
            text: "".into(),
        };
        let finding = LintFinding::new(
            &source,
            Severity::Error,
            "ManifestUnreadable",
            "",
            &document.problem,
            None,
        );
        linted.findings.push(finding);
    }
    let none = TransportsConfig::default();
    let transports = rules.installation.map_or(&none, |it| &it.transports);
    let mut decoded = Vec::new();
    for manifest in manifests.objects.iter().filter(|it| is_actor(it)) {
        let actor = Checked::new(manifest, rules);
        decoded.extend(actor.check(rules, transports, &mut linted.findings));
        linted.actors.push(actor.source);
    }
    shared_queues(&decoded, transports, &mut linted.findings);
    shared_targets(&decoded, &mut linted.findings);
    linted.findings.sort();
    linted
}

/// Whether it is an `AsyncActor`.
pub fn is_actor(manifest: &Manifest) -> bool {
    manifest.group() == GROUP && manifest.kind() == "AsyncActor"
}

/// An actor that is being checked.
struct Checked<'a> {
    object: &'a Value,
    source: Source,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Checked<'a> {
    fn new(manifest: &'a Manifest, rules: &Rules<'a>) -> Self {
        let object = &manifest.object;
        let text = |key: &str| object["metadata"][key].as_str().filter(|it| !it.is_empty());
        let namespace = text("namespace").unwrap_or(rules.namespace);
        let name = text("name").unwrap_or_default();
        Self {
            source: Source {
                file: manifest.file.clone(),
                line: manifest.line,
                actor: format!("{namespace}/{name}"),
                text: Arc::clone(&manifest.text),
            },
            object,
            namespace,
            name,
        }
    }

    /// Adds the findings about this actor alone; returns its spec if it can be decoded.
    fn check(
        &self,
        rules: &Rules<'_>,
        transports: &TransportsConfig,
        findings: &mut Vec<LintFinding>,
    ) -> Option<Decoded<'a>> {
        let fits = self.check_schema(rules.schema, findings);
        let violations = validate::annotations(|name| self.annotation(name));
        findings.extend(violations.iter().map(|it| self.violation("FW-21", it)));
        let spec = self.object["spec"].to_string();
        let too_large = validate::spec_size(spec.len(), None);
        findings.extend(too_large.map(|it| self.violation("VAL-22", &it)));
        let spec = match validate::decode(&spec) {
            Ok(spec) => spec,
            Err(_) if !fits => return None,
            Err(violation) => {
                findings.push(self.violation("API-6", &violation));
                return None;
            }
        };
        let known = self.check_rules(rules, transports, &spec, findings);
        if fits {
            self.check_cel(rules.schema, &known, findings);
        }
        Some(Decoded {
            source: self.source.clone(),
            namespace: self.namespace,
            name: self.name,
            spec,
        })
    }

    /// Returns whether the actor conforms to the schema.
    fn check_schema(&self, schema: &Value, findings: &mut Vec<LintFinding>) -> bool {
        let mut found =
            schema::violations(&schema["properties"]["spec"], &self.object["spec"], "spec");
        let mut violation = |path: &str, problem: String| {
            let path = path.to_owned();
            found.push(schema::SchemaViolation { path, problem });
        };
        if self.object["apiVersion"] != VERSION {
            violation("apiVersion", format!("unknown version; use {VERSION}"));
        }
        if self.name.is_empty() {
            violation("metadata.name", "is required".to_owned());
        }
        findings.extend(found.iter().map(|it| {
            LintFinding::new(
                &self.source,
                Severity::Error,
                "SchemaViolation",
                &it.path,
                &it.problem,
                None,
            )
        }));
        found.is_empty()
    }

    /// Adds violations of the webhook's rules; returns their texts.
    fn check_rules(
        &self,
        rules: &Rules<'_>,
        transports: &TransportsConfig,
        spec: &AsyncActorSpec,
        findings: &mut Vec<LintFinding>,
    ) -> Vec<String> {
        let subject = Subject {
            name: self.name,
            namespace: self.namespace,
            spec,
            role_arn: self.annotation(annotation::ROLE_ARN),
            write: Write::Create,
            transports,
            privileged_sidecars: rules
                .installation
                .is_none_or(|it| it.settings.privileged_sidecars),
        };
        let checked = check_spec(&subject, rules.operator_namespace, &WebhookFacts::default());
        for violation in &checked.errors {
            let requirement = validate::requirement_of(&subject, violation).unwrap_or("BIND-2");
            findings.push(self.violation(requirement, violation));
        }
        let usual = validate::warnings(&subject);
        for warning in &checked.warnings {
            if rules.installation.is_none() && warning.path == "spec.transport" {
                continue;
            }
            let requirement = if usual.contains(warning) {
                "VAL-17"
            } else {
                "VAC-6"
            };
            let (problem, fix) = split_fix(&warning.text);
            let fix = fix.map(|fix| naming_field(fix, &warning.path));
            let finding = LintFinding::new(
                &self.source,
                Severity::Warning,
                requirement,
                &warning.path,
                problem,
                fix.as_deref(),
            );
            findings.push(finding);
        }
        checked.errors.iter().map(ToString::to_string).collect()
    }

    /// Adds violations of CRD rules that are not also rules of the webhook.
    fn check_cel(&self, schema: &Value, known: &[String], findings: &mut Vec<LintFinding>) {
        let Err(errors) = Validator::new().validate(schema, self.object, None) else {
            return;
        };
        for error in errors.into_vec() {
            let violation = Violation::new(&*error.field_path, &error.message);
            if !known.contains(&violation.to_string()) {
                findings.push(self.violation("CRDRule", &violation));
            }
        }
    }

    fn annotation(&self, name: &str) -> Option<&'a str> {
        self.object["metadata"]["annotations"].get(name)?.as_str()
    }

    fn violation(&self, name: &str, violation: &Violation) -> LintFinding {
        let Violation { path, problem, fix } = violation;
        LintFinding::new(
            &self.source,
            Severity::Error,
            name,
            path,
            problem,
            fix.as_deref(),
        )
    }
}

fn split_fix(text: &str) -> (&str, Option<&str>) {
    match text.split_once("; ") {
        Some((problem, fix)) => (problem, Some(fix)),
        None => (text, None),
    }
}

/// The fix of a warning that begins with a value, extended by the field to set.
fn naming_field(fix: &str, path: &str) -> String {
    match fix.strip_prefix("OnRestart ") {
        Some(effect) => format!("{path}: OnRestart {effect}"),
        None => fix.to_owned(),
    }
}

/// Actors that would share a queue, or use each other's dead letter queue (VAL-16). The first one keeps it.
fn shared_queues(
    actors: &[Decoded<'_>],
    transports: &TransportsConfig,
    findings: &mut Vec<LintFinding>,
) {
    let mut claimed: Vec<(ClaimedName, &Decoded<'_>)> = Vec::new();
    for actor in actors {
        let key = (actor.namespace, actor.name);
        for name in queue_claims::names(transports, key, Some(&actor.spec.transport), []) {
            let owner = claimed.iter().find(|(other, owner)| {
                let is_other = (owner.namespace, owner.name) != key;
                is_other && other.address == name.address && !name.kind.can_share_with(other.kind)
            });
            if let Some((_, owner)) = owner {
                let violation = validate::queue_in_use(&name.queue, owner.namespace, owner.name);
                findings.push(between("VAL-16", actor, &violation));
                break;
            }
            claimed.push((name, actor));
        }
    }
}

/// Actors that bind the same object (BIND-45).
fn shared_targets(actors: &[Decoded<'_>], findings: &mut Vec<LintFinding>) {
    let mut bound: HashMap<_, &Decoded<'_>> = HashMap::new();
    for actor in actors {
        let Some(target) = &actor.spec.workload_ref else {
            continue;
        };
        let object = (actor.namespace, target.group(), &target.kind, &target.name);
        let first = *bound.entry(object).or_insert(actor);
        if first.name != actor.name {
            let violation = validate::target_already_bound(target, first.namespace, first.name);
            findings.push(between("BIND-45", actor, &violation));
        }
    }
}

fn between(name: &str, actor: &Decoded<'_>, violation: &Violation) -> LintFinding {
    let Violation { path, problem, fix } = violation;
    LintFinding::new(
        &actor.source,
        Severity::Error,
        name,
        path,
        problem,
        fix.as_deref(),
    )
}

#[cfg(test)]
mod tests;
