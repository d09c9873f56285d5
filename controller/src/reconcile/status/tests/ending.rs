use asya_shared::api::{AsyncActorStatus, State};
use kube::core::Status;
use serde_json::json;

use super::{active_actor, at, condition, report, running};
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::child::UNWATCHED_POLL_INTERVAL;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Outcome, StandaloneOutcome, StoppedWorkloads};
use crate::reconcile::retries::{is_reported, outcome_of_error};
use crate::reconcile::status::{build, report_deletion};
use crate::reconcile::tests::fixtures::{
    actor, deployment, observed, recording_context, spec, workload,
};
use crate::record::{ActorRecord, Projected};
use crate::scaling::tests::fixtures::scaled_object;

/// An actor being deleted whose Deployment exists; `deleting` says whether that is being deleted, too.
fn terminating(deleting: bool) -> Observed {
    let mut observed = active_actor();
    observed.previous = report(&observed, running(&observed)).status;
    let mut object = deployment(&observed);
    if deleting {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z");
    }
    observed.workload = Child::Ours(workload(&object));
    observed
}

fn deletion_report(
    observed: &Observed,
    fault: Option<Fault>,
    deleted: &[&'static str],
) -> AsyncActorStatus {
    let outcome = Outcome::Deleting {
        fault,
        deleted: deleted.to_vec(),
        requeue: Requeue::AwaitChange,
        changed_target: false,
    };
    build(observed, &outcome, at("2026-01-01T00:02:00Z"))
        .unwrap()
        .status
}

fn phases(status: &AsyncActorStatus) -> Vec<&str> {
    let phases = status.inventory.iter().map(|entry| entry.phase.as_deref());
    phases.map(Option::unwrap_or_default).collect()
}

/// SO-6: seed 5135 of the simulation. No status has named the `ScaledObject`: their writes had conflicts until the
/// actor was deleted.
#[test]
fn scaled_object_of_a_deleted_binding_is_remembered_once_it_is_gone() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:01:30Z"});
    let spec = json!({"transport": "mq", "workloadRef": target});
    let mut observed = observed(&actor(&metadata, &spec, &json!({})));
    observed.binding = Some(ObservedBinding::Unbinding(None));
    assert_eq!(
        deletion_report(&observed, None, &[]).scaled_object_ref,
        None
    );
    observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let status = deletion_report(&observed, None, &["ScaledObject"]);
    assert!(status.scaled_object_ref.is_some());
    observed.scaling.scaled_object = Child::NotFound;
    observed.previous = status.clone();
    let gone = deletion_report(&observed, None, &[]);
    assert_eq!(gone.scaled_object_ref, status.scaled_object_ref);
}

/// FW-25, FIN-2
#[test]
fn inventory_of_a_deleted_actor_follows_its_objects() {
    let waiting = terminating(false);
    assert_eq!(
        phases(&deletion_report(&waiting, None, &["ScaledObject"])),
        ["Applied"],
        "the ScaledObject is deleted first"
    );
    assert_eq!(
        phases(&deletion_report(&waiting, None, &["Deployment"])),
        ["Deleting"]
    );
    assert_eq!(
        phases(&deletion_report(&terminating(true), None, &[])),
        ["Deleting"]
    );
    let mut deleted = terminating(false);
    deleted.workload = Child::NotFound;
    assert!(deletion_report(&deleted, None, &[]).inventory.is_empty());
}

/// FW-23 (g): seed 136 of the simulation. Otherwise the next reconcile, which no longer sees the garbage collector's
/// finalizer, would delete the queue.
#[test]
fn inventory_of_an_orphaning_deletion_keeps_the_objects_that_have_lost_their_owner() {
    let mut observed = terminating(false);
    observed.workload = Child::NotFound;
    observed.deletion.orphans = true;
    let fault = Fault::until_change(Reason::ReconcileError, "the actor has changed");
    let status = deletion_report(&observed, Some(fault), &[]);
    assert_eq!(status.inventory, observed.previous.inventory);
    assert!(!status.inventory.is_empty());
}

/// FW-23 (g): the first status of the deletion says it to the process that comes after a restart.
#[tokio::test]
async fn orphaning_deletion_is_recorded_before_its_last_step() {
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let stored = actor(&deleting, &spec(&json!({})), &json!({}));
    let written = async |orphans: bool, previous: AsyncActorStatus| {
        let (context, bodies) = recording_context(stored.clone());
        let projected: Projected<ActorRecord> = serde_json::from_value(stored.clone()).unwrap();
        context.stores.actors.apply_response(&projected);
        let mut observed = observed(&stored);
        observed.deletion.orphans = orphans;
        observed.previous = previous;
        let now = at("2026-01-01T00:02:00Z");
        let reported = report_deletion(&context, &mut observed, now).await;
        assert!(reported.is_ok());
        let written = bodies
            .lock()
            .first()
            .map(|it| it["status"]["orphaned"].clone());
        (written, observed.previous)
    };
    let (not_orphaned, draining) = written(false, AsyncActorStatus::default()).await;
    assert_eq!(not_orphaned, Some(json!(null)));
    let (orphaned, recorded) = written(true, draining.clone()).await;
    assert_eq!(orphaned, Some(json!(true)));
    for (orphans, previous) in [(false, draining), (true, recorded)] {
        assert_eq!(written(orphans, previous).await.0, None, "written once");
    }
}

/// FW-25
#[test]
fn inventory_phases_alone_are_not_written_until_the_next_change() {
    let mut observed = terminating(false);
    observed.previous = deletion_report(&observed, None, &["Deployment"]);
    observed.workload = Child::NotFound;
    assert_eq!(deletion_report(&observed, None, &[]), observed.previous);
    let fault = Fault::until_change(Reason::QueueDeletionFailed, "refused");
    assert!(
        deletion_report(&observed, Some(fault), &[])
            .inventory
            .is_empty()
    );
}

/// FIN-2, STA-4 row 1, STA-7
#[test]
fn rejected_deletion_of_a_child_is_reported_and_retried() {
    let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let mut terminating = observed(&actor(&terminating, &spec(&json!({})), &json!({})));
    terminating.previous = report(&active_actor(), running(&active_actor())).status;
    let response = Status::failure("deployments.apps \"a\" is forbidden", "Forbidden");
    let rejection = || Error::Api(kube::Error::Api(response.clone().with_code(403).boxed()));
    let report_rejection = |observed: &Observed| {
        let outcome = outcome_of_error(observed, rejection()).unwrap();
        let report = build(observed, &outcome, at("2026-01-01T00:02:00Z")).unwrap();
        assert!(
            outcome.interrupted().is_some(),
            "the error is returned, too"
        );
        report
    };
    let first = report_rejection(&terminating);
    assert_eq!(first.status.status, Some(State::Terminating));
    assert_eq!(
        condition(&first.status, "Ready"),
        (
            "False",
            "ReconcileError",
            "the API server returned an error: deployments.apps \"a\" is forbidden"
        )
    );
    assert_eq!(condition(&first.status, "WorkloadReady").0, "True");
    terminating.previous = first.status;
    let again = report_rejection(&terminating).status;
    assert_eq!(again, terminating.previous, "unchanged");
    let progressing = deletion_report(&terminating, None, &["Deployment"]);
    assert_eq!(condition(&progressing, "Ready").1, "Terminating");
}

/// FIN-2, STA-7
#[test]
fn rejected_deletion_is_reported_at_once_and_server_failure_if_it_persists() {
    for (code, failures, deleting, expected) in [
        (403, 0, true, true),
        (422, 0, true, true),
        (500, 0, true, false),
        (429, 1, true, false),
        (500, 2, true, true),
        (403, 0, false, false),
        (403, 2, false, true),
    ] {
        let response = Status::failure("no", "").with_code(code).boxed();
        let error = Error::Api(kube::Error::Api(response));
        let row = (code, failures, deleting);
        assert_eq!(is_reported(&error, failures, deleting), expected, "{row:?}");
    }
}

/// BIND-48
#[test]
fn status_is_kept_while_deletion_progress_is_unknown() {
    let unknown = Outcome::DeletionUnknown(Requeue::AwaitChange);
    let report_unknown =
        |observed: &Observed| build(observed, &unknown, at("2026-01-01T00:03:00Z"));
    let mut observed = terminating(false);
    let first = report_unknown(&observed).unwrap().status;
    assert_eq!(first.status, Some(State::Terminating));
    let fault = Fault::until_change(Reason::UnbindBlocked, "user action is required");
    observed.previous = deletion_report(&observed, Some(fault), &[]);
    assert_eq!(report_unknown(&observed).unwrap().status, observed.previous);
}

/// FW-22, STA-3: no watch shows a workload without our labels, so its deletion is polled.
#[test]
fn workload_being_deleted_is_not_running_and_polled_if_unwatched() {
    for is_watched in [true, false] {
        let observed = active_actor();
        let mut object = deployment(&observed);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z");
        if !is_watched {
            object["metadata"]["labels"] = json!({});
        }
        let active_outcome = StandaloneOutcome {
            workload: Some(workload(&object)),
            ..running(&observed)
        };
        let report = report(&observed, active_outcome);
        assert_eq!(report.status.status, Some(State::Updating));
        assert_eq!(
            report.requeue == Requeue::After(UNWATCHED_POLL_INTERVAL),
            !is_watched
        );
    }
}

/// QUE-3, STA-1
#[test]
fn pods_of_an_unwatched_stopped_workload_are_polled_until_they_are_deleted() {
    let observed = active_actor();
    for (labelled, observed_generation, pods, polls) in [
        (false, 1, 1, true),
        (false, 1, 0, true),
        (false, 2, 1, true),
        (false, 2, 0, false),
        (true, 1, 1, false),
    ] {
        let mut object = deployment(&observed);
        object["metadata"]["generation"] = json!(2);
        object["spec"]["replicas"] = json!(0);
        object["status"] = json!({"observedGeneration": observed_generation, "replicas": pods});
        if !labelled {
            object["metadata"]["labels"] = json!({});
        }
        let active_outcome = StandaloneOutcome {
            workload: Some(workload(&object)),
            stopped: Some(StoppedWorkloads::default()),
            ..StandaloneOutcome::default()
        };
        let requeue = report(&observed, active_outcome).requeue;
        let row = (labelled, observed_generation, pods);
        assert_eq!(
            requeue == Requeue::After(UNWATCHED_POLL_INTERVAL),
            polls,
            "{row:?}: {requeue:?}"
        );
    }
}
