//! Status writes that the next one makes obsolete.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{active_actor, at, report, with_ready_queue};
use crate::broker::{QueueCheck, ReadyQueue};
use crate::fault::Requeue;
use crate::reconcile::model::observed::{Observed, ObservedQueue};
use crate::reconcile::model::outcome::{CommonOutcome, Outcome, QueueState, StandaloneOutcome};
use crate::reconcile::status::write_delay;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, pod, spec, workload};
use crate::record::PodRecord;

/// STA-6, OPS-22
#[test]
fn new_actor_that_waits_for_a_slow_broker_has_no_status_for_ten_seconds() {
    let metadata = json!({"creationTimestamp": "2026-01-01T00:01:00Z"});
    let mut observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
    let requeue = Requeue::After(Duration::from_secs(1));
    let outcome = |queue| CommonOutcome {
        queue,
        ..CommonOutcome::default()
    };
    // The look at the queue got its turn, its creation did not.
    observed.queue = ObservedQueue::Checked(QueueCheck::NotFound);
    let status = report(&observed, outcome(QueueState::Deferred(requeue))).status;
    assert_eq!(status.status, Some(State::Creating));
    let waiting = Outcome::Active(outcome(QueueState::Deferred(requeue)).into());
    let wait = |observed: &Observed, status: &AsyncActorStatus, time| {
        write_delay::delay(observed, &waiting, status, at(time))
    };
    let second = Duration::from_secs(1);
    let early = "2026-01-01T00:01:09Z";
    let late = "2026-01-01T00:01:10Z";
    assert_eq!(wait(&observed, &status, early), Some(second));
    assert_eq!(wait(&observed, &status, late), None, "old enough");
    let failing = AsyncActorStatus {
        status: Some(State::WorkloadError),
        ..status.clone()
    };
    assert_eq!(
        wait(&observed, &failing, early),
        None,
        "a fault is reported at once"
    );
    let created = Outcome::Active(outcome(QueueState::Created(ReadyQueue::default())).into());
    let wait_after_creation = write_delay::delay(&observed, &created, &status, at(early));
    assert_eq!(wait_after_creation, None, "the queue is known");
    observed.previous.observed_generation = Some(1);
    assert_eq!(wait(&observed, &status, early), None, "it has a status");
}

/// WRK-5, STA-6
#[test]
fn pod_counts_alone_are_written_once_the_youngest_pod_is_ten_seconds_old() {
    let mut observed = active_actor();
    let mut deployment = deployment(&observed);
    deployment["status"] = json!({"replicas": 1, "readyReplicas": 0, "updatedReplicas": 1});
    let active_outcome = StandaloneOutcome {
        common: with_ready_queue(),
        workload: Some(workload(&deployment)),
        ..StandaloneOutcome::default()
    };
    let current = report(&observed, active_outcome).status;
    observed.previous = AsyncActorStatus {
        total_replicas: Some(0),
        pending_replicas: Some(0),
        ..current.clone()
    };
    let outcome = Outcome::Active(StandaloneOutcome::default().into());
    let wait =
        |observed: &Observed, time| write_delay::delay(observed, &outcome, &current, at(time));
    assert_eq!(
        wait(&observed, "2026-01-01T00:01:00Z"),
        None,
        "no pod was created recently"
    );

    let mut young = PodRecord::clone(&pod("p", "h"));
    young.created = Some(Time(at("2026-01-01T00:01:00Z")));
    observed.pods = vec![young.into()];
    let second = Duration::from_secs(1);
    assert_eq!(wait(&observed, "2026-01-01T00:01:09Z"), Some(second));
    assert_eq!(wait(&observed, "2026-01-01T00:01:10Z"), None, "old enough");
    let ahead = "2026-01-01T00:00:00Z";
    assert_eq!(
        wait(&observed, ahead),
        Some(10 * second),
        "the API server's clock is ahead"
    );

    observed.previous.status = Some(State::Running);
    assert_eq!(
        wait(&observed, "2026-01-01T00:01:01Z"),
        None,
        "STATUS differs"
    );
    observed.previous = current.clone();
    assert_eq!(
        wait(&observed, "2026-01-01T00:01:01Z"),
        None,
        "nothing differs"
    );
}
