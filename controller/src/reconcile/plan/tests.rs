use asya_shared::api::InventoryEntry;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::decision::{ActivePlan, Plan, StandalonePlan};
use super::finalizers::Finalizers;
use super::plan;
use super::steps::{QueueStep, WorkloadStep, WorkloadUpdate};
use crate::broker::{BrokerError, QueueCheck, ReadyQueue};
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::{Observed, ObservedQueue};
use crate::reconcile::tests::fixtures::{
    actor, deployment, observed, spec, stateful_set, workload,
};

const UPDATE: WorkloadStep = WorkloadStep::Update(WorkloadUpdate {
    previous_owner: None,
    take_over: None,
    hand_off_replicas: false,
    take_over_kubectl_helm_fields: false,
});

mod conditions;
mod fields;
mod once;
mod scaling;

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

/// An actor that is not being deleted and has no children yet.
fn new() -> Observed {
    with_spec(&json!({}))
}

fn with_spec(extra: &Value) -> Observed {
    let mut observed = observed(&actor(&json!({}), &spec(extra), &json!({})));
    observed.queue = ObservedQueue::Checked(QueueCheck::NotFound);
    observed
}

fn active_plan(observed: &Observed) -> ActivePlan {
    plan(observed, now()).active()
}

fn standalone_plan(observed: &Observed) -> StandalonePlan {
    active_plan(observed).standalone()
}

fn adds_finalizer(observed: &Observed) -> bool {
    matches!(active_plan(observed).finalizers, Finalizers::Add(_))
}

fn reason(step: QueueStep) -> (Reason, Requeue) {
    match step {
        QueueStep::Blocked(fault) => (fault.reason, fault.requeue),
        other => panic!("{other:?}"),
    }
}

/// FIN-1
#[test]
fn finalizer_is_added_first_and_only_once_even_for_an_invalid_spec() {
    for valid in [json!({}), json!({"transport": ""})] {
        let none = actor(&json!({"finalizers": []}), &spec(&valid), &json!({}));
        assert!(adds_finalizer(&observed(&none)));
        let foreign = actor(
            &json!({"finalizers": ["other/finalizer"]}),
            &spec(&valid),
            &json!({}),
        );
        assert!(adds_finalizer(&observed(&foreign)));
        let ours = observed(&actor(&json!({}), &spec(&valid), &json!({})));
        assert_eq!(active_plan(&ours).finalizers, Finalizers::Keep);
    }
}

/// QUE-2, QUE-4, QUE-7, QUE-8 (b), QUE-10, QUE-12
#[test]
fn queue_is_created_once_updated_on_drift_and_otherwise_left_alone() {
    let rows = [
        (
            ObservedQueue::Checked(QueueCheck::NotFound),
            "mq",
            QueueStep::Create,
        ),
        (
            ObservedQueue::Checked(QueueCheck::Drifted),
            "mq",
            QueueStep::Update,
        ),
        (
            ObservedQueue::Checked(QueueCheck::Ready(ReadyQueue::default())),
            "mq",
            QueueStep::Keep(Some(ReadyQueue::default())),
        ),
        (
            ObservedQueue::Checked(QueueCheck::Ready(ReadyQueue::default())),
            "fixed",
            QueueStep::Keep(Some(ReadyQueue::default())),
        ),
        (ObservedQueue::Verified, "mq", QueueStep::Keep(None)),
        (
            ObservedQueue::Deferred(Requeue::Backoff),
            "mq",
            QueueStep::Await(Requeue::Backoff),
        ),
        (ObservedQueue::Unmanaged, "mq", QueueStep::Unmanaged),
        (ObservedQueue::NotQueried, "mq", QueueStep::Skip),
    ];
    for (queue, transport, expected) in rows {
        let mut observed = with_spec(&json!({"transport": transport}));
        observed.queue = queue.clone();
        assert_eq!(
            active_plan(&observed).common.queue.unwrap().step,
            expected,
            "{queue:?} on {transport}"
        );
    }
}

/// QUE-5, QUE-6, QUE-7, RMQ-3
#[test]
fn unavailable_queue_reports_a_reason_and_a_requeue() {
    let mismatch = QueueCheck::Mismatch {
        desired: "durable=true".to_owned(),
        found: "durable=false".to_owned(),
    };
    let text = || "text".to_owned();
    let rows = [
        (
            "fixed",
            ObservedQueue::Checked(QueueCheck::NotFound),
            Reason::QueueMissing,
            Requeue::SlowBackoff,
        ),
        (
            "mq",
            ObservedQueue::Checked(mismatch),
            Reason::QueueMismatch,
            Requeue::SlowBackoff,
        ),
        (
            "mq",
            ObservedQueue::Unknown(BrokerError::Unreachable(text())),
            Reason::BrokerUnreachable,
            Requeue::Backoff,
        ),
        (
            "mq",
            ObservedQueue::Unknown(BrokerError::Throttled(text())),
            Reason::BrokerThrottled,
            Requeue::Backoff,
        ),
        (
            "mq",
            ObservedQueue::Unknown(BrokerError::AuthFailed(text())),
            Reason::BrokerAuthFailed,
            Requeue::SlowBackoff,
        ),
        (
            "mq",
            ObservedQueue::Unknown(BrokerError::CredentialsMissing(text())),
            Reason::CredentialsMissing,
            Requeue::SlowBackoff,
        ),
        (
            "mq",
            ObservedQueue::Unknown(BrokerError::ConfigInvalid(text())),
            Reason::QueueConfigInvalid,
            Requeue::AwaitChange,
        ),
    ];
    for (transport, queue, expected, requeue) in rows {
        let mut observed = with_spec(&json!({"transport": transport}));
        observed.queue = queue;
        let queue = active_plan(&observed).common.queue.unwrap();
        assert_eq!(reason(queue.step), (expected, requeue));
    }
}

/// VAL-19, VAL-20
#[test]
fn invalid_actor_keeps_what_it_has_and_is_not_retried() {
    for (invalid, expected) in [
        (json!({"transport": "nowhere"}), Reason::InvalidTransport),
        (json!({"transport": "off"}), Reason::InvalidTransport),
        (
            json!({"workload": {"template": {"spec": {"containers": {}}}}}),
            Reason::ValidationError,
        ),
        (
            json!({"workload": {"replicas": "three", "template": {}}}),
            Reason::ValidationError,
        ),
    ] {
        let mut observed = with_spec(&invalid);
        let fault = observed
            .desired
            .as_ref()
            .err()
            .unwrap_or_else(|| panic!("{invalid} is accepted"));
        assert_eq!(
            (fault.reason, fault.requeue),
            (expected, Requeue::AwaitChange),
            "{invalid}"
        );
        observed.workload = Child::Ours(workload(&deployment(&observed)));
        let plan = active_plan(&observed);
        assert!(plan.common.queue.is_none(), "{invalid}");
        assert_eq!(plan.standalone().workload, WorkloadStep::Keep, "{invalid}");
    }
}

/// The actor after its Deployment was applied, now observed as `object`.
fn recorded(mut observed: Observed, object: &Value) -> Observed {
    let record = workload(object);
    observed.previous.inventory = vec![InventoryEntry {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        name: "a".to_owned(),
        uid: Some("workload-uid".to_owned()),
        hash: observed
            .standalone()
            .map(|standalone| standalone.workload.applied.hash.clone()),
        fingerprint: workload(&deployment(&observed))
            .last_applied
            .fingerprint
            .map(|fingerprint| fingerprint.to_string()),
        ..InventoryEntry::default()
    }];
    observed.workload = Child::Ours(record);
    observed
}

/// WRK-4, WRK-5
#[test]
fn workload_is_applied_exactly_when_something_of_ours_changed() {
    let object = deployment(&new());
    let changed = |pointer: &str, value: Value| {
        let mut object = object.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    let rows = [
        ("unchanged", object.clone(), WorkloadStep::Keep),
        (
            "status and revision",
            changed("/status/readyReplicas", json!(0)),
            WorkloadStep::Keep,
        ),
        (
            "another hash",
            changed(
                "/metadata/annotations",
                json!({"asya.sh/applied-hash": "old"}),
            ),
            UPDATE,
        ),
        (
            "hash removed",
            changed("/metadata/annotations", json!({})),
            UPDATE,
        ),
        (
            "another object",
            changed("/metadata/uid", json!("other")),
            UPDATE,
        ),
        (
            "field taken",
            changed("/metadata/managedFields/0/fieldsV1", json!({"f:spec": {}})),
            UPDATE,
        ),
        (
            "ownership cleared",
            changed("/metadata/managedFields", json!([])),
            UPDATE,
        ),
    ];
    for (case, object, expected) in rows {
        assert_eq!(
            standalone_plan(&recorded(new(), &object)).workload,
            expected,
            "{case}"
        );
    }
    let mut deleting = object;
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        standalone_plan(&recorded(new(), &deleting)).workload,
        WorkloadStep::Keep,
        "its deletion triggers a reconcile"
    );
}

#[test]
fn changed_spec_changes_the_workload() {
    let previous = recorded(new(), &deployment(&new()));
    let mut after = with_spec(&json!({"timeout": {"processing": 5}}));
    after.previous = previous.previous.clone();
    after.workload = previous.workload.clone();
    assert_eq!(standalone_plan(&after).workload, UPDATE);
}

/// SA-3
#[test]
fn foreign_workload_is_left_alone_and_reported() {
    let mut observed = new();
    let mut object = deployment(&observed);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "x", "controller": true}]);
    observed.workload = Child::Foreign(workload(&object));
    let WorkloadStep::Blocked(fault) = standalone_plan(&observed).workload else {
        panic!()
    };
    assert_eq!(
        (fault.reason, fault.requeue),
        (Reason::NotOwned, Requeue::SlowBackoff)
    );
    assert!(
        fault.message.contains("ns/a") && fault.message.contains("Other o"),
        "{}",
        fault.message
    );
}

/// API-3
#[test]
fn paused_actor_is_not_touched_until_it_is_deleted() {
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    assert!(matches!(
        plan(
            &observed(&actor(&paused, &spec(&json!({})), &json!({}))),
            now()
        ),
        Plan::Paused(_)
    ));
    let deleting = json!({"annotations": {"asya.sh/paused": "true"}, "deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert!(matches!(
        plan(
            &observed(&actor(&deleting, &spec(&json!({})), &json!({}))),
            now()
        ),
        Plan::Delete(_)
    ));
}

/// WRK-6
#[test]
fn workload_of_the_previous_kind_is_deleted_after_the_desired_one_exists() {
    let mut observed = with_spec(
        &json!({"workload": {"kind": "StatefulSet", "template": spec(&json!({}))["workload"]["template"]}}),
    );
    observed.previous_workload = Some(workload(&deployment(&observed)));
    let plan = standalone_plan(&observed);
    assert_eq!(plan.workload, WorkloadStep::Create);
    assert_eq!(plan.previous_workload, observed.previous_workload);
    let mut deleting = deployment(&observed);
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    observed.previous_workload = Some(workload(&deleting));
    assert_eq!(
        standalone_plan(&observed).previous_workload,
        None,
        "it is already being deleted"
    );
}

/// WRK-6, VAL-19
#[test]
fn workload_of_the_previous_kind_is_kept_while_the_spec_is_invalid() {
    let mut observed = with_spec(&json!({"transport": "nowhere"}));
    observed.previous_workload = Some(stateful_set(&deployment(&new())));
    assert_eq!(standalone_plan(&observed).previous_workload, None);
}

/// VAL-11: a change while the webhook was down.
#[test]
fn workload_and_queue_stay_if_the_name_is_illegal_for_what_the_spec_now_asks_for() {
    let refused = |name: &str, change: &Value, recorded: &[&str]| {
        let entry = |kind: &&str| json!({"group": "apps", "kind": kind, "name": name});
        let status = json!({
            "inventory": recorded.iter().map(entry).collect::<Vec<_>>(),
            "queue": {"transport": "mq", "name": "q"},
        });
        let mut spec = spec(&json!({}));
        spec["workload"]["kind"] = change["kind"].clone();
        spec["transport"] = change["transport"].clone();
        let observed = observed(&actor(&json!({"name": name}), &spec, &status));
        matches!(&observed.desired, Err(fault) if fault.reason == Reason::ValidationError)
    };
    let long = "a".repeat(53);
    let stateful_set = json!({"kind": "StatefulSet", "transport": "mq"});
    assert!(refused(&long, &stateful_set, &["Deployment"]));
    assert!(!refused(&long, &stateful_set, &["StatefulSet"]));
    assert!(!refused(
        &long,
        &stateful_set,
        &["Deployment", "StatefulSet"]
    ));
    let deployment = json!({"kind": "Deployment", "transport": "mq"});
    assert!(!refused(&long, &deployment, &["StatefulSet"]));
    let sqs = json!({"kind": "Deployment", "transport": "aws"});
    assert!(refused("a.b", &sqs, &["Deployment"]));
    assert!(!refused("a-b", &sqs, &["Deployment"]));
}

/// VAL-11, VAL-19, FW-30
#[test]
fn name_is_validated_until_something_is_created_under_it() {
    let long = "a".repeat(64);
    let invalid = |status: &Value| {
        let observed = observed(&actor(&json!({"name": long}), &spec(&json!({})), status));
        matches!(&observed.desired, Err(fault) if fault.reason == Reason::ValidationError)
    };
    let rejected = json!({"mode": "Standalone", "status": "WorkloadError", "conditions": [{
        "type": "WorkloadReady", "status": "False", "reason": "ValidationError", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    assert!(invalid(&json!({})), "new");
    assert!(invalid(&rejected), "rejected before");
    for status in [
        json!({"queue": {"transport": "mq", "name": "asya-a"}}),
        json!({"inventory": [{"group": "apps", "kind": "Deployment", "name": "a"}]}),
        json!({"conditions": [{
            "type": "WorkloadReady", "status": "True", "reason": "PodsHealthy", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}),
        // Status of the Go operator, which recorded neither.
        json!({"status": "Running", "replicas": 1}),
    ] {
        assert!(!invalid(&status), "{status}");
    }
}
