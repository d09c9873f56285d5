//! Reports the progress of a crowd, and aborts work that takes too long.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asya_tests::{Error, Result};

/// Interval of progress reports.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Counts {
    size: usize,
    created: AtomicUsize,
    settled: AtomicUsize,
    left: AtomicUsize,
}

impl Counts {
    /// Starts counting for a crowd of this size.
    pub fn of(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Counts a created actor.
    pub fn created(&self) {
        self.created.fetch_add(1, Ordering::Relaxed);
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a settled actor.
    pub fn settled(&self) {
        self.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of actors that still exist.
    pub fn left(&self, left: usize) {
        self.left.store(left, Ordering::Relaxed);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [created, settled, left] =
            [&self.created, &self.settled, &self.left].map(|it| it.load(Ordering::Relaxed));
        let size = self.size;
        write!(
            f,
            "of {size} actors {created} created, {settled} settled, {left} there"
        )
    }
}

/// The time limit of a run.
pub struct Limit {
    ends: Instant,
}

impl Limit {
    /// Limits the whole run.
    pub fn after(all: Duration) -> Self {
        Self {
            ends: Instant::now() + all,
        }
    }

    /// Runs one part of the work, and reports its progress on stderr.
    ///
    /// # Errors
    /// If the work fails or takes longer than `at_most`, or the time for the whole run is over.
    pub async fn part<T>(
        &self,
        what: &str,
        (counts, at_most): (&Counts, Duration),
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let seconds = || began.elapsed().as_secs();
        let time = at_most.min(self.ends.saturating_duration_since(began));
        let tell = async {
            loop {
                tokio::time::sleep(EVERY).await;
                eprintln!("{what}: after {} s {counts}", seconds());
            }
        };
        tokio::select! {
            done = tokio::time::timeout(time, work) => {
                let done = done.map_err(|_| {
                    Error::Other(format!("{what}: not done within {} s: {counts}", time.as_secs()))
                })?;
                eprintln!("{what}: {} after {} s", if done.is_ok() { "done" } else { "failed" }, seconds());
                done
            }
            () = tell => Err(Error::other("telling has no end")),
        }
    }
}
