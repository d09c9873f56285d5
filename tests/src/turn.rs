//! Coordinates scenarios that share one machine.
//!
//! Scenarios on the shared cluster run concurrently, or alone while something is timed. No cluster starts during a
//! measurement, since that is what costs most. The number of clusters besides the shared one is limited.

use std::io::Write;
use std::sync::Once;
use std::thread::available_parallelism;
use std::time::Instant;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit};

/// Concurrent scenarios are readers, a measurement is the writer. The lock is fair: readers queue behind a waiting
/// writer.
static QUIET: RwLock<()> = RwLock::const_new(());

/// Permission to run a separate cluster, until this is dropped.
pub struct OwnCluster {
    _permit: Option<SemaphorePermit<'static>>,
    _stopwatch: Stopwatch,
}

/// Waits for permission to run a separate cluster. The limit is one more than the number of processors, since clusters
/// are idle most of the time.
pub async fn own_cluster() -> OwnCluster {
    static TURNS: Semaphore = Semaphore::const_new(0);
    static FIRST: Once = Once::new();
    FIRST.call_once(|| TURNS.add_permits(available_parallelism().map_or(2, usize::from) + 1));
    let permit = TURNS.acquire().await.ok();
    OwnCluster {
        _permit: permit,
        _stopwatch: Stopwatch::start(),
    }
}

/// A measurement in progress, until this is dropped.
pub struct Quiet {
    guard: RwLockWriteGuard<'static, ()>,
}

impl Quiet {
    /// Ends the measurement, without a wait for those that are still to come.
    pub(crate) fn end(self) -> Beside {
        Beside {
            _guard: self.guard.downgrade(),
        }
    }
}

/// Waits until no scenario uses the shared cluster and no cluster starts, so that nothing disturbs a measurement.
pub async fn quiet() -> Quiet {
    Quiet {
        guard: QUIET.write().await,
    }
}

/// Work that must not run during a measurement, until this is dropped.
pub struct Beside {
    _guard: RwLockReadGuard<'static, ()>,
}

/// Waits until no measurement is in progress.
pub async fn beside_others() -> Beside {
    Beside {
        _guard: QUIET.read().await,
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
        // The test harness names threads after their tests.
        let thread = std::thread::current();
        let (seconds, name) = (self.0.elapsed().as_secs_f64(), thread.name());
        let line = format!("{seconds:6.1} s  {}\n", name.unwrap_or_default());
        // Written to stderr directly, since the output of `print!` is captured.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
