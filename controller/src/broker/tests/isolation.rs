//! A hanging or slow broker must not delay reconciles of actors on another broker.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::broker::limiter::{CallStage, Labelled, Operation, WorkerShare};
use crate::telemetry::metrics::Metrics;
use crate::work_queue::{RunOutcome, WorkQueue, WorkQueueSettings};

struct Response;

impl Labelled for Response {
    fn label(&self) -> String {
        "yes".to_owned()
    }
}

const READ: Operation = Operation::read("observe");

/// QUE-9
#[tokio::test(start_paused = true)]
async fn actors_on_another_broker_reconcile_within_a_second_while_one_hangs() {
    let last = reconciled_while_hanging(WorkQueueSettings::default(), 1, 100).await;
    assert!(last < Duration::from_secs(1), "{last:?}");
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn hanging_broker_does_not_hold_all_of_few_workers() {
    let few = WorkQueueSettings {
        workers: 8,
        ..WorkQueueSettings::default()
    };
    let last = reconciled_while_hanging(few, 1, 20).await;
    assert!(last < Duration::from_secs(1), "{last:?}");
}

/// OPS-22: one call of each broker is in flight until some of those that hang time out, after 10 s.
#[tokio::test(start_paused = true)]
async fn many_hanging_brokers_do_not_hold_all_workers() {
    for (workers, brokers) in [(32, 5), (32, 7), (50, 5), (50, 11)] {
        let settings = WorkQueueSettings {
            workers,
            ..WorkQueueSettings::default()
        };
        let last = reconciled_while_hanging(settings, brokers, 100).await;
        let limit = Duration::from_secs(3);
        assert!(
            last < limit,
            "{workers} workers, {brokers} brokers: {last:?}"
        );
    }
}

/// Time until all actors on a responding broker are reconciled, while others hang. Each of those never holds more than
/// its share of the workers, and all together no more than three quarters of them.
async fn reconciled_while_hanging(
    settings: WorkQueueSettings,
    hanging_brokers: usize,
    fine_actors: usize,
) -> Duration {
    let queue: WorkQueue<(char, usize)> =
        WorkQueue::with_observer(settings, Arc::new(Metrics::new()));
    // Actors on the hanging broker come first and outnumber the workers.
    for number in 0..300 {
        queue.enqueue(('a', number));
    }
    for number in 0..fine_actors {
        queue.enqueue(('b', number));
    }
    let share = WorkerShare::of(settings.workers);
    let limiter = |name: &str| {
        let limiter = BrokerLimiter::new(name, &share, Fence::unrestricted(), Arc::default());
        Arc::new(limiter)
    };
    let hanging: Vec<_> = (0..hanging_brokers)
        .map(|number| limiter(&format!("a{number}")))
        .collect();
    let (hanging, fine) = (Arc::new(hanging), limiter("b"));
    let in_flight: Arc<AtomicUsize> = Arc::default();
    let durations: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (started, recorded) = (Instant::now(), Arc::clone(&durations));
    let run = queue.run(move |(broker, number), _| {
        let (hanging, fine, recorded) = (
            Arc::clone(&hanging),
            Arc::clone(&fine),
            Arc::clone(&recorded),
        );
        let in_flight = Arc::clone(&in_flight);
        async move {
            if broker == 'a' {
                let call = async {
                    let held = in_flight.fetch_add(1, SeqCst) + 1;
                    assert!(held <= settings.workers * 3 / 4, "{held}");
                    sleep(Duration::from_secs(10)).await;
                    in_flight.fetch_sub(1, SeqCst);
                    Err::<Response, _>(BrokerError::Unreachable("no response".to_owned()))
                };
                return match hanging[number % hanging_brokers].call(READ, call).await {
                    Err(BrokerError::TooManyCalls(_)) => {
                        RunOutcome::RequeueAfter(Duration::from_secs(1))
                    }
                    _ => RunOutcome::FAILED,
                };
            }
            let call = async {
                sleep(Duration::from_millis(20)).await;
                Ok(Response)
            };
            assert!(fine.call(READ, call).await.is_ok());
            recorded.lock().unwrap().push(started.elapsed());
            RunOutcome::Done
        }
    });
    assert!(timeout(Duration::from_mins(1), run).await.is_err());
    let durations = durations.lock().unwrap();
    assert_eq!(durations.len(), fine_actors);
    *durations.iter().max().unwrap()
}

/// The broker calls of one reconcile: an observation, and the creation of a queue in two calls.
async fn converge(
    limiter: &Arc<BrokerLimiter>,
    observation: Duration,
    creation: Duration,
) -> Result<(), BrokerError> {
    let call = async |duration| {
        sleep(duration).await;
        Ok(Response)
    };
    let observing = limiter.acquire(CallStage::Initial)?;
    limiter.call(READ, call(observation)).await?;
    drop(observing);
    let _creating = limiter.acquire(CallStage::FollowUp)?;
    limiter.call(READ, call(creation)).await?;
    limiter.call(READ, call(creation)).await?;
    Ok(())
}

/// Time until all actors on a fast broker have converged, and all on one that takes 2.5 s per call, which this many
/// transports lead to.
async fn converged(slow_actors: usize, slow_transports: usize) -> [Duration; 2] {
    const FINE_ACTORS: usize = 200;
    // By this time the slow broker holds as many workers as it can get.
    const BUSY_SINCE: Duration = Duration::from_secs(30);
    let settings = WorkQueueSettings::default();
    let share = WorkerShare::of(settings.workers);
    let queue: WorkQueue<(char, usize)> =
        WorkQueue::with_observer(settings, Arc::new(Metrics::new()));
    (0..slow_actors).for_each(|number| queue.enqueue(('a', number)));
    let limiter = |name: &str| {
        let limiter = BrokerLimiter::new(name, &share, Fence::unrestricted(), Arc::default());
        Arc::new(limiter)
    };
    let slow: Vec<_> = (0..slow_transports)
        .map(|number| limiter(&format!("a{number}")))
        .collect();
    let (slow, fine) = (Arc::new(slow), limiter("b"));
    let progress: Arc<Mutex<[(usize, Duration); 2]>> = Arc::default();
    let (started, recorded, all) = (Instant::now(), Arc::clone(&progress), queue.clone());
    let others = queue.clone();
    let run = queue.run(move |(broker, number), _| {
        let (slow, fine, recorded) = (Arc::clone(&slow), Arc::clone(&fine), Arc::clone(&recorded));
        let all = all.clone();
        async move {
            let (limiter, observation, creation) = if broker == 'a' {
                let creation = Duration::from_millis(2500);
                // One of the 10 concurrent calls ends every 250 ms, so no waiting call times out: only the limit on
                // waiting reconciles leaves workers to others.
                let nth = number / slow_transports;
                let later = Duration::from_millis(250) * u32::try_from(nth % 10).unwrap();
                let observation = if nth < 10 { creation + later } else { creation };
                let slow: &Arc<BrokerLimiter> = &slow[number % slow_transports];
                (Arc::clone(slow), observation, creation)
            } else {
                let creation = Duration::from_millis(100);
                (fine, creation, creation)
            };
            if let Err(error) = converge(&limiter, observation, creation).await {
                return RunOutcome::RequeueAfter(error.not_called_delay().unwrap());
            }
            let mut recorded = recorded.lock().unwrap();
            let (entry, started) = match broker {
                'a' => (&mut recorded[1], started),
                _ => (&mut recorded[0], started + BUSY_SINCE),
            };
            *entry = (entry.0 + 1, started.elapsed());
            if recorded[0].0 == FINE_ACTORS && recorded[1].0 == slow_actors {
                all.close();
            }
            RunOutcome::Done
        }
    });
    let fine_ones = async {
        sleep(BUSY_SINCE).await;
        (0..FINE_ACTORS).for_each(|number| others.enqueue(('b', number)));
    };
    let both = async { tokio::join!(run, fine_ones) };
    timeout(Duration::from_hours(1), both).await.unwrap();
    progress.lock().unwrap().map(|(_, last)| last)
}

/// OPS-22
#[tokio::test(start_paused = true)]
async fn slow_broker_does_not_slow_down_actors_on_another_broker() {
    let [alone, _] = converged(0, 1).await;
    for transports in [1, 6] {
        let [together, slow] = converged(500, transports).await;
        let ratio = together.as_secs_f64() / alone.as_secs_f64();
        assert!(
            ratio <= 1.25,
            "{together:?} with the slow broker on {transports} transports, {alone:?} without it"
        );
        // 500 actors with 3 calls of 2.5 s each, 10 at a time.
        assert!(
            slow <= 2 * Duration::from_secs(375),
            "the slow broker is kept busy on {transports} transports: {slow:?}"
        );
    }
}
