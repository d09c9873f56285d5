//! Schedules scenarios that share one machine.
//!
//! The test harness starts them all at once, each on a thread of its own, and each waits here for its turn:
//!
//! - Some run at a time on the shared cluster, and some on clusters of their own, those first that took longest when
//!   they last ran. What waits for minutes and does little meanwhile takes no turn.
//! - What is timed comes last, when all others have ended: alone, because a latency on a busy machine means nothing. A
//!   scenario of which only a part is timed waits there for the end of the others, without its turn.
//! - Clusters for what is timed on them start after that, since they would disturb it.
//!
//! No cluster starts during a measurement, since that is what costs most.

mod durations;

use std::io::Write;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit, watch};
use tokio::time::sleep_until;

/// Scenarios in progress are readers, a measurement is the writer. The lock is fair: readers queue behind a waiting
/// writer.
static QUIET: RwLock<()> = RwLock::const_new(());

static AGENDA: LazyLock<Agenda> = LazyLock::new(|| Agenda {
    started: Instant::now(),
    pending: watch::Sender::new(0),
    timed: watch::Sender::new(0),
});

/// In this time the test harness has started all threads.
const START: Duration = Duration::from_secs(1);

/// The scenarios that others wait for.
struct Agenda {
    started: Instant,
    /// How many have not ended, nor wait for the end of the others.
    pending: watch::Sender<usize>,
    /// How many are timed on the shared cluster.
    timed: watch::Sender<usize>,
}

/// A scenario that others wait for, until this is dropped.
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

/// Waits until all scenarios that take turns have ended, or wait here as well.
async fn after_all_others() {
    sleep_until((AGENDA.started + START).into()).await;
    none_left(&AGENDA.pending).await;
}

async fn none_left(counter: &watch::Sender<usize>) {
    // The sender lives as long as the process.
    let _ = counter.subscribe().wait_for(|count| *count == 0).await;
}

/// `ASYA_TEST_SLOTS`: how many run at a time on the shared cluster if all tests are started at once.
fn slots() -> Option<usize> {
    std::env::var("ASYA_TEST_SLOTS").ok()?.parse().ok()
}

/// Waits until this test may queue for a turn. Turns are given in the order of the queue.
async fn in_order() {
    if slots().is_some() {
        let rank = durations::rank(&test_name());
        let place = Duration::from_millis(rank.try_into().unwrap_or(u64::MAX));
        sleep_until((AGENDA.started + START + place).into()).await;
    }
}

/// The test harness names threads after their tests.
fn test_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

fn processors() -> usize {
    available_parallelism().map_or(2, usize::from)
}

/// Permission to run on the shared cluster, until this is dropped.
pub(crate) struct Shared {
    _permit: Option<SemaphorePermit<'static>>,
    _pending: Counted,
    _beside: Beside,
}

/// Waits for permission to run on the shared cluster. `ASYA_TEST_SLOTS` sets how many have it at a time.
pub(crate) async fn shared_cluster() -> Shared {
    static TURNS: LazyLock<Semaphore> =
        LazyLock::new(|| Semaphore::new(slots().unwrap_or(3 * processors()).max(1)));
    let pending = Counted::among(&AGENDA.pending);
    in_order().await;
    let permit = TURNS.acquire().await.ok();
    Shared {
        _permit: permit,
        _pending: pending,
        _beside: beside_others().await,
    }
}

/// Permission to run a separate cluster, until this is dropped.
pub struct OwnCluster {
    _permit: Option<SemaphorePermit<'static>>,
    _pending: Option<Counted>,
    _stopwatch: Stopwatch,
}

/// Waits for permission to run a separate cluster. The limit is one more than the number of processors, since clusters
/// are idle most of the time.
pub async fn own_cluster() -> OwnCluster {
    let pending = Counted::among(&AGENDA.pending);
    in_order().await;
    OwnCluster {
        _permit: permission_for_a_cluster().await,
        _pending: Some(pending),
        _stopwatch: Stopwatch::start(),
    }
}

/// The same for a scenario that times something: it comes last, and calls [`quiet`] before it does.
pub async fn own_cluster_to_time() -> OwnCluster {
    after_all_others().await;
    none_left(&AGENDA.timed).await;
    OwnCluster {
        _permit: permission_for_a_cluster().await,
        _pending: None,
        _stopwatch: Stopwatch::start(),
    }
}

async fn permission_for_a_cluster() -> Option<SemaphorePermit<'static>> {
    static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors() + 1));
    TURNS.acquire().await.ok()
}

/// A measurement in progress, until this is dropped.
pub struct Quiet {
    guard: RwLockWriteGuard<'static, ()>,
    timed: Option<Counted>,
}

impl Quiet {
    /// Ends the measurement, without a wait for those that are still to come.
    pub(crate) fn end(self) -> Beside {
        Beside {
            _guard: self.guard.downgrade(),
            _timed: self.timed,
        }
    }
}

/// Waits until no scenario uses the shared cluster and no cluster starts, so that nothing disturbs a measurement.
pub async fn quiet() -> Quiet {
    Quiet {
        guard: QUIET.write().await,
        timed: None,
    }
}

/// The same for a scenario of which all, or the rest, is timed: it comes last.
pub(crate) async fn quiet_at_the_end() -> Quiet {
    let timed = Counted::among(&AGENDA.timed);
    after_all_others().await;
    Quiet {
        timed: Some(timed),
        ..quiet().await
    }
}

/// Work that must not run during a measurement, until this is dropped.
pub struct Beside {
    _guard: RwLockReadGuard<'static, ()>,
    _timed: Option<Counted>,
}

/// Waits until no measurement is in progress.
pub async fn beside_others() -> Beside {
    Beside {
        _guard: QUIET.read().await,
        _timed: None,
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
        // Written to stderr directly, since the output of `print!` is captured.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
