//! Validation of `AsyncActor`s (VAC-1 to VAC-7, ADM-5, ADM-6).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use asya_shared::api::AsyncActorSpec;
use asya_shared::key::Key;
use asya_shared::names::{GROUP, annotation};
use asya_shared::review::check_spec;
use asya_shared::validate::{self, Recorded, Subject, Violation, Write};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::facts::SharedFacts;
use crate::index::{Index, LastResponse};
use crate::outcome::{ReviewOutcome, ReviewReason};
use crate::review::{AdmissionRequest, AdmissionResponse, Denied, Served};

const SERVED: Served = Served {
    group: GROUP,
    version: "v1alpha1",
    kind: "AsyncActor",
    resource: "asyncactors",
    operations: &["CREATE", "UPDATE"],
};

/// HTTP status of a denial because of violations.
const INVALID: u16 = 422;

/// How violations are handled (VAC-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum ValidationMode {
    /// Denies the write.
    #[default]
    Enforce,
    /// Allows the write, and returns each error as a warning.
    Warn,
    /// Validates nothing.
    Off,
}

/// Validates actors.
pub struct ActorReviewer {
    /// How violations are handled.
    pub mode: ValidationMode,
    /// The operator's own namespace.
    pub namespace: String,
    pub index: Arc<Index>,
    /// Tells whether the index may be stale.
    pub last_response: LastResponse,
    pub facts: SharedFacts,
}

/// The fields of an actor that are read.
#[derive(Deserialize)]
struct ReviewedActor<'a> {
    #[serde(borrow)]
    metadata: ActorMetadata<'a>,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActorMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
}

impl<'a> ReviewedActor<'a> {
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

impl ActorReviewer {
    pub fn review(&self, request: &AdmissionRequest<'_>) -> ReviewOutcome {
        if !request.is_for(&SERVED) {
            return ReviewOutcome::not_served(request);
        }
        if self.mode == ValidationMode::Off {
            return ReviewOutcome::allowed(ReviewReason::Off);
        }
        let Some(actor) = ReviewedActor::read(request.object) else {
            return ReviewOutcome {
                response: AdmissionResponse::warned(
                    "asya-webhook: cannot decode the actor; asya-controller validates it",
                ),
                reason: ReviewReason::Unreadable,
                event: None,
            };
        };
        // Never block the removal of the finalizer.
        if actor.metadata.deletion_timestamp.is_some() {
            return ReviewOutcome::allowed(ReviewReason::Deleting);
        }
        let old = ReviewedActor::read(request.old_object).filter(|_| request.operation == "UPDATE");
        let mut errors = annotation_violations(&actor, old.as_ref());
        let key = Key::new(&request.namespace, &actor.metadata.name);
        if old.as_ref().is_some_and(|old| old.spec() == actor.spec()) {
            return self.unchanged_outcome(&key, &errors);
        }
        let old_size = old.as_ref().map(|old| old.spec().len());
        errors.extend(validate::spec_size(actor.spec().len(), old_size));
        let spec = match validate::decode(actor.spec()) {
            Ok(spec) => spec,
            Err(violation) => {
                errors.push(violation);
                return self.outcome(&key, &errors, Vec::new());
            }
        };
        // An old spec that cannot be decoded was never validated, so do not enforce its immutable fields.
        let old = old.and_then(|old| validate::decode(old.spec()).ok());
        if old.as_ref() == Some(&spec) {
            return self.unchanged_outcome(&key, &errors);
        }
        let write = match (&*request.operation, &old) {
            ("CREATE", _) => Write::Create,
            (_, Some(old)) => Write::Update { old },
            (_, None) => Write::Stored(Recorded::default()),
        };
        let subject = Subject {
            name: &key.name,
            namespace: &key.namespace,
            spec: &spec,
            role_arn: actor.annotation(annotation::ROLE_ARN),
            write,
            transports: &self.index.installation.transports,
            privileged_sidecars: self.index.installation.settings.privileged_sidecars,
        };
        let taken = self.taken_names(&key, &spec, old.as_ref());
        self.checked_outcome(&key, &subject, errors, taken)
    }

    /// The outcome for a new or changed spec. `errors` were found before; `taken` are conflicts with other actors,
    /// which become warnings while the index may be stale.
    fn checked_outcome(
        &self,
        key: &Key,
        subject: &Subject<'_>,
        mut errors: Vec<Violation>,
        taken: Vec<Violation>,
    ) -> ReviewOutcome {
        let findings = check_spec(subject, &self.namespace, &self.facts.latest());
        errors.extend(findings.errors);
        let mut warnings: Vec<String> = findings.warnings.iter().map(ToString::to_string).collect();
        if self.last_response.is_stale() {
            warnings.extend(taken.iter().map(as_stale_warning));
        } else {
            errors.extend(taken);
        }
        errors.sort();
        warnings.sort();
        self.outcome(key, &errors, warnings)
    }

    /// Conflicts with actors that already have the queue name or target that this write requests (ADM-6).
    fn taken_names(
        &self,
        key: &Key,
        spec: &AsyncActorSpec,
        old: Option<&AsyncActorSpec>,
    ) -> Vec<Violation> {
        let changed = |differs: fn(&AsyncActorSpec, &AsyncActorSpec) -> bool| {
            old.is_none_or(|old| differs(old, spec))
        };
        let queue = changed(|old, new| old.transport != new.transport)
            .then(|| self.index.taken_queue_name(key, &spec.transport))
            .flatten()
            .map(|(owner, queue)| validate::queue_in_use(&queue, &owner.namespace, &owner.name));
        let target = spec
            .workload_ref
            .as_ref()
            .filter(|_| changed(|old, new| old.workload_ref != new.workload_ref))
            .and_then(|target| Some((target, self.index.other_binding(key, target)?)))
            .map(|(target, owner)| {
                validate::target_already_bound(target, &owner.namespace, &owner.name)
            });
        queue.into_iter().chain(target).collect()
    }

    /// The outcome for an unchanged spec, which is not validated again.
    fn unchanged_outcome(&self, key: &Key, errors: &[Violation]) -> ReviewOutcome {
        if errors.is_empty() {
            return ReviewOutcome::allowed(ReviewReason::Unchanged);
        }
        self.outcome(key, errors, Vec::new())
    }

    fn outcome(&self, key: &Key, errors: &[Violation], warnings: Vec<String>) -> ReviewOutcome {
        if errors.is_empty() {
            return ReviewOutcome {
                response: AdmissionResponse {
                    warnings,
                    ..AdmissionResponse::default()
                },
                reason: ReviewReason::Valid,
                event: None,
            };
        }
        let (response, reason) = if self.mode == ValidationMode::Warn {
            let errors = errors.iter().map(ToString::to_string);
            let response = AdmissionResponse {
                warnings: errors.chain(warnings).collect(),
                ..AdmissionResponse::default()
            };
            (response, ReviewReason::InvalidWarned)
        } else {
            let response = AdmissionResponse {
                denied: Some(Denied {
                    code: INVALID,
                    message: denial_message(key, errors),
                }),
                warnings,
                patch: None,
            };
            (response, ReviewReason::Invalid)
        };
        ReviewOutcome {
            response,
            reason,
            event: None,
        }
    }
}

/// Annotations that this write sets to unknown values (FW-21, ADM-6).
fn annotation_violations(
    actor: &ReviewedActor<'_>,
    old: Option<&ReviewedActor<'_>>,
) -> Vec<Violation> {
    let old_value = |name: &str| old.and_then(|old| old.annotation(name));
    validate::annotations(|name| {
        let value = actor.annotation(name);
        value.filter(|_| value != old_value(name))
    })
}

/// All errors, one per line (VAC-1).
fn denial_message(key: &Key, errors: &[Violation]) -> String {
    let plural = if errors.len() == 1 { "" } else { "s" };
    let mut text = format!("AsyncActor {key} has {} error{plural}:", errors.len());
    for error in errors {
        text.push_str("\n  ");
        text.push_str(&error.to_string());
    }
    text
}

/// Turns a violation into a warning, because the index may be stale (VAC-5).
fn as_stale_warning(violation: &Violation) -> String {
    format!(
        "{violation} (not denied: the webhook has lost contact with the API server, so this may be out of date)"
    )
}

#[cfg(test)]
mod tests;
