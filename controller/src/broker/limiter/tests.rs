use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use asya_process::metrics::ExposedMetrics;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

struct Response;

impl Labelled for Response {
    fn label(&self) -> String {
        "yes".to_owned()
    }
}

const READ: Operation = Operation::read("observe");

fn limiter() -> Arc<BrokerLimiter> {
    Arc::new(BrokerLimiter::new(
        "t",
        &WorkerShare::of(32),
        Fence::unrestricted(),
        Arc::default(),
    ))
}

fn limiter_of(share: &Arc<WorkerShare>) -> Arc<BrokerLimiter> {
    let limiter = BrokerLimiter::new("t", share, Fence::unrestricted(), Arc::default());
    Arc::new(limiter)
}

fn unreachable() -> BrokerError {
    BrokerError::Unreachable("no response".to_owned())
}

/// The last error, if the circuit is open and the call was rejected.
fn last_error(error: Option<BrokerError>) -> BrokerError {
    match error {
        Some(BrokerError::CircuitOpen(last, _)) => *last,
        other => panic!("{other:?}"),
    }
}

async fn fail(limiter: &BrokerLimiter) -> Result<Response, BrokerError> {
    limiter.call(READ, async { Err(unreachable()) }).await
}

/// QUE-9, QUE-21 (b)
#[tokio::test(start_paused = true)]
async fn ten_calls_run_concurrently_and_the_others_wait() {
    let (limiter, running, peak) = (
        limiter(),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (limiter, running, peak) = (
            Arc::clone(&limiter),
            Arc::clone(&running),
            Arc::clone(&peak),
        );
        calls.spawn(async move {
            let call = async {
                peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                sleep(Duration::from_millis(400)).await;
                running.fetch_sub(1, SeqCst);
                Ok(Response)
            };
            limiter.call(READ, call).await.is_ok()
        });
    }
    let succeeded = calls.join_all().await;
    assert!(
        succeeded.into_iter().all(|succeeded| succeeded),
        "all calls to a slow broker succeed eventually"
    );
    assert_eq!(peak.load(SeqCst), 10);
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_behind_hanging_calls() {
    let limiter = limiter();
    let mut hanging = JoinSet::new();
    for _ in 0..10 {
        let limiter = Arc::clone(&limiter);
        hanging.spawn(async move {
            limiter
                .call(READ, pending::<Result<Response, BrokerError>>())
                .await
                .is_ok()
        });
    }
    tokio::task::yield_now().await;
    let started = Instant::now();
    let error = limiter.call(READ, async { Ok(Response) }).await.err();
    assert!(
        matches!(error, Some(BrokerError::TooManyCalls(_))),
        "{error:?}"
    );
    assert!(
        started.elapsed() <= Duration::from_millis(501),
        "{:?}",
        started.elapsed()
    );
    let started = Instant::now();
    assert!(limiter.call(READ, async { Ok(Response) }).await.is_err());
    assert_eq!(
        started.elapsed(),
        Duration::ZERO,
        "the next one does not wait at all"
    );
    hanging.abort_all();
    while hanging.join_next().await.is_some() {}
    assert!(
        limiter.call(READ, async { Ok(Response) }).await.is_ok(),
        "aborted calls return their permits"
    );
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn unresponsive_broker_is_not_called_for_thirty_seconds() {
    let limiter = limiter();
    for _ in 0..5 {
        assert!(fail(&limiter).await.is_err());
    }
    let call = async { panic!("called") };
    let error = limiter.call::<Response>(READ, call).await.err();
    assert_eq!(
        last_error(error),
        unreachable(),
        "the last error is repeated"
    );
    sleep(Duration::from_secs(30)).await;
    assert!(limiter.call(READ, async { Ok(Response) }).await.is_ok());
    assert!(limiter.call(READ, async { Ok(Response) }).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn missing_credentials_do_not_count_as_broker_failures() {
    let metrics: Arc<Metrics> = Arc::default();
    let limiter = BrokerLimiter::new(
        "t",
        &WorkerShare::of(32),
        Fence::unrestricted(),
        Arc::clone(&metrics),
    );
    for _ in 0..4 {
        assert!(fail(&limiter).await.is_err());
    }
    let missing = BrokerError::CredentialsMissing("none".to_owned());
    let result = limiter
        .call::<Response>(READ, async { Err(missing.clone()) })
        .await;
    assert_eq!(result.err(), Some(missing));
    assert!(fail(&limiter).await.is_err());
    let result = limiter
        .call::<Response>(READ, async { panic!("called") })
        .await;
    assert_eq!(
        last_error(result.err()),
        unreachable(),
        "five calls without a response"
    );
    let text = metrics.text().unwrap();
    assert!(text.contains(r#"transport_up{transport="t"} 0"#), "{text}");
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn throttling_does_not_open_the_circuit() {
    let limiter = limiter();
    for _ in 0..4 {
        assert!(fail(&limiter).await.is_err());
    }
    let throttled = BrokerError::Throttled("slow down".to_owned());
    let result = limiter
        .call::<Response>(READ, async { Err(throttled.clone()) })
        .await;
    assert_eq!(result.err(), Some(throttled));
    assert!(fail(&limiter).await.is_err());
    assert!(limiter.call(READ, async { Ok(Response) }).await.is_ok());
}

/// FW-28
#[tokio::test(start_paused = true)]
async fn broker_is_not_called_until_its_requested_delay_ends() {
    let limiter = limiter();
    let seconds = Duration::from_secs;
    let retry_after = BrokerError::RetryAfter("slow down".to_owned(), seconds(90));
    let result = limiter
        .call::<Response>(READ, async { Err(retry_after.clone()) })
        .await;
    assert_eq!(result.err().as_ref(), Some(&retry_after));
    sleep(seconds(89)).await;
    let result = limiter
        .call::<Response>(READ, async { panic!("called") })
        .await;
    assert_eq!(last_error(result.err()), retry_after, "for every caller");
    sleep(seconds(1)).await;
    for _ in 0..2 {
        assert!(limiter.call(READ, async { Ok(Response) }).await.is_ok());
    }
}

/// OPS-22
#[tokio::test(start_paused = true)]
async fn slow_broker_holds_few_reconciles_and_requeues_the_rest() {
    let limiter = limiter();
    let taking = |duration: Duration| {
        let limiter = Arc::clone(&limiter);
        async move {
            let call = async {
                sleep(duration).await;
                Ok(Response)
            };
            limiter.call(READ, call).await.is_ok()
        }
    };
    let acquire_all = |stage| (0..20).map(|_| limiter.acquire(stage)).collect::<Vec<_>>();
    let fast = acquire_all(CallStage::Initial);
    assert!(
        fast.iter().all(Result::is_ok),
        "the broker is not known to be slow"
    );
    drop(fast);
    for _ in 0..5 {
        assert!(taking(Duration::from_secs(2)).await);
    }
    let mut admitted = acquire_all(CallStage::Initial);
    let rejected = admitted.split_off(12);
    assert!(admitted.iter().all(Result::is_ok));
    for result in &rejected {
        let Err(BrokerError::TooManyWaiting(_, wait)) = result else {
            panic!("admitted")
        };
        assert!(*wait >= Duration::from_millis(500), "{wait:?}");
    }
    assert!(
        limiter.acquire(CallStage::FollowUp).is_ok(),
        "a reconcile in progress continues"
    );
    admitted.truncate(11);
    let next = limiter.acquire(CallStage::Initial);
    assert!(next.is_ok(), "a permit was returned");
    for _ in 0..20 {
        assert!(taking(Duration::from_millis(20)).await);
    }
    assert!(
        limiter.acquire(CallStage::Initial).is_ok(),
        "it is no longer slow"
    );
}

/// OPS-22
#[tokio::test]
async fn slow_broker_never_holds_more_than_half_of_the_workers() {
    for (workers, expected) in [(1, 1), (2, 1), (8, 4), (20, 10), (32, 12), (50, 12)] {
        let limiter = limiter_of(&WorkerShare::of(workers));
        assert_eq!(limiter.limits.reconcile_permits, expected, "{workers}");
    }
}

/// OPS-22: one broker may be slow on several transports.
#[tokio::test(start_paused = true)]
async fn all_slow_brokers_together_never_hold_more_than_half_of_the_workers() {
    let share = WorkerShare::of(50);
    let slow: Vec<_> = (0..5).map(|_| limiter_of(&share)).collect();
    let fast = limiter_of(&share);
    for limiter in &slow {
        (0..5).for_each(|_| limiter.record_duration(Duration::from_secs(2)));
    }
    let acquire = |limiter: &Arc<BrokerLimiter>| limiter.acquire(CallStage::Initial);
    let mut admitted: Vec<_> = (0..20)
        .flat_map(|_| slow.iter().filter_map(|limiter| acquire(limiter).ok()))
        .collect();
    assert_eq!(admitted.len(), 25);
    assert!((0..30).all(|_| acquire(&fast).is_ok()), "not a slow one");
    let first = &slow[0];
    assert!(
        first.acquire(CallStage::FollowUp).is_ok(),
        "a reconcile in progress continues"
    );
    admitted.truncate(24);
    let next = acquire(first);
    assert!(next.is_ok(), "a permit was returned");
    assert!(acquire(first).is_err());
    drop(admitted);
    let alone: Vec<_> = (0..20).filter_map(|_| acquire(first).ok()).collect();
    assert_eq!(alone.len() + 1, 12, "one of them never holds more");
}

#[tokio::test(start_paused = true)]
async fn only_writes_need_the_lease() {
    let limiter = BrokerLimiter::new("t", &WorkerShare::of(32), Fence::closed(), Arc::default());
    assert!(limiter.call(READ, async { Ok(Response) }).await.is_ok());
    let write = limiter.call::<Response>(Operation::write("create"), async { panic!("called") });
    let result = timeout(Duration::from_secs(1), write).await.unwrap();
    assert!(matches!(result, Err(BrokerError::Fenced(_))));
}

/// QUE-30: the wait for a permit counts as well.
#[tokio::test(start_paused = true)]
async fn deletion_does_not_start_after_its_deadline() {
    let limiter = limiter();
    let deadline = Instant::now() + Duration::from_secs(3);
    let deletion = Operation::deletion(deadline);
    assert!(limiter.call(deletion, async { Ok(Response) }).await.is_ok());
    sleep(Duration::from_secs(3)).await;
    let late = limiter.call::<Response>(deletion, async { panic!("called") });
    assert!(matches!(late.await, Err(BrokerError::Unconfirmed(_))));
}

/// OPS-4
#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_operation_and_result() {
    let metrics: Arc<Metrics> = Arc::default();
    let limiter = BrokerLimiter::new(
        "t",
        &WorkerShare::of(32),
        Fence::unrestricted(),
        Arc::clone(&metrics),
    );
    assert!(limiter.call(READ, async { Ok(Response) }).await.is_ok());
    assert!(fail(&limiter).await.is_err());
    let text = metrics.text().unwrap();
    for line in [
        r#"broker_requests_total{transport="t",operation="observe",result="yes"} 1"#,
        r#"broker_requests_total{transport="t",operation="observe",result="BrokerUnreachable"} 1"#,
        r#"transport_up{transport="t"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

/// OPS-30: a namespace whose Secret has a wrong CA says nothing about the broker.
#[tokio::test(start_paused = true)]
async fn transport_is_up_while_any_of_its_clients_gets_responses() {
    let metrics: Arc<Metrics> = Arc::default();
    let share = WorkerShare::of(32);
    let fence = Fence::unrestricted();
    let good = BrokerLimiter::new("t", &share, fence, Arc::clone(&metrics));
    let wrong_ca = good.with_own_circuit();
    let assert_up = |expected: u8| {
        let (text, line) = (metrics.text().unwrap(), r#"transport_up{transport="t"}"#);
        assert!(text.contains(&format!("{line} {expected}\n")), "{text}");
    };
    assert!(good.call(READ, async { Ok(Response) }).await.is_ok());
    for _ in 0..5 {
        assert!(fail(&wrong_ca).await.is_err());
        assert_up(1);
    }
    for expected in [1, 1, 1, 1, 0] {
        assert!(fail(&good).await.is_err());
        assert_up(expected);
    }
    sleep(Duration::from_secs(30)).await;
    assert!(good.call(READ, async { Ok(Response) }).await.is_ok());
    assert_up(1);
}
