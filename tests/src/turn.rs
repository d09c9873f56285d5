//! Whose turn it is: scenarios share one machine.
//!
//! Scenarios on the shared cluster run beside each other, or alone while something is timed; no cluster starts then,
//! which is what costs most. Clusters besides the shared one are few at a time.

use std::io::Write;
use std::sync::Once;
use std::thread::available_parallelism;
use std::time::Instant;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit};

/// Readers run beside each other, a writer alone. It is fair: who comes after a writer waits for it.
static QUIET: RwLock<()> = RwLock::const_new(());

/// The turn to run a cluster of one's own, until it is dropped.
pub struct OwnCluster {
    _permit: Option<SemaphorePermit<'static>>,
    _stopwatch: Stopwatch,
}

/// Waits for the turn to run a cluster of one's own: one more of them than there are processors, since most of the
/// time they wait for something.
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

/// Something is timed, until this is dropped.
pub struct Quiet {
    _guard: RwLockWriteGuard<'static, ()>,
}

/// Waits until nobody uses the shared cluster and none starts: for what is timed.
pub async fn quiet() -> Quiet {
    Quiet {
        _guard: QUIET.write().await,
    }
}

/// Something that may not disturb what is timed, until this is dropped.
pub struct Beside {
    _guard: RwLockReadGuard<'static, ()>,
}

/// Waits until nothing is timed.
pub async fn beside_others() -> Beside {
    Beside {
        _guard: QUIET.read().await,
    }
}

/// Says how long a test took, when it ends.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        // The test harness names threads by their tests.
        let thread = std::thread::current();
        let (seconds, name) = (self.0.elapsed().as_secs_f64(), thread.name());
        let line = format!("{seconds:6.1} s  {}\n", name.unwrap_or_default());
        // Not captured, as what a test prints is.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
