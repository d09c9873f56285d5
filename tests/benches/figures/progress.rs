//! Says how far a crowd has come, and ends what takes too long.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asya_tests::{Error, Result};

/// How often it is said.
const EVERY: Duration = Duration::from_secs(10);

/// How many actors of a crowd have come how far.
#[derive(Default)]
pub struct Counts {
    size: usize,
    created: AtomicUsize,
    settled: AtomicUsize,
    left: AtomicUsize,
}

impl Counts {
    /// Of a crowd of so many.
    pub fn of(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// One more is created.
    pub fn created(&self) {
        self.created.fetch_add(1, Ordering::Relaxed);
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// One more has come to rest.
    pub fn settled(&self) {
        self.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// So many are there still.
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

/// The time that a run of this program may take.
pub struct Limit {
    ends: Instant,
}

impl Limit {
    /// All of it together.
    pub fn after(all: Duration) -> Self {
        Self {
            ends: Instant::now() + all,
        }
    }

    /// Does one part of the work, and says on standard error how far it is.
    ///
    /// # Errors
    /// When the work fails, takes more than `at_most`, or the time of the whole run is over.
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
