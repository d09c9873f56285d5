//! What actors report of their queues while their broker does not respond.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::super::queue::{QueueResult, failed_check};
use crate::broker::BrokerError;
use crate::broker::limiter::{BrokerLimiter, Labelled, Operation, WorkerShare};
use crate::broker::rechecks::QueueRechecks;
use crate::cluster::fence::Fence;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::observed::ObservedQueue;
use crate::record::Key;

struct Response;

impl Labelled for Response {
    fn label(&self) -> String {
        "yes".to_owned()
    }
}

/// How many of these actors ever report a fault, and when the last one does, after the start of an outage during which
/// each call ends with `failure`. All are to check a verified queue when it begins, and retry until it is over.
async fn reports(
    actors: usize,
    outage: Duration,
    failure: &BrokerError,
) -> (usize, Option<Duration>) {
    let limiter = Arc::new(BrokerLimiter::new(
        "t",
        &WorkerShare::of(32),
        Fence::unrestricted(),
        Arc::default(),
    ));
    let rechecks: Arc<QueueRechecks> = Arc::default();
    let started = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..actors {
        let (limiter, rechecks, failure) =
            (Arc::clone(&limiter), Arc::clone(&rechecks), failure.clone());
        let key = Key::new("ns", &number.to_string());
        running.spawn(async move {
            let mut backoff = Duration::from_secs(1);
            let mut reported = None;
            loop {
                let call = async {
                    if started.elapsed() < outage {
                        Err(failure.clone())
                    } else {
                        Ok(Response)
                    }
                };
                let error = match limiter.call(Operation::read("observe"), call).await {
                    Ok(Response) => return reported,
                    Err(error) => error,
                };
                let QueueResult { queue, failure } =
                    failed_check(rechecks.failures(&key), true, error);
                if let Some(error) = failure {
                    rechecks.record_failure(&key, &error);
                }
                let requeue = match queue {
                    ObservedQueue::Deferred(requeue) => requeue,
                    ObservedQueue::Unknown(error) => {
                        reported.get_or_insert(started.elapsed());
                        error.requeue()
                    }
                    other => panic!("{other:?}"),
                };
                if let Requeue::After(wait) = requeue {
                    sleep(wait).await;
                } else {
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(Duration::from_mins(5));
                }
            }
        });
    }
    let reported: Vec<Duration> = running.join_all().await.into_iter().flatten().collect();
    (reported.len(), reported.into_iter().max())
}

/// QUE-10, QUE-9: what the open circuit returns is no answer of the broker.
#[tokio::test(start_paused = true)]
async fn short_outage_changes_no_status_and_a_long_one_that_of_each_actor() {
    let seconds = Duration::from_secs;
    let silent = BrokerError::Unreachable("no answer".to_owned());
    let paused = BrokerError::RetryAfter("slow down".to_owned(), seconds(20));
    for failure in [silent, paused] {
        for outage in [seconds(1), seconds(5), seconds(25)] {
            let (count, _) = reports(100, outage, &failure).await;
            assert_eq!(count, 0, "{outage:?}: {failure:?}");
        }
        let (count, last) = reports(100, Duration::from_mins(5), &failure).await;
        assert_eq!(count, 100, "{failure:?}");
        assert!(last.unwrap() < Duration::from_mins(3), "{last:?}");
    }
}

/// QUE-5, QUE-9: a new actor reports at once why it has no queue.
#[tokio::test(start_paused = true)]
async fn unverified_queue_reports_the_last_error_while_the_circuit_is_open() {
    let limiter = BrokerLimiter::new(
        "t",
        &WorkerShare::of(32),
        Fence::unrestricted(),
        Arc::default(),
    );
    let read = Operation::read("observe");
    let silent = || BrokerError::Unreachable("no answer".to_owned());
    for _ in 0..5 {
        let failed = limiter.call::<Response>(read, async { Err(silent()) });
        assert_eq!(failed.await.err(), Some(silent()));
    }
    let rejected = limiter.call::<Response>(read, async { panic!("called") });
    let error = rejected.await.err().unwrap();
    let QueueResult {
        queue: ObservedQueue::Unknown(reported),
        failure: None,
    } = failed_check(0, false, error)
    else {
        panic!("not reported");
    };
    let fault = reported.fault();
    assert_eq!(
        (fault.reason, &*fault.message),
        (Reason::BrokerUnreachable, "no answer")
    );
    // At the next trial, no later.
    let seconds = Duration::from_secs;
    let Requeue::After(wait) = fault.requeue else {
        panic!("{:?}", fault.requeue)
    };
    assert!((seconds(30)..=seconds(35)).contains(&wait), "{wait:?}");
}
