//! A hanging or slow broker must not delay reconciles of actors on another broker.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::broker::gate::{Entry, Labelled, Operation};
use crate::telemetry::metrics::Metrics;
use crate::work_queue::{RunOutcome, Settings, WorkQueue};

struct Yes;

impl Labelled for Yes {
    fn label(&self) -> String {
        "yes".to_owned()
    }
}

const LOOK: Operation = Operation::read("look");

/// QUE-9
#[tokio::test(start_paused = true)]
async fn actors_on_another_broker_are_seen_within_a_second_while_one_hangs() {
    seen_while_one_hangs(Settings::default(), 100).await;
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn hanging_broker_does_not_hold_all_of_few_workers() {
    let few = Settings {
        workers: 8,
        ..Settings::default()
    };
    seen_while_one_hangs(few, 20).await;
}

async fn seen_while_one_hangs(settings: Settings, fine_actors: usize) {
    let workers = settings.workers;
    let queue: WorkQueue<(char, usize)> = WorkQueue::observed(settings, Arc::new(Metrics::new()));
    // Actors on the hanging broker come first and outnumber the workers.
    for number in 0..300 {
        queue.now(('a', number));
    }
    for number in 0..fine_actors {
        queue.now(('b', number));
    }
    let gate = |name| {
        let gate = BrokerLimiter::new(name, Fence::open(), Arc::default());
        Arc::new(gate.for_workers(workers))
    };
    let (hanging, fine) = (gate("a"), gate("b"));
    let seen: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (began, ended) = (Instant::now(), Arc::clone(&seen));
    let run = queue.run(move |(broker, _), _| {
        let (hanging, fine, ended) = (Arc::clone(&hanging), Arc::clone(&fine), Arc::clone(&ended));
        async move {
            if broker == 'a' {
                let call = async {
                    sleep(Duration::from_secs(10)).await;
                    Err::<Yes, _>(BrokerError::Unreachable("no answer".to_owned()))
                };
                return match hanging.call(LOOK, call).await {
                    Err(BrokerError::Busy(_)) => RunOutcome::Again(Duration::from_secs(1)),
                    _ => RunOutcome::FAILED,
                };
            }
            let call = async {
                sleep(Duration::from_millis(20)).await;
                Ok(Yes)
            };
            assert!(fine.call(LOOK, call).await.is_ok());
            ended.lock().unwrap().push(began.elapsed());
            RunOutcome::Done
        }
    });
    assert!(timeout(Duration::from_mins(1), run).await.is_err());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), fine_actors);
    let last = seen.iter().max().unwrap();
    assert!(*last < Duration::from_secs(1), "{last:?}");
}

/// The broker calls of one reconcile: an observation, and the creation of a queue in two calls.
async fn converge(
    gate: &Arc<BrokerLimiter>,
    looks: Duration,
    takes: Duration,
) -> Result<(), BrokerError> {
    let call = async |takes| {
        sleep(takes).await;
        Ok(Yes)
    };
    let looking = gate.enter(Entry::First)?;
    gate.call(LOOK, call(looks)).await?;
    drop(looking);
    let _makes = gate.enter(Entry::Again)?;
    gate.call(LOOK, call(takes)).await?;
    gate.call(LOOK, call(takes)).await?;
    Ok(())
}

/// Time until all actors on a fine broker have converged, and all on one that takes 2.5 s per call.
async fn converged(slow_actors: usize) -> [Duration; 2] {
    const FINE_ACTORS: usize = 200;
    // By this time the slow broker holds as many workers as it can get.
    const BUSY_SINCE: Duration = Duration::from_secs(30);
    let settings = Settings::default();
    let workers = settings.workers;
    let queue: WorkQueue<(char, usize)> = WorkQueue::observed(settings, Arc::new(Metrics::new()));
    (0..slow_actors).for_each(|number| queue.now(('a', number)));
    let gate = |name| {
        let gate = BrokerLimiter::new(name, Fence::open(), Arc::default());
        Arc::new(gate.for_workers(workers))
    };
    let (slow, fine) = (gate("a"), gate("b"));
    let seen: Arc<Mutex<[(usize, Duration); 2]>> = Arc::default();
    let (began, ended, all) = (Instant::now(), Arc::clone(&seen), queue.clone());
    let others = queue.clone();
    let run = queue.run(move |(broker, number), _| {
        let (slow, fine, ended) = (Arc::clone(&slow), Arc::clone(&fine), Arc::clone(&ended));
        let all = all.clone();
        async move {
            let (gate, looks, takes) = if broker == 'a' {
                let takes = Duration::from_millis(2500);
                // One of the 10 concurrent calls ends every 250 ms, so no waiting call gives up: only the limit on
                // waiting reconciles leaves workers to others.
                let later = Duration::from_millis(250) * u32::try_from(number % 10).unwrap();
                let looks = if number < 10 { takes + later } else { takes };
                (slow, looks, takes)
            } else {
                let takes = Duration::from_millis(100);
                (fine, takes, takes)
            };
            if let Err(error) = converge(&gate, looks, takes).await {
                return RunOutcome::Again(error.comes_again().unwrap());
            }
            let mut ended = ended.lock().unwrap();
            let (of, began) = match broker {
                'a' => (&mut ended[1], began),
                _ => (&mut ended[0], began + BUSY_SINCE),
            };
            *of = (of.0 + 1, began.elapsed());
            if ended[0].0 == FINE_ACTORS && ended[1].0 == slow_actors {
                all.close();
            }
            RunOutcome::Done
        }
    });
    let fine_ones = async {
        sleep(BUSY_SINCE).await;
        (0..FINE_ACTORS).for_each(|number| others.now(('b', number)));
    };
    let both = async { tokio::join!(run, fine_ones) };
    timeout(Duration::from_hours(1), both).await.unwrap();
    seen.lock().unwrap().map(|(_, last)| last)
}

/// OPS-22
#[tokio::test(start_paused = true)]
async fn actors_converge_beside_a_slow_broker_as_fast_as_without_it() {
    let [alone, _] = converged(0).await;
    let [beside, slow] = converged(500).await;
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    assert!(ratio <= 1.25, "{beside:?} beside it, {alone:?} without it");
    // 500 actors with 3 calls of 2.5 s each, 10 at once.
    assert!(
        slow <= 2 * Duration::from_secs(375),
        "the slow broker is kept at work: {slow:?}"
    );
}
