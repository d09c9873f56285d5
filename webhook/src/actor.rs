//! Validation of `AsyncActor`s (VAC-1 to VAC-7, ADM-5, ADM-6).

mod target;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use asya_shared::api::AsyncActorSpec;
use asya_shared::key::Key;
use asya_shared::names::{GROUP, annotation};
use asya_shared::validate::{self, Subject, Violation, Write};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::facts::Known;
use crate::index::{Contact, Index};
use crate::outcome::{Reason, Verdict};
use crate::review::{Answer, Denied, Request, Served};

const SERVED: Served = Served {
    group: GROUP,
    version: "v1alpha1",
    kind: "AsyncActor",
    resource: "asyncactors",
    operations: &["CREATE", "UPDATE"],
};

/// HTTP status for an object that breaks rules.
const INVALID: u16 = 422;

/// What becomes of an actor that breaks a rule (VAC-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Mode {
    /// It is refused.
    #[default]
    Enforce,
    /// It is allowed, and each error is a warning.
    Warn,
    /// Nothing is judged.
    Off,
}

/// Validates actors.
pub struct Actors {
    /// What to do with an actor that breaks a rule.
    pub mode: Mode,
    /// The operator's own namespace.
    pub namespace: String,
    pub index: Arc<Index>,
    /// Whether the index can be relied on.
    pub contact: Contact,
    pub facts: Known,
}

/// The parts of an actor that are read.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
}

impl<'a> Object<'a> {
    fn read(raw: Option<&'a RawValue>) -> Option<Self> {
        serde_json::from_str(raw?.get()).ok()
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        let all = self.metadata.annotations.as_ref()?;
        all.get(name).map(AsRef::as_ref)
    }

    fn spec(&self) -> &'a str {
        self.spec.map_or("{}", RawValue::get)
    }
}

impl Actors {
    pub fn judge(&self, request: &Request<'_>) -> Verdict {
        if !request.is(&SERVED) {
            return Verdict::not_served(request);
        }
        if self.mode == Mode::Off {
            return Verdict::allowed(Reason::Off);
        }
        let Some(actor) = Object::read(request.object) else {
            return Verdict {
                answer: Answer::warned(
                    "asya-webhook: cannot decode the actor; asya-controller validates it",
                ),
                reason: Reason::Unreadable,
                told: None,
            };
        };
        // Otherwise its finalizer could never be removed.
        if actor.metadata.deletion_timestamp.is_some() {
            return Verdict::allowed(Reason::Deleting);
        }
        let old = Object::read(request.old_object).filter(|_| request.operation == "UPDATE");
        let mut errors = steering(&actor, old.as_ref());
        let key = Key::new(&request.namespace, &actor.metadata.name);
        if old.as_ref().is_some_and(|old| old.spec() == actor.spec()) {
            return self.unless(&key, &errors);
        }
        let spec = match validate::decode(actor.spec()) {
            Ok(spec) => spec,
            Err(unreadable) => {
                errors.push(unreadable);
                return self.verdict(&key, &errors, Vec::new());
            }
        };
        // An old spec that cannot be decoded was never validated: do not enforce its immutable fields.
        let old = old.and_then(|old| validate::decode(old.spec()).ok());
        if old.as_ref() == Some(&spec) {
            return self.unless(&key, &errors);
        }
        let annotations = actor.metadata.annotations.unwrap_or_default();
        let write = match (&*request.operation, &old) {
            ("CREATE", _) => Write::Create,
            (_, Some(old)) => Write::Update { old },
            (_, None) => Write::Stored,
        };
        let subject = Subject {
            name: &key.name,
            namespace: &key.namespace,
            spec: &spec,
            role_arn: annotations.get(annotation::ROLE_ARN).map(AsRef::as_ref),
            write,
            transports: &self.index.platform.transports,
            privileged_sidecars: self.index.platform.settings.privileged_sidecars,
        };
        errors.extend(validate::check(&subject));
        let mut warnings: Vec<String> = validate::warnings(&subject)
            .iter()
            .map(ToString::to_string)
            .collect();
        errors.extend(validate::crosses_namespaces(&subject));
        errors.extend(validate::in_excluded_namespace(&subject, &self.namespace));
        let is_new = |old: &AsyncActorSpec| old.workload_ref != spec.workload_ref;
        if old.as_ref().is_none_or(is_new) {
            let findings = target::judge(&spec, &self.facts.now());
            errors.extend(findings.errors);
            warnings.extend(findings.warnings.iter().map(ToString::to_string));
        }
        let scale_down = target::scale_down(&spec, old.as_ref());
        warnings.extend(scale_down.iter().map(ToString::to_string));
        let conflicts = self.conflicts(&key, &spec, old.as_ref());
        if self.contact.is_lost() {
            warnings.extend(conflicts.iter().map(unsure));
        } else {
            errors.extend(conflicts);
        }
        errors.sort();
        warnings.sort();
        self.verdict(&key, &errors, warnings)
    }

    /// Conflicts with other actors, only over what this write newly requests (ADM-6).
    fn conflicts(
        &self,
        key: &Key,
        spec: &AsyncActorSpec,
        old: Option<&AsyncActorSpec>,
    ) -> Vec<Violation> {
        let changed = |part: fn(&AsyncActorSpec, &AsyncActorSpec) -> bool| {
            old.is_none_or(|old| part(old, spec))
        };
        let queue = changed(|old, new| old.transport != new.transport)
            .then(|| self.index.holder(key, &spec.transport))
            .flatten()
            .map(|(owner, queue)| validate::queue_taken(&queue, &owner.namespace, &owner.name));
        let target = spec
            .workload_ref
            .as_ref()
            .filter(|_| changed(|old, new| old.workload_ref != new.workload_ref))
            .and_then(|target| Some((target, self.index.binder(key, target)?)))
            .map(|(target, owner)| validate::target_taken(target, &owner.namespace, &owner.name));
        queue.into_iter().chain(target).collect()
    }

    /// The verdict on an unchanged spec: no other rule is checked.
    fn unless(&self, key: &Key, errors: &[Violation]) -> Verdict {
        if errors.is_empty() {
            return Verdict::allowed(Reason::Unchanged);
        }
        self.verdict(key, errors, Vec::new())
    }

    fn verdict(&self, key: &Key, errors: &[Violation], warnings: Vec<String>) -> Verdict {
        if errors.is_empty() {
            return Verdict {
                answer: Answer {
                    warnings,
                    ..Answer::default()
                },
                reason: Reason::Valid,
                told: None,
            };
        }
        let (answer, reason) = if self.mode == Mode::Warn {
            let errors = errors.iter().map(ToString::to_string);
            let answer = Answer {
                warnings: errors.chain(warnings).collect(),
                ..Answer::default()
            };
            (answer, Reason::InvalidWarned)
        } else {
            let answer = Answer {
                denied: Some(Denied {
                    code: INVALID,
                    message: message(key, errors),
                }),
                warnings,
                patch: None,
            };
            (answer, Reason::Invalid)
        };
        Verdict {
            answer,
            reason,
            told: None,
        }
    }
}

/// Annotations with meaningless values, only of those that this write sets (FW-21, ADM-6).
fn steering(actor: &Object<'_>, old: Option<&Object<'_>>) -> Vec<Violation> {
    let before = |name: &str| old.and_then(|old| old.annotation(name));
    validate::annotations(|name| {
        let value = actor.annotation(name);
        value.filter(|_| value != before(name))
    })
}

/// All errors, one per line (VAC-1).
fn message(key: &Key, errors: &[Violation]) -> String {
    let plural = if errors.len() == 1 { "" } else { "s" };
    let mut text = format!("AsyncActor {key} has {} error{plural}:", errors.len());
    for error in errors {
        text.push_str("\n  ");
        text.push_str(&error.to_string());
    }
    text
}

/// Turns a conflict into a warning, because the index may be stale (VAC-5).
fn unsure(conflict: &Violation) -> String {
    format!(
        "{conflict} (not denied: the webhook has lost contact with the API server, so this may be out of date)"
    )
}

#[cfg(test)]
mod tests;
