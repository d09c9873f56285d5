#![allow(clippy::unwrap_used, clippy::expect_used)]

mod retries;

use std::sync::atomic::{AtomicUsize, Ordering};

use asya_shared::backoff::Backoff;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;

const FAILED: RunOutcome = RunOutcome::FAILED;

/// Gap 1 s, and retries after 1, 2, 4, 8, 10, 10, … s without jitter.
fn settings() -> WorkQueueSettings {
    WorkQueueSettings {
        min_interval: Duration::from_secs(1),
        workers: 32,
        retry: RetryPolicy {
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(10)),
            attempts: 0,
        },
    }
}

fn settings_with(change: impl FnOnce(&mut WorkQueueSettings)) -> WorkQueueSettings {
    let mut settings = settings();
    change(&mut settings);
    settings
}

#[derive(Clone, Debug)]
struct Run {
    key: &'static str,
    at: u64,
    attempt: Attempt,
}

#[derive(Default)]
struct RecordingObserver {
    waited: Mutex<Vec<u64>>,
    retried: AtomicUsize,
    panicked: AtomicUsize,
}

impl Observer for RecordingObserver {
    fn started(&self, waited: Duration) {
        self.waited.lock().push(millis(waited));
    }
    fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }
    fn panicked(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

/// A running queue that records every start.
struct Bench {
    queue: WorkQueue<&'static str>,
    observer: Arc<RecordingObserver>,
    runs: Arc<Mutex<Vec<Run>>>,
    zero: Instant,
    task: JoinHandle<()>,
}

impl Bench {
    /// `work` receives the key and the index of the key's run, from 0.
    fn new<F, Fut>(settings: WorkQueueSettings, work: F) -> Self
    where
        F: Fn(&'static str, usize) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = RunOutcome> + Send + 'static,
    {
        let observer = Arc::new(RecordingObserver::default());
        let queue = WorkQueue::with_observer(settings, Arc::clone(&observer) as Arc<dyn Observer>);
        let runs = Arc::new(Mutex::new(Vec::<Run>::new()));
        let zero = Instant::now();
        let handle = queue.clone();
        let log = Arc::clone(&runs);
        let task = tokio::spawn(async move {
            let work = move |key, attempt| {
                let at = millis(zero.elapsed());
                let mut runs = log.lock();
                let nth = runs.iter().filter(|run| run.key == key).count();
                runs.push(Run { key, at, attempt });
                drop(runs);
                work(key, nth)
            };
            handle.run(work).await;
        });
        Self {
            queue,
            observer,
            runs,
            zero,
            task,
        }
    }

    async fn until(&self, at: u64) {
        tokio::time::sleep_until(self.zero + Duration::from_millis(at)).await;
    }

    fn at(&self, key: &'static str, at: u64) {
        self.queue
            .enqueue_at(key, self.zero + Duration::from_millis(at));
    }

    fn runs(&self) -> Vec<Run> {
        self.runs.lock().clone()
    }

    fn starts(&self, key: &str) -> Vec<u64> {
        let of_key = self.runs().into_iter().filter(|run| run.key == key);
        of_key.map(|run| run.at).collect()
    }
}

/// Succeeds after this time.
async fn takes(millis: u64) -> RunOutcome {
    sleep(Duration::from_millis(millis)).await;
    RunOutcome::Done
}

/// FW-8
#[tokio::test(start_paused = true)]
async fn first_run_starts_immediately_and_later_ones_once_per_gap() {
    let bench = Bench::new(settings(), |_, _| takes(50));
    for at in (0..=3050).step_by(50) {
        bench.until(at + 7).await;
        bench.queue.enqueue("a");
    }
    bench.until(60_000).await;
    assert_eq!(bench.starts("a"), [7, 1007, 2007, 3007, 4007]);
}

/// FW-1
#[tokio::test(start_paused = true)]
async fn events_during_a_run_cause_exactly_one_more_run() {
    let bench = Bench::new(settings(), |_, _| takes(3000));
    bench.queue.enqueue("a");
    for at in [10, 900, 1500, 2999] {
        bench.until(at).await;
        bench.queue.enqueue("a");
        assert_eq!(bench.queue.sizes().in_flight, 1);
    }
    bench.until(60_000).await;
    assert_eq!(bench.starts("a"), [0, 3000]);
}

/// FW-1
#[tokio::test(start_paused = true)]
async fn keys_run_concurrently() {
    let bench = Bench::new(settings(), |_, _| takes(3000));
    for key in ["a", "b", "c"] {
        bench.queue.enqueue(key);
    }
    bench.until(5).await;
    let runs = bench.runs();
    assert_eq!(runs.iter().map(|run| run.at).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(bench.queue.sizes().in_flight, 3);
}

/// FW-7
#[tokio::test(start_paused = true)]
async fn run_repeats_after_its_own_timer() {
    let bench = Bench::new(settings(), |_, nth| async move {
        match nth {
            0 => RunOutcome::RequeueAfter(Duration::from_secs(10)),
            1 => RunOutcome::RequeueAfter(Duration::ZERO),
            _ => RunOutcome::Done,
        }
    });
    bench.queue.enqueue("a");
    bench.until(60_000).await;
    assert_eq!(
        bench.starts("a"),
        [0, 10_000, 11_000],
        "the minimum interval also applies to timers"
    );
}

/// FW-7
#[tokio::test(start_paused = true)]
async fn earlier_event_replaces_a_later_timer() {
    let bench = Bench::new(settings(), |_, nth| async move {
        if nth == 0 {
            RunOutcome::RequeueAfter(Duration::from_secs(10))
        } else {
            RunOutcome::Done
        }
    });
    bench.queue.enqueue("a");
    bench.until(4000).await;
    bench.queue.enqueue("a");
    bench.until(60_000).await;
    assert_eq!(bench.starts("a"), [0, 4000]);
}

/// FW-7
#[tokio::test(start_paused = true)]
async fn later_timer_does_not_delay_an_earlier_one() {
    let bench = Bench::new(settings(), |_, _| takes(0));
    for at in [9000, 5000, 7000] {
        bench.at("a", at);
    }
    bench.until(60_000).await;
    assert_eq!(bench.starts("a"), [5000]);
}

/// FW-7
#[tokio::test(start_paused = true)]
async fn earlier_of_event_and_timer_starts_the_next_run() {
    let bench = Bench::new(settings(), |_, nth| async move {
        sleep(Duration::from_secs(2)).await;
        if nth == 0 {
            RunOutcome::RequeueAfter(Duration::from_secs(3))
        } else {
            RunOutcome::Done
        }
    });
    bench.queue.enqueue("early");
    bench.queue.enqueue("late");
    bench.until(1000).await;
    bench.at("early", 4000);
    bench.at("late", 9000);
    bench.until(60_000).await;
    assert_eq!(bench.starts("early"), [0, 4000]);
    assert_eq!(bench.starts("late"), [0, 5000]);
}

#[tokio::test(start_paused = true)]
async fn worker_limit_holds_and_the_oldest_due_key_runs_first() {
    let bench = Bench::new(settings_with(|s| s.workers = 2), |_, _| takes(1000));
    for (at, key) in [(10, "z"), (20, "y"), (30, "x"), (40, "b"), (50, "a")] {
        bench.at(key, at);
    }
    bench.until(900).await;
    let sizes = QueueSizes {
        ready: 3,
        waiting: 0,
        in_flight: 2,
    };
    assert_eq!(bench.queue.sizes(), sizes);
    bench.until(60_000).await;
    let order: Vec<_> = bench.runs().iter().map(|run| (run.key, run.at)).collect();
    assert_eq!(
        order,
        [("z", 10), ("y", 20), ("x", 1010), ("b", 1020), ("a", 2010)]
    );
    assert_eq!(*bench.observer.waited.lock(), [0, 0, 980, 980, 1960]);
}

/// Waking up to drop idle slots while no worker is free would busy-loop.
#[tokio::test]
async fn queue_sleeps_while_all_workers_are_busy() {
    let min_interval = Duration::from_secs(1);
    let now = Instant::now();
    let mut schedule = Schedule::new(min_interval, RetryPolicy::default());
    for key in ["short", "long"] {
        schedule.plan(key, now);
        schedule.start(now).unwrap();
    }
    schedule.finish(&"short", RunOutcome::Done, now);
    assert_eq!(schedule.wake_at(false), None);
    assert_eq!(schedule.wake_at(true), Some(now + min_interval));
}

/// FW-16
#[tokio::test(start_paused = true)]
async fn closed_queue_starts_no_run_and_ends_after_the_last() {
    let bench = Bench::new(settings(), |_, _| takes(3000));
    bench.queue.enqueue("a");
    bench.at("planned", 2000);
    bench.until(1000).await;
    bench.queue.close();
    bench.queue.enqueue("a");
    bench.queue.enqueue("b");
    bench.until(2990).await;
    assert!(!bench.task.is_finished());
    bench.until(3010).await;
    assert!(bench.task.is_finished());
    assert_eq!(bench.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn idle_queue_ends_when_closed() {
    let bench = Bench::new(settings(), |_, _| takes(0));
    bench.until(1000).await;
    bench.queue.close();
    bench.task.await.unwrap();
    assert_eq!(bench.zero.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn slot_of_an_idle_key_is_dropped_after_the_minimum_interval() {
    let bench = Bench::new(settings(), |_, nth| {
        takes(if nth == 0 { 5000 } else { 100 })
    });
    bench.queue.enqueue("a");
    bench.queue.enqueue("b");
    bench.until(5100).await;
    bench.queue.enqueue("a"); // until 5200; the slot's first interval ends at 6000
    bench.until(6050).await;
    assert_eq!(bench.queue.schedule().keys(), 1);
    bench.queue.enqueue("a");
    bench.until(60_000).await;
    assert_eq!(bench.starts("a"), [0, 5100, 6100]);
    assert_eq!(bench.queue.schedule().keys(), 0);
}
