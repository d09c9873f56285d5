mod conflicts;
mod targets;

use std::sync::Arc;

use asya_shared::validate::MAX_SPEC_BYTES;
use serde_json::{Value, json};

use super::{ActorReviewer, ValidationMode};
use crate::facts::SharedFacts;
use crate::index::{Index, LastResponse};
use crate::outcome::{ReviewOutcome, ReviewReason};
use crate::review::AdmissionRequest;
use crate::testing::{actor, binding, index_actor, installation};

/// A reviewer with its index.
pub(super) struct Fixture {
    pub(super) reviewer: ActorReviewer,
}

impl Fixture {
    pub(super) fn new(mode: ValidationMode) -> Self {
        let last_response = LastResponse::default();
        last_response.record_response();
        Self {
            reviewer: ActorReviewer {
                mode,
                namespace: "asya-system".to_owned(),
                index: Arc::new(Index::new(installation())),
                last_response,
                facts: SharedFacts::default(),
            },
        }
    }

    pub(super) fn add_actor(&self, actor: &Value) {
        index_actor(&self.reviewer.index, actor);
    }

    pub(super) fn create(&self, actor: &Value) -> ReviewOutcome {
        self.review("CREATE", actor, &Value::Null)
    }

    pub(super) fn update(&self, old: &Value, new: &Value) -> ReviewOutcome {
        self.review("UPDATE", new, old)
    }

    fn review(&self, operation: &str, object: &Value, old: &Value) -> ReviewOutcome {
        let request = json!({
            "uid": "u",
            "kind": {"group": "asya.sh", "version": "v1alpha1", "kind": "AsyncActor"},
            "resource": {"group": "asya.sh", "version": "v1alpha1", "resource": "asyncactors"},
            "namespace": if object.is_null() { old } else { object }["metadata"]["namespace"],
            "operation": operation,
            "object": object,
            "oldObject": old,
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
        });
        let body = review.to_string();
        self.reviewer
            .review(&AdmissionRequest::read(body.as_bytes()).unwrap())
    }
}

pub(super) fn workload() -> Value {
    let env = json!([{"name": "ASYA_HANDLER", "value": "m.f"}]);
    json!({"template": {"spec": {"containers": [
        {"name": "asya-runtime", "image": "i", "env": env},
    ]}}})
}

pub(super) fn standalone(transport: &str) -> Value {
    json!({"transport": transport, "workload": workload()})
}

pub(super) fn denial(outcome: &ReviewOutcome) -> &str {
    let denied = outcome.response.denied.as_ref().expect("denied");
    assert_eq!(denied.code, 422);
    &denied.message
}

fn bad_spec() -> Value {
    let mut spec = standalone("");
    spec["scaling"] = json!({"enabled": true, "minReplicas": 5, "maxReplicas": 1});
    spec["workload"]["template"]["spec"]["containers"][0]["command"] = json!(["sh"]);
    spec
}

/// VAC-1
#[test]
fn all_errors_are_in_one_response_sorted_by_path() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let outcome = fixture.create(&actor("models", "phi3", &bad_spec()));
    assert_eq!(outcome.reason, ReviewReason::Invalid);
    assert_eq!(
        denial(&outcome),
        "AsyncActor models/phi3 has 3 errors:\n  \
         spec.scaling.minReplicas: minReplicas must not exceed maxReplicas\n  \
         spec.transport: must name a configured transport\n  \
         spec.workload.template.spec.containers[0].command: command is set by the operator; use args or ASYA_HANDLER"
    );
    let outcome = fixture.create(&actor("models", "phi3", &standalone("")));
    assert!(denial(&outcome).starts_with("AsyncActor models/phi3 has 1 error:\n"));
}

/// VAC-7
#[test]
fn response_never_patches_an_actor() {
    for mode in [
        ValidationMode::Enforce,
        ValidationMode::Warn,
        ValidationMode::Off,
    ] {
        let fixture = Fixture::new(mode);
        let minimal = json!({"transport": "other", "workloadRef": binding("Deployment", "phi")["workloadRef"]});
        for spec in [minimal, bad_spec(), json!({})] {
            let outcome = fixture.create(&actor("ns", "a", &spec));
            assert_eq!(outcome.response.patch, None, "{mode:?} {spec}");
        }
    }
}

/// VAC-1, VAC-2
#[test]
fn value_out_of_range_is_reported_with_its_path() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let mut spec = standalone("mq");
    spec["timeout"] = json!({"processing": 99_999_999_999_u64});
    let outcome = fixture.create(&actor("models", "phi3", &spec));
    assert!(denial(&outcome).contains("spec.timeout.processing: cannot be read"));
}

#[test]
fn valid_actor_is_allowed_without_warnings() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let outcome = fixture.create(&actor("models", "phi3", &standalone("mq")));
    assert_eq!(outcome.reason, ReviewReason::Valid);
    assert_eq!(outcome.response.warnings, [""; 0]);
    assert_eq!(outcome.response.patch, None);
}

/// VAC-3
#[test]
fn modes_deny_warn_or_skip_validation() {
    let invalid = actor("models", "phi3", &bad_spec());
    let warned = Fixture::new(ValidationMode::Warn).create(&invalid);
    assert_eq!(warned.reason, ReviewReason::InvalidWarned);
    assert_eq!(warned.response.denied, None);
    assert_eq!(
        warned.response.warnings[..2],
        [
            "spec.scaling.minReplicas: minReplicas must not exceed maxReplicas",
            "spec.transport: must name a configured transport",
        ]
    );
    let skipped = Fixture::new(ValidationMode::Off).create(&invalid);
    assert_eq!(skipped.reason, ReviewReason::Off);
    assert_eq!(
        (skipped.response.denied, skipped.response.warnings.len()),
        (None, 0)
    );
}

/// ADM-5
#[test]
fn actor_being_deleted_is_allowed_with_any_spec() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    for spec in [bad_spec(), json!("no object"), json!(7)] {
        let old = actor("models", "phi3", &json!({}));
        let mut new = actor("models", "phi3", &spec);
        new["metadata"]["deletionTimestamp"] = json!("2026-05-04T11:00:00Z");
        let outcome = fixture.update(&old, &new);
        assert_eq!(outcome.reason, ReviewReason::Deleting);
        assert_eq!(outcome.response.denied, None);
    }
}

/// ADM-6
#[test]
fn unchanged_spec_is_not_validated() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let old = actor("models", "phi3", &bad_spec());
    let mut paused = old.clone();
    paused["metadata"]["annotations"] = json!({"asya.sh/paused": "true"});
    assert_eq!(
        fixture.update(&old, &paused).reason,
        ReviewReason::Unchanged
    );
    // A different spelling of the same spec.
    let mut reformatted = old.clone();
    reformatted["spec"]["timeout"] = Value::Null;
    assert_eq!(
        fixture.update(&old, &reformatted).reason,
        ReviewReason::Unchanged
    );
}

/// ADM-6
#[test]
fn changed_spec_is_validated_as_a_whole() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let old = actor("models", "phi3", &bad_spec());
    let mut new = old.clone();
    new["spec"]["transport"] = json!("mq");
    let outcome = fixture.update(&old, &new);
    assert!(denial(&outcome).contains("2 errors"), "{outcome:?}");
}

/// FW-21, ADM-6, VAC-8
#[test]
fn unknown_annotation_value_is_denied_when_it_is_set() {
    let annotated = |value: &str, spec: &Value| {
        let mut actor = actor("models", "phi3", spec);
        actor["metadata"]["annotations"] = json!({"asya.sh/reconcile": value, "note": value});
        actor
    };
    let spec = standalone("mq");
    let mut other = spec.clone();
    other["timeout"] = json!({"processing": 5});
    let (invalid, valid) = (annotated("paused", &spec), annotated("Paused", &spec));
    let fixture = Fixture::new(ValidationMode::Enforce);
    for outcome in [fixture.create(&invalid), fixture.update(&valid, &invalid)] {
        let text = denial(&outcome);
        assert!(
            text.contains("asya.sh/reconcile]: unknown value \"paused\""),
            "{text}"
        );
    }
    for (old, new, reason) in [
        (&invalid, &invalid, ReviewReason::Unchanged),
        (&invalid, &valid, ReviewReason::Unchanged),
        (&invalid, &annotated("paused", &other), ReviewReason::Valid),
    ] {
        assert_eq!(fixture.update(old, new).reason, reason, "{new}");
    }
    let mut deleting = invalid.clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        fixture.update(&valid, &deleting).reason,
        ReviewReason::Deleting
    );
}

/// VAL-22, ADM-6
#[test]
fn large_spec_is_denied_unless_it_was_large_before_and_does_not_grow() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let sized = |bytes: usize| {
        let mut spec = standalone("mq");
        spec["workload"]["template"]["metadata"] =
            json!({"annotations": {"large": "x".repeat(bytes)}});
        actor("models", "phi3", &spec)
    };
    let (small, large) = (sized(1), sized(MAX_SPEC_BYTES));
    for outcome in [
        fixture.create(&large),
        fixture.update(&small, &large),
        fixture.update(&large, &sized(MAX_SPEC_BYTES + 1)),
    ] {
        let text = denial(&outcome);
        assert!(text.contains("spec: has 262"), "{text}");
        assert!(text.contains("; move large values"), "{text}");
    }
    let mut changed = large.clone();
    changed["spec"]["workload"]["template"]["spec"]["containers"][0]["image"] = json!("j");
    let smaller = sized(MAX_SPEC_BYTES - 1);
    for (old, new) in [(&large, &changed), (&large, &smaller), (&large, &small)] {
        assert_eq!(fixture.update(old, new).response.denied, None);
    }
}

/// ADM-6: a rule for new names does not block existing actors.
#[test]
fn rules_for_new_actors_do_not_apply_to_existing_ones() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let name = "a.b";
    let (old, mut new) = (standalone("mq"), standalone("mq"));
    new["timeout"] = json!({"processing": 5});
    let outcome = fixture.create(&actor("models", name, &new));
    assert!(denial(&outcome).contains("metadata.name"));
    let outcome = fixture.update(&actor("models", name, &old), &actor("models", name, &new));
    assert_eq!(outcome.reason, ReviewReason::Valid);
}

/// ADM-6, VAL-11
#[test]
fn rule_for_names_applies_to_a_change_of_what_they_name() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let named = |spec: &Value| actor("models", &"a".repeat(60), spec);
    let (old, mut new) = (standalone("mq"), standalone("mq"));
    new["workload"]["kind"] = json!("StatefulSet");
    let outcome = fixture.update(&named(&old), &named(&new));
    assert!(denial(&outcome).contains("spec.workload.kind: the actor's name is too long"));
}

/// BIND-13, BIND-14
#[test]
fn immutable_fields_are_compared_with_the_old_spec() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let bound = |spec: &Value| actor("models", "phi3", spec);
    let old = bound(&binding("Deployment", "a"));
    let outcome = fixture.update(&old, &bound(&binding("Deployment", "b")));
    assert!(denial(&outcome).contains("cannot change to another target"));
    let outcome = fixture.update(&old, &bound(&standalone("other")));
    assert!(denial(&outcome).contains("cannot switch between workload and workloadRef"));
}

/// ADM-3
#[test]
fn other_kinds_and_operations_are_allowed_with_a_warning() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let invalid = actor("models", "phi3", &bad_spec());
    let outcome = fixture.review("DELETE", &Value::Null, &invalid);
    assert_eq!(outcome.reason, ReviewReason::NotServed);
    assert_eq!(
        outcome.response.warnings,
        ["asya-webhook: DELETE asyncactors.asya.sh is not served on this path"]
    );
    let undecodable = json!({"metadata": {"namespace": "models", "name": 7}});
    let outcome = fixture.review("CREATE", &undecodable, &Value::Null);
    assert_eq!(outcome.reason, ReviewReason::Unreadable);
    assert_eq!(
        (outcome.response.denied, outcome.response.warnings.len()),
        (None, 1)
    );
}
