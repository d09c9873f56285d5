//! A broker that hangs, and the passes of actors on another.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::metrics::Metrics;
use crate::queue::gate::{Labelled, Operation};
use crate::work_queue::{Outcome, Settings, WorkQueue};

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
async fn few_workers_are_not_all_held_by_one_broker_that_hangs() {
    let few = Settings {
        workers: 8,
        ..Settings::default()
    };
    seen_while_one_hangs(few, 20).await;
}

async fn seen_while_one_hangs(settings: Settings, fine_actors: usize) {
    let workers = settings.workers;
    let queue: WorkQueue<(char, usize)> = WorkQueue::observed(settings, Arc::new(Metrics::new()));
    // those on the broker that hangs come first, and there are more of them than workers
    for number in 0..300 {
        queue.now(('a', number));
    }
    for number in 0..fine_actors {
        queue.now(('b', number));
    }
    let gate = |name| {
        let gate = Gate::new(name, Fence::open(), Arc::default());
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
                    Err(BrokerError::Busy(_)) => Outcome::Again(Duration::from_secs(1)),
                    _ => Outcome::FAILED,
                };
            }
            let call = async {
                sleep(Duration::from_millis(20)).await;
                Ok(Yes)
            };
            assert!(fine.call(LOOK, call).await.is_ok());
            ended.lock().unwrap().push(began.elapsed());
            Outcome::Done
        }
    });
    assert!(timeout(Duration::from_mins(1), run).await.is_err());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), fine_actors);
    let last = seen.iter().max().unwrap();
    assert!(*last < Duration::from_secs(1), "{last:?}");
}
