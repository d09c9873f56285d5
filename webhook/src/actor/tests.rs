mod conflicts;
mod targets;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Actors, Mode};
use crate::facts::Known;
use crate::index::{Contact, Index};
use crate::outcome::{Reason, Verdict};
use crate::review::Request;
use crate::testing::{actor, binding, platform, show};

/// The judge of a test and its surroundings.
pub(super) struct World {
    pub(super) judge: Actors,
}

impl World {
    pub(super) fn new(mode: Mode) -> Self {
        let contact = Contact::default();
        contact.heard();
        Self {
            judge: Actors {
                mode,
                namespace: "asya-system".to_owned(),
                index: Arc::new(Index::new(platform())),
                contact,
                facts: Known::default(),
            },
        }
    }

    /// Adds another actor to the index.
    pub(super) fn knows(&self, actor: &Value) {
        show(&self.judge.index, actor);
    }

    pub(super) fn create(&self, actor: &Value) -> Verdict {
        self.ask("CREATE", actor, &Value::Null)
    }

    pub(super) fn update(&self, old: &Value, new: &Value) -> Verdict {
        self.ask("UPDATE", new, old)
    }

    fn ask(&self, operation: &str, object: &Value, old: &Value) -> Verdict {
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
        self.judge.judge(&Request::read(body.as_bytes()).unwrap())
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

/// The text of a denial.
pub(super) fn refusal(verdict: &Verdict) -> &str {
    let denied = verdict.answer.denied.as_ref().expect("refused");
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
    let world = World::new(Mode::Enforce);
    let verdict = world.create(&actor("models", "phi3", &bad_spec()));
    assert_eq!(verdict.reason, Reason::Invalid);
    assert_eq!(
        refusal(&verdict),
        "AsyncActor models/phi3 has 3 errors:\n  \
         spec.scaling.minReplicas: minReplicas must not exceed maxReplicas\n  \
         spec.transport: must name a configured transport\n  \
         spec.workload.template.spec.containers[0].command: command is set by the operator; use args or ASYA_HANDLER"
    );
    let verdict = world.create(&actor("models", "phi3", &standalone("")));
    assert!(refusal(&verdict).starts_with("AsyncActor models/phi3 has 1 error:\n"));
}

/// VAC-7
#[test]
fn no_answer_changes_an_actor() {
    for mode in [Mode::Enforce, Mode::Warn, Mode::Off] {
        let world = World::new(mode);
        let bare = json!({"transport": "other", "workloadRef": binding("Deployment", "phi")["workloadRef"]});
        for spec in [bare, bad_spec(), json!({})] {
            let verdict = world.create(&actor("ns", "a", &spec));
            assert_eq!(verdict.answer.patch, None, "{mode:?} {spec}");
        }
    }
}

/// VAC-1, VAC-2
#[test]
fn value_out_of_range_is_named_by_its_path() {
    let world = World::new(Mode::Enforce);
    let mut spec = standalone("mq");
    spec["timeout"] = json!({"processing": 99_999_999_999_u64});
    let verdict = world.create(&actor("models", "phi3", &spec));
    assert!(refusal(&verdict).contains("spec.timeout.processing: cannot be read"));
}

#[test]
fn valid_actor_is_allowed_without_warnings() {
    let world = World::new(Mode::Enforce);
    let verdict = world.create(&actor("models", "phi3", &standalone("mq")));
    assert_eq!(verdict.reason, Reason::Valid);
    assert_eq!(verdict.answer.warnings, [""; 0]);
    assert_eq!(verdict.answer.patch, None);
}

/// VAC-3
#[test]
fn modes_deny_warn_or_skip_validation() {
    let bad = actor("models", "phi3", &bad_spec());
    let warned = World::new(Mode::Warn).create(&bad);
    assert_eq!(warned.reason, Reason::InvalidWarned);
    assert_eq!(warned.answer.denied, None);
    assert_eq!(
        warned.answer.warnings[..2],
        [
            "spec.scaling.minReplicas: minReplicas must not exceed maxReplicas",
            "spec.transport: must name a configured transport",
        ]
    );
    let ignored = World::new(Mode::Off).create(&bad);
    assert_eq!(ignored.reason, Reason::Off);
    assert_eq!(
        (ignored.answer.denied, ignored.answer.warnings.len()),
        (None, 0)
    );
}

/// ADM-5
#[test]
fn an_actor_that_is_being_deleted_is_allowed_whatever_its_spec() {
    let world = World::new(Mode::Enforce);
    for spec in [bad_spec(), json!("no object"), json!(7)] {
        let old = actor("models", "phi3", &json!({}));
        let mut new = actor("models", "phi3", &spec);
        new["metadata"]["deletionTimestamp"] = json!("2026-05-04T11:00:00Z");
        let verdict = world.update(&old, &new);
        assert_eq!(verdict.reason, Reason::Deleting);
        assert_eq!(verdict.answer.denied, None);
    }
}

/// ADM-6
#[test]
fn a_spec_that_does_not_change_is_not_judged() {
    let world = World::new(Mode::Enforce);
    let old = actor("models", "phi3", &bad_spec());
    let mut paused = old.clone();
    paused["metadata"]["annotations"] = json!({"asya.sh/paused": "true"});
    assert_eq!(world.update(&old, &paused).reason, Reason::Unchanged);
    // A different spelling of the same spec.
    let mut spelled = old.clone();
    spelled["spec"]["timeout"] = Value::Null;
    assert_eq!(world.update(&old, &spelled).reason, Reason::Unchanged);
}

/// ADM-6
#[test]
fn a_spec_that_changes_is_judged_as_a_whole() {
    let world = World::new(Mode::Enforce);
    let old = actor("models", "phi3", &bad_spec());
    let mut new = old.clone();
    new["spec"]["transport"] = json!("mq");
    let text = world.update(&old, &new);
    assert!(refusal(&text).contains("2 errors"), "{text:?}");
}

/// FW-21, ADM-6, VAC-8
#[test]
fn unknown_value_of_an_annotation_is_refused_when_it_is_set() {
    let annotated = |value: &str, spec: &Value| {
        let mut actor = actor("models", "phi3", spec);
        actor["metadata"]["annotations"] = json!({"asya.sh/reconcile": value, "note": value});
        actor
    };
    let spec = standalone("mq");
    let mut other = spec.clone();
    other["timeout"] = json!({"processing": 5});
    let (bad, good) = (annotated("paused", &spec), annotated("Paused", &spec));
    let world = World::new(Mode::Enforce);
    for verdict in [world.create(&bad), world.update(&good, &bad)] {
        let text = refusal(&verdict);
        assert!(
            text.contains("asya.sh/reconcile]: unknown value \"paused\""),
            "{text}"
        );
    }
    for (old, new, reason) in [
        (&bad, &bad, Reason::Unchanged),
        (&bad, &good, Reason::Unchanged),
        (&bad, &annotated("paused", &other), Reason::Valid),
    ] {
        assert_eq!(world.update(old, new).reason, reason, "{new}");
    }
    let mut goes = bad.clone();
    goes["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.update(&good, &goes).reason, Reason::Deleting);
}

/// ADM-6: a rule for new names does not block existing actors.
#[test]
fn rules_for_new_actors_do_not_apply_to_existing_ones() {
    let world = World::new(Mode::Enforce);
    let name = "a.b";
    let (old, mut new) = (standalone("mq"), standalone("mq"));
    new["timeout"] = json!({"processing": 5});
    let verdict = world.create(&actor("models", name, &new));
    assert!(refusal(&verdict).contains("metadata.name"));
    let verdict = world.update(&actor("models", name, &old), &actor("models", name, &new));
    assert_eq!(verdict.reason, Reason::Valid);
}

/// BIND-13, BIND-14
#[test]
fn immutable_fields_are_compared_with_the_old_spec() {
    let world = World::new(Mode::Enforce);
    let bound = |spec: &Value| actor("models", "phi3", spec);
    let old = bound(&binding("Deployment", "a"));
    let verdict = world.update(&old, &bound(&binding("Deployment", "b")));
    assert!(refusal(&verdict).contains("cannot change to another target"));
    let verdict = world.update(&old, &bound(&standalone("other")));
    assert!(refusal(&verdict).contains("cannot switch between workload and workloadRef"));
}

/// ADM-3
#[test]
fn other_kinds_and_operations_are_allowed_with_a_warning() {
    let world = World::new(Mode::Enforce);
    let bad = actor("models", "phi3", &bad_spec());
    let verdict = world.ask("DELETE", &Value::Null, &bad);
    assert_eq!(verdict.reason, Reason::NotServed);
    assert_eq!(
        verdict.answer.warnings,
        ["asya-webhook: DELETE asyncactors.asya.sh is not served on this path"]
    );
    let odd = json!({"metadata": {"namespace": "models", "name": 7}});
    let verdict = world.ask("CREATE", &odd, &Value::Null);
    assert_eq!(verdict.reason, Reason::Unreadable);
    assert_eq!(
        (verdict.answer.denied, verdict.answer.warnings.len()),
        (None, 1)
    );
}
