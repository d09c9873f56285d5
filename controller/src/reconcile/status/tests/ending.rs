use asya_shared::api::{AsyncActorStatus, State};
use kube::core::Status;
use serde_json::json;

use super::{at, condition, lives, report, running};
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::child::UNSEEN;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, Outcome};
use crate::reconcile::retries::{interrupted, is_reported};
use crate::reconcile::status::make;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};

/// An actor being deleted whose Deployment exists; `deleting` says whether that is being deleted, too.
fn goes(deleting: bool) -> Observed {
    let mut observed = lives();
    observed.previous = report(&observed, running(&observed)).status;
    let mut object = deployment(&observed);
    if deleting {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z");
    }
    observed.workload = Child::Ours(workload(&object));
    observed
}

fn told(observed: &Observed, fault: Option<Fault>, deleted: &[&'static str]) -> AsyncActorStatus {
    let outcome = Outcome::Deleting {
        fault,
        deleted: deleted.to_vec(),
        retry: Requeue::AwaitChange,
        released: false,
    };
    make(observed, &outcome, at("2026-01-01T00:02:00Z"))
        .unwrap()
        .status
}

fn phases(status: &AsyncActorStatus) -> Vec<&str> {
    let phases = status.inventory.iter().map(|entry| entry.phase.as_deref());
    phases.map(Option::unwrap_or_default).collect()
}

/// FW-25, FIN-2
#[test]
fn inventory_of_a_deleted_actor_follows_its_objects() {
    let waits = goes(false);
    assert_eq!(
        phases(&told(&waits, None, &["ScaledObject"])),
        ["Applied"],
        "what scales it goes first"
    );
    assert_eq!(phases(&told(&waits, None, &["Deployment"])), ["Deleting"]);
    assert_eq!(phases(&told(&goes(true), None, &[])), ["Deleting"]);
    let mut gone = goes(false);
    gone.workload = Child::Absent;
    assert!(told(&gone, None, &[]).inventory.is_empty());
}

/// FW-25
#[test]
fn inventory_phases_alone_are_not_written_until_the_next_change() {
    let mut observed = goes(false);
    observed.previous = told(&observed, None, &["Deployment"]);
    observed.workload = Child::Absent;
    assert_eq!(told(&observed, None, &[]), observed.previous);
    let fault = Fault::until_change(Reason::QueueDeletionFailed, "refused");
    assert!(told(&observed, Some(fault), &[]).inventory.is_empty());
}

/// FIN-2, STA-4 row 1, STA-7
#[test]
fn refused_deletion_of_a_child_is_reported_and_retried() {
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let mut going = observed(&actor(&going, &spec(&json!({})), &json!({})));
    going.previous = report(&lives(), running(&lives())).status;
    let answer = Status::failure("deployments.apps \"a\" is forbidden", "Forbidden");
    let refusal = || Error::Api(kube::Error::Api(answer.clone().with_code(403).boxed()));
    let tell = |going: &Observed| {
        let outcome = interrupted(going, refusal()).unwrap();
        let told = make(going, &outcome, at("2026-01-01T00:02:00Z")).unwrap();
        assert!(outcome.interrupted().is_some(), "and tried again");
        told
    };
    let told = tell(&going);
    assert_eq!(told.status.status, Some(State::Terminating));
    assert_eq!(
        condition(&told.status, "Ready"),
        (
            "False",
            "ReconcileError",
            "the API server fails: deployments.apps \"a\" is forbidden"
        )
    );
    assert_eq!(condition(&told.status, "WorkloadReady").0, "True");
    going.previous = told.status;
    let again = tell(&going).status;
    assert_eq!(again, going.previous, "told once");
    let goes = self::told(&going, None, &["Deployment"]);
    assert_eq!(condition(&goes, "Ready").1, "Terminating");
}

/// FIN-2, STA-7
#[test]
fn refused_deletion_is_reported_at_once_and_server_failure_if_it_persists() {
    for (code, failures, deleting, told) in [
        (403, 0, true, true),
        (422, 0, true, true),
        (500, 0, true, false),
        (429, 1, true, false),
        (500, 2, true, true),
        (403, 0, false, false),
        (403, 2, false, true),
    ] {
        let answer = Status::failure("no", "").with_code(code).boxed();
        let error = Error::Api(kube::Error::Api(answer));
        let row = (code, failures, deleting);
        assert_eq!(is_reported(&error, failures, deleting), told, "{row:?}");
    }
}

/// BIND-48
#[test]
fn status_is_kept_while_deletion_progress_is_unknown() {
    let unknown = Outcome::Unknown(Requeue::AwaitChange);
    let tell = |observed: &Observed| make(observed, &unknown, at("2026-01-01T00:03:00Z"));
    let mut observed = goes(false);
    let first = tell(&observed).unwrap().status;
    assert_eq!(first.status, Some(State::Terminating));
    let fault = Fault::until_change(Reason::UnbindBlocked, "somebody must do something");
    observed.previous = told(&observed, Some(fault), &[]);
    assert_eq!(tell(&observed).unwrap().status, observed.previous);
}

/// FW-22, STA-3: no watch shows a workload without our labels, so its deletion is polled.
#[test]
fn workload_being_deleted_is_not_running_and_polled_if_unwatched() {
    for is_seen in [true, false] {
        let observed = lives();
        let mut object = deployment(&observed);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z");
        if !is_seen {
            object["metadata"]["labels"] = json!({});
        }
        let ensured = Ensured {
            workload: Some(workload(&object)),
            ..running(&observed)
        };
        let told = report(&observed, ensured);
        assert_eq!(told.status.status, Some(State::Updating));
        assert_eq!(told.retry == Requeue::After(UNSEEN), !is_seen);
    }
}

/// QUE-3, STA-1
#[test]
fn pods_of_an_unwatched_stopped_workload_are_polled_until_they_are_deleted() {
    let observed = lives();
    for (labelled, seen, pods, looks) in [
        (false, 1, 1, true),
        (false, 1, 0, true),
        (false, 2, 1, true),
        (false, 2, 0, false),
        (true, 1, 1, false),
    ] {
        let mut object = deployment(&observed);
        object["metadata"]["generation"] = json!(2);
        object["spec"]["replicas"] = json!(0);
        object["status"] = json!({"observedGeneration": seen, "replicas": pods});
        if !labelled {
            object["metadata"]["labels"] = json!({});
        }
        let ensured = Ensured {
            workload: Some(workload(&object)),
            stopped: Some(Box::default()),
            ..Ensured::default()
        };
        let retry = report(&observed, ensured).retry;
        let row = (labelled, seen, pods);
        assert_eq!(retry == Requeue::After(UNSEEN), looks, "{row:?}: {retry:?}");
    }
}
