//! Schedules scenarios that share one machine.
//!
//! The test harness starts all scenarios at once, each on its own thread, and each waits here for a slot:
//!
//! - A limited number runs on the shared cluster at a time, and a limited number on clusters of their own, longest
//!   first by their last duration. Scenarios that wait for minutes and are mostly idle need no slot.
//! - Timed scenarios come last, when all others have ended, because on a busy machine a latency is meaningless. A few
//!   run at a time, since they are mostly idle, or one alone. A scenario of which only a part is timed gives up its
//!   slot and waits there for the end of the others.
//! - Clusters for timed scenarios of their own start after that, because starting them would disturb the others.
//! - A scenario that measures load on its own cluster has the machine to itself, from the start of that cluster to its
//!   end.
//!
//! No cluster starts during a measurement, because that costs the most.

mod durations;

use std::io::Write;
use std::sync::{Arc, LazyLock, Weak};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::sync::{
    Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit, watch,
};
use tokio::time::sleep_until;

/// Scenarios in progress are readers, a measurement is a writer. The lock is fair: readers queue behind a waiting
/// writer.
static MEASUREMENT: RwLock<()> = RwLock::const_new(());

static PROGRESS: LazyLock<Progress> = LazyLock::new(|| Progress {
    started: Instant::now(),
    pending: watch::Sender::new(0),
    timed: watch::Sender::new(0),
});

/// Within this time, the test harness has started all threads.
const START: Duration = Duration::from_secs(1);

/// Counts the scenarios that others wait for.
struct Progress {
    started: Instant,
    /// How many have not ended and are not waiting for the others to end.
    pending: watch::Sender<usize>,
    /// How many are timed on the shared cluster.
    timed: watch::Sender<usize>,
}

/// Counts a scenario that others wait for, until dropped.
struct Counted(&'static watch::Sender<usize>);

impl Counted {
    fn among(counter: &'static watch::Sender<usize>) -> Self {
        counter.send_modify(|count| *count += 1);
        Self(counter)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Waits until all scenarios that take slots have ended or wait here, too.
async fn after_all_others() {
    sleep_until((PROGRESS.started + START).into()).await;
    none_left(&PROGRESS.pending).await;
}

async fn none_left(counter: &watch::Sender<usize>) {
    // The sender lives as long as the process.
    let _ = counter.subscribe().wait_for(|count| *count == 0).await;
}

/// `ASYA_TEST_SLOTS`: how many run at a time on the shared cluster, if all tests are started at once.
fn slots() -> Option<usize> {
    std::env::var("ASYA_TEST_SLOTS").ok()?.parse().ok()
}

/// Waits until this test may queue for a slot. Slots are assigned in queue order.
async fn in_order() {
    if slots().is_some() {
        let rank = durations::rank(&test_name());
        let place = Duration::from_millis(rank.try_into().unwrap_or(u64::MAX));
        sleep_until((PROGRESS.started + START + place).into()).await;
    }
}

/// The test harness names threads after their tests.
fn test_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

fn processors() -> usize {
    available_parallelism().map_or(2, usize::from)
}

/// Permission to run on the shared cluster, until dropped.
pub(crate) struct Shared {
    _permit: Option<SemaphorePermit<'static>>,
    _pending: Counted,
    _beside: NoMeasurement,
}

/// Waits for permission to run on the shared cluster. `ASYA_TEST_SLOTS` sets how many have it at a time.
pub(crate) async fn shared_cluster() -> Shared {
    static SLOTS: LazyLock<Semaphore> =
        LazyLock::new(|| Semaphore::new(slots().unwrap_or(3 * processors()).max(1)));
    let pending = Counted::among(&PROGRESS.pending);
    in_order().await;
    let permit = SLOTS.acquire().await.ok();
    Shared {
        _permit: permit,
        _pending: pending,
        _beside: no_measurement().await,
    }
}

/// Permission to run a separate cluster, until dropped.
pub struct OwnCluster {
    _permit: Option<SemaphorePermit<'static>>,
    _pending: Option<Counted>,
    _turn: Option<Turn>,
    _stopwatch: Stopwatch,
}

/// Scenarios on their own clusters that are timed run concurrently; those that measure load run alone.
static TURNS: RwLock<()> = RwLock::const_new(());

enum Turn {
    ToTime {
        _guard: RwLockReadGuard<'static, ()>,
    },
    ToMeasure {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

/// Waits for permission to run a separate cluster. The limit is one more than the number of processors, because
/// clusters are mostly idle.
pub async fn own_cluster() -> OwnCluster {
    let pending = Counted::among(&PROGRESS.pending);
    in_order().await;
    OwnCluster {
        _permit: permission_for_a_cluster().await,
        _pending: Some(pending),
        _turn: None,
        _stopwatch: Stopwatch::start(),
    }
}

/// Like [`own_cluster`], for a scenario that times something: it comes last, and calls [`timed`] before it does.
pub async fn own_cluster_to_time() -> OwnCluster {
    own_cluster_at_the_end(Turn::to_time).await
}

/// Like [`own_cluster`], for a scenario that measures load: it comes last, and nothing runs beside it.
pub async fn own_cluster_to_measure() -> OwnCluster {
    own_cluster_at_the_end(Turn::to_measure).await
}

impl Turn {
    async fn to_time() -> Self {
        Self::ToTime {
            _guard: TURNS.read().await,
        }
    }

    async fn to_measure() -> Self {
        Self::ToMeasure {
            _guard: TURNS.write().await,
        }
    }
}

async fn own_cluster_at_the_end(turn: impl AsyncFnOnce() -> Turn) -> OwnCluster {
    after_all_others().await;
    none_left(&PROGRESS.timed).await;
    OwnCluster {
        _turn: Some(turn().await),
        _permit: permission_for_a_cluster().await,
        _pending: None,
        _stopwatch: Stopwatch::start(),
    }
}

async fn permission_for_a_cluster() -> Option<SemaphorePermit<'static>> {
    static SLOTS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors() + 1));
    SLOTS.acquire().await.ok()
}

/// The shared cluster for one scenario, until dropped.
pub(crate) struct Exclusive {
    _guard: RwLockWriteGuard<'static, ()>,
    _timed: Counted,
}

/// For a scenario on the shared cluster beside which no other may run: it comes last.
pub(crate) async fn exclusive_at_the_end() -> Exclusive {
    let timed = Counted::among(&PROGRESS.timed);
    after_all_others().await;
    Exclusive {
        _guard: MEASUREMENT.write().await,
        _timed: timed,
    }
}

/// A measurement beside which a few others may run, until dropped.
pub struct Timed {
    _permit: Option<SemaphorePermit<'static>>,
    _window: Arc<RwLockWriteGuard<'static, ()>>,
    _counted: Option<Counted>,
}

/// Waits until only a few other measurements run; each occupies a processor for a seventh of its time.
pub async fn timed() -> Timed {
    static SLOTS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors() + 1));
    static WINDOW: Mutex<Weak<RwLockWriteGuard<'static, ()>>> = Mutex::const_new(Weak::new());
    let permit = SLOTS.acquire().await.ok();
    let mut current = WINDOW.lock().await;
    let window = match current.upgrade() {
        Some(window) => window,
        None => Arc::new(MEASUREMENT.write().await),
    };
    *current = Arc::downgrade(&window);
    Timed {
        _permit: permit,
        _window: window,
        _counted: None,
    }
}

/// Like [`timed`], for a scenario that is timed as a whole, or from now on: it comes last.
pub(crate) async fn timed_at_the_end() -> Timed {
    let counted = Counted::among(&PROGRESS.timed);
    after_all_others().await;
    Timed {
        _counted: Some(counted),
        ..timed().await
    }
}

/// Work that must not run during a measurement, until dropped.
pub struct NoMeasurement {
    _guard: RwLockReadGuard<'static, ()>,
}

/// Waits until no measurement is in progress.
pub async fn no_measurement() -> NoMeasurement {
    NoMeasurement {
        _guard: MEASUREMENT.read().await,
    }
}

/// Prints how long a test took when it ends.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        let (seconds, name) = (self.0.elapsed().as_secs_f64(), test_name());
        durations::record(&name, seconds);
        let line = format!("{seconds:6.1} s  {name}\n");
        // Written to stderr directly, because the output of `print!` is captured.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_measures_load_has_its_turn_alone() {
        let minute = Duration::from_mins(1);
        let timed = Turn::to_time().await;
        let beside = timeout(minute, Turn::to_time()).await;
        assert!(beside.is_ok(), "those that are timed run beside each other");
        drop(beside);
        assert!(timeout(minute, Turn::to_measure()).await.is_err());
        drop(timed);
        let measured = Turn::to_measure().await;
        assert!(timeout(minute, Turn::to_time()).await.is_err());
        assert!(timeout(minute, Turn::to_measure()).await.is_err());
        drop(measured);
        assert!(timeout(minute, Turn::to_time()).await.is_ok());
    }
}
