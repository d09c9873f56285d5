mod applied_generation;
mod drain;
mod ending;
mod once;
mod paused;
mod scaling;
mod write_delay;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, State};
use asya_shared::resolve::GroupKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use serde_json::json;

use super::build;
use super::common::Report;
use crate::fault::Error;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::apply::inventory_entry;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{
    ActiveOutcome, CommonOutcome, Outcome, QueueState, StandaloneOutcome,
};
use crate::reconcile::retries::outcome_of_error;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, pod, spec, workload};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn active_actor() -> Observed {
    observed(&actor(&json!({}), &spec(&json!({})), &json!({})))
}

/// Outcome of a reconcile that found or created everything.
fn running(observed: &Observed) -> StandaloneOutcome {
    let workload_record = workload(&deployment(observed));
    let hash = observed
        .standalone()
        .map(|it| it.workload.applied.hash.clone());
    let entry = inventory_entry(
        GroupKind {
            group: "apps",
            kind: "Deployment",
        },
        &workload_record.metadata,
        &workload_record.last_applied,
        &hash.unwrap_or_default(),
    );
    StandaloneOutcome {
        common: CommonOutcome {
            applied: vec![entry],
            ..with_ready_queue()
        },
        workload: Some(workload_record),
        ..StandaloneOutcome::default()
    }
}

fn with_ready_queue() -> CommonOutcome {
    CommonOutcome {
        queue: QueueState::Ready(None),
        ..CommonOutcome::default()
    }
}

fn report(observed: &Observed, outcome: impl Into<ActiveOutcome>) -> Report {
    build(
        observed,
        &Outcome::Active(outcome.into()),
        at("2026-01-01T00:01:00Z"),
    )
    .unwrap()
}

fn condition<'a>(status: &'a AsyncActorStatus, kind: &str) -> (&'a str, &'a str, &'a str) {
    let condition = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)
        .unwrap();
    (&condition.status, &condition.reason, &condition.message)
}

/// STA-8, STA-10, API-8
#[test]
fn running_actor_shows_counts_summaries_and_three_true_conditions() {
    let Report {
        status, requeue, ..
    } = report(&active_actor(), running(&active_actor()));
    assert_eq!(
        (status.status, requeue),
        (Some(State::Running), Requeue::AwaitChange)
    );
    assert_eq!(
        condition(&status, "TransportReady"),
        ("True", "QueueReady", "queue asya-a is ready")
    );
    assert_eq!(condition(&status, "WorkloadReady").0, "True");
    assert_eq!(condition(&status, "Ready").0, "True");
    let json_status = serde_json::to_value(&status).unwrap();
    for (field, expected) in [
        ("readySummary", json!("2/2")),
        ("replicas", json!(1)),
        ("replicasSummary", json!("1/1")),
        ("readyReplicasSummary", json!("1/1")),
        ("scalingMode", json!("Manual")),
        ("transportStatus", json!("Ready")),
        ("mode", json!("Standalone")),
        ("lastScaleFormatted", json!("-")),
        ("observedGeneration", json!(2)),
        (
            "selector",
            json!("app=a,asya.sh/asya=a,asya.sh/workload=deployment"),
        ),
    ] {
        assert_eq!(json_status[field], expected, "{field}");
    }
}

/// STA-7
#[test]
fn transition_time_changes_only_with_the_status() {
    let mut observed = active_actor();
    observed.previous = report(&observed, running(&observed)).status;
    let later = at("2026-01-01T00:09:00Z");
    let again = build(
        &observed,
        &Outcome::Active(running(&observed).into()),
        later,
    )
    .unwrap()
    .status;
    assert_eq!(again, observed.previous, "unchanged");

    let mut active_outcome = running(&observed);
    active_outcome.common.queue =
        QueueState::Fault(Fault::until_change(Reason::QueueMissing, "gone"));
    let broken = build(&observed, &Outcome::Active(active_outcome.into()), later)
        .unwrap()
        .status;
    let time = |status: &AsyncActorStatus, kind: &str| {
        status
            .conditions
            .iter()
            .find(|c| c.type_ == kind)
            .unwrap()
            .last_transition_time
            .0
    };
    assert_eq!(time(&broken, "TransportReady"), later);
    assert_eq!(time(&broken, "WorkloadReady"), at("2026-01-01T00:01:00Z"));
    assert_eq!(
        condition(&broken, "Ready"),
        ("False", "QueueMissing", "gone")
    );
}

/// QUE-5
#[test]
fn queue_is_ready_only_once_it_was_verified() {
    let mut active_outcome = running(&active_actor());
    active_outcome.common.queue = QueueState::Fault(Fault {
        reason: Reason::BrokerUnreachable,
        message: "no answer".to_owned(),
        requeue: Requeue::Backoff,
    });
    active_outcome.workload = None;
    let Report {
        status, requeue, ..
    } = report(&active_actor(), active_outcome);
    assert_eq!(requeue, Requeue::Backoff);
    assert_eq!(status.status, Some(State::TransportError));
    assert_eq!(
        condition(&status, "TransportReady"),
        ("False", "BrokerUnreachable", "no answer")
    );
    assert_eq!(condition(&status, "WorkloadReady").0, "Unknown");
    assert_eq!(status.queue, None);
}

/// QUE-5, QUE-12
#[test]
fn queue_is_only_validated_while_queue_management_is_disabled() {
    let mut active_outcome = running(&active_actor());
    active_outcome.common.queue = QueueState::Unmanaged;
    let status = report(&active_actor(), active_outcome).status;
    assert_eq!(condition(&status, "TransportReady").1, "TransportValidated");
    assert_eq!(
        status.queue, None,
        "a queue that was not verified must not be deleted"
    );
}

/// QUE-13, STA-6: nothing else would bring the actor back to its retired queues, or to the end of a deadline.
#[test]
fn actor_is_requeued_for_retired_queues_and_for_deadlines() {
    let mut active_outcome = running(&active_actor());
    let later = Duration::from_mins(1);
    active_outcome.common.retired.recheck_after = Some(later);
    let requeue = report(&active_actor(), active_outcome).requeue;
    assert_eq!(requeue, Requeue::After(later));

    let mut active_outcome = running(&active_actor());
    let workload = active_outcome.workload.as_mut().unwrap();
    Arc::make_mut(workload).ready = 0;
    let Report {
        status, requeue, ..
    } = report(&active_actor(), active_outcome);
    assert_eq!(status.status, Some(State::Creating));
    let limit = active_actor().progress_limit();
    assert_eq!(Some(requeue), limit.map(Requeue::After));
}

/// VAL-19, VAL-20
#[test]
fn invalid_spec_is_reported_on_the_condition_it_concerns() {
    let report_of = |extra| {
        let observed = observed(&actor(&json!({}), &spec(&extra), &json!({})));
        report(&observed, StandaloneOutcome::default())
    };
    let invalid = report_of(json!({"workload": {"template": {"spec": {"containers": {}}}}}));
    assert_eq!(
        (invalid.status.status, invalid.requeue),
        (Some(State::WorkloadError), Requeue::AwaitChange)
    );
    assert_eq!(
        condition(&invalid.status, "WorkloadReady").1,
        "ValidationError"
    );
    assert_eq!(
        condition(&invalid.status, "Ready"),
        condition(&invalid.status, "WorkloadReady")
    );
    let unknown = report_of(json!({"transport": "nowhere"}));
    assert_eq!(
        (unknown.status.status, unknown.requeue),
        (Some(State::TransportError), Requeue::AwaitChange)
    );
    assert_eq!(
        condition(&unknown.status, "TransportReady"),
        (
            "False",
            "InvalidTransport",
            "transport \"nowhere\" is not configured"
        )
    );
    assert_eq!(
        condition(&unknown.status, "Ready"),
        condition(&unknown.status, "TransportReady")
    );
}

/// API-8, FW-25
#[test]
fn inventory_records_only_applied_objects() {
    let mut observed = active_actor();
    let first = report(&observed, running(&observed)).status;
    assert_eq!(first.inventory.len(), 1);
    assert_eq!(first.inventory[0].uid.as_deref(), Some("workload-uid"));

    observed.previous = first.clone();
    let mut foreign = deployment(&observed);
    foreign["metadata"]["managedFields"] = json!([]);
    let mut rejected = running(&observed);
    rejected.workload = Some(workload(&foreign));
    rejected.common.applied.clear();
    assert_eq!(
        report(&observed, rejected).status.inventory,
        first.inventory,
        "another manager's write must not be recorded as ours"
    );
}

/// FW-26
#[test]
fn time_without_progress_counts_from_the_last_ready_pod_or_spec() {
    let mut observed = active_actor();
    let mut object = deployment(&observed);
    object["spec"]["replicas"] = json!(3);
    let starting = |ready: i32| {
        let mut object = object.clone();
        object["status"]["readyReplicas"] = json!(ready);
        StandaloneOutcome {
            common: with_ready_queue(),
            workload: Some(workload(&object)),
            ..StandaloneOutcome::default()
        }
    };
    let status_at = |observed: &Observed, ready, time| {
        build(observed, &Outcome::Active(starting(ready).into()), at(time))
            .unwrap()
            .status
    };
    let since = |status: &AsyncActorStatus| status.progressing_since.as_ref().map(|since| since.0);
    let first = "2026-01-01T00:01:00Z";
    let second = "2026-01-01T00:05:00Z";
    observed.previous = status_at(&observed, 1, first);
    assert_eq!(since(&observed.previous), Some(at(first)));
    assert_eq!(
        since(&status_at(&observed, 1, second)),
        Some(at(first)),
        "no progress"
    );
    assert_eq!(
        since(&status_at(&observed, 2, second)),
        Some(at(second)),
        "one more is ready"
    );
    let late = status_at(&observed, 1, "2026-01-01T00:11:00Z");
    assert_eq!(
        (late.status, since(&late)),
        (Some(State::Degraded), Some(at(first)))
    );
    assert_eq!(
        since(&status_at(&observed, 3, second)),
        None,
        "all pods are ready"
    );
    observed.previous.progressing_since = Some(Time(at("2026-01-01T01:05:00Z")));
    assert_eq!(
        since(&status_at(&observed, 1, second)),
        Some(at(second)),
        "SAFE-43"
    );
    observed.previous.progressing_since = Some(Time(at(first)));
    observed.previous.observed_generation = Some(1);
    assert_eq!(
        since(&status_at(&observed, 1, second)),
        Some(at(second)),
        "the spec changed"
    );
}

/// STA-7, FW-31
#[test]
fn persistent_api_server_failure_is_reported() {
    let observed = active_actor();
    let response = Status::failure("failed calling webhook \"policy\"", "InternalError");
    let failure = || Error::Api(kube::Error::Api(response.clone().with_code(500).boxed()));
    let outcome = outcome_of_error(&observed, failure()).unwrap();
    let status = build(&observed, &outcome, at("2026-01-01T00:01:00Z"))
        .unwrap()
        .status;
    assert_eq!(status.status, Some(State::WorkloadError));
    assert_eq!(
        condition(&status, "WorkloadReady"),
        (
            "False",
            "ReconcileError",
            "the API server returned an error: failed calling webhook \"policy\""
        )
    );
    assert!(
        outcome.interrupted().is_some(),
        "the error is returned, too"
    );
}

/// FIN-2, FIN-3
#[test]
fn deleted_actor_is_terminating_and_reports_what_blocks_it() {
    let mut observed = active_actor();
    observed.previous = report(&observed, running(&observed)).status;
    let status_with = |fault| {
        build(
            &observed,
            &Outcome::Deleting {
                fault,
                deleted: Vec::new(),
                requeue: Requeue::AwaitChange,
                changed_target: false,
            },
            at("2026-01-01T00:02:00Z"),
        )
        .unwrap()
        .status
    };
    let terminating = status_with(None);
    assert_eq!(terminating.status, Some(State::Terminating));
    assert_eq!(
        condition(&terminating, "TransportReady").0,
        "True",
        "the previous condition is kept"
    );
    let blocked = status_with(Some(Fault::until_change(
        Reason::QueueDeletionFailed,
        "refused",
    )));
    assert_eq!(
        condition(&blocked, "TransportReady"),
        ("False", "QueueDeletionFailed", "refused")
    );
    assert!(build(&observed, &Outcome::Finalized, at("2026-01-01T00:02:00Z")).is_none());
}

/// STA-4
#[test]
fn pods_of_an_older_template_count_as_a_rollout() {
    let mut observed = active_actor();
    observed.pods = vec![pod("old", "another-template")];
    assert_eq!(
        report(&observed, running(&observed)).status.status,
        Some(State::Updating)
    );
    let hash = observed
        .standalone()
        .unwrap()
        .workload
        .template_hash
        .clone();
    observed.pods = vec![pod("new", &hash)];
    assert_eq!(
        report(&observed, running(&observed)).status.status,
        Some(State::Running)
    );
}

/// STA-4, FW-22
#[test]
fn workload_being_replaced_is_not_reported_as_running() {
    let mut observed = active_actor();
    let mut terminating = deployment(&observed);
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    terminating["spec"]["template"] = json!({});
    observed.pods = vec![pod("old", "another-template")];
    let active_outcome = StandaloneOutcome {
        common: with_ready_queue(),
        workload: Some(workload(&terminating)),
        ..StandaloneOutcome::default()
    };
    let status = report(&observed, active_outcome).status;
    assert_eq!(status.status, Some(State::Updating));
}
