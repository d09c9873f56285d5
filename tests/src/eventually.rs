//! Waiting for conditions, never for time.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Why a condition does not hold yet: what was seen instead.
///
/// Every error becomes one by `?`, so that a call which fails for now is just
/// tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotYet(String);

impl NotYet {
    /// What was seen.
    pub fn new(seen: impl Display) -> Self {
        Self(seen.to_string())
    }
}

impl<E: std::error::Error> From<E> for NotYet {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Looks again and again, quickly at first, until `look` returns a value.
///
/// # Errors
/// After `timeout`, with what was seen last.
pub async fn eventually<T, F>(what: impl Display, timeout: Duration, mut look: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<T, NotYet>,
{
    let started = Instant::now();
    let mut pause = Duration::from_millis(20);
    let mut last = NotYet::new("nothing: the first look did not end");
    loop {
        // A look that needs no time would never be cut off by the timeout.
        let left = timeout.saturating_sub(started.elapsed());
        if !left.is_zero() {
            match tokio::time::timeout(left, look()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(seen)) => {
                    last = seen;
                    tokio::time::sleep(pause.min(left)).await;
                    pause = (pause * 3 / 2).min(Duration::from_millis(250));
                    continue;
                }
                Err(_) => {}
            }
        }
        return Err(Error::Timeout {
            what: what.to_string(),
            timeout,
            last: last.0,
        });
    }
}

/// Looks during a whole span and fails as soon as `look` does: for what must
/// *not* happen.
///
/// # Errors
/// What `look` saw.
pub async fn always<F>(what: impl Display, span: Duration, mut look: F) -> Result<()>
where
    F: AsyncFnMut() -> Result<(), NotYet>,
{
    let started = Instant::now();
    while started.elapsed() < span {
        if let Err(seen) = look().await {
            let elapsed = started.elapsed();
            return Err(Error::Other(format!(
                "after {elapsed:?} no longer: {what}; seen: {}",
                seen.0
            )));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Says that a condition holds, or what is seen instead.
///
/// # Errors
/// When it does not hold.
pub fn check(holds: bool, seen: impl Display) -> Result<(), NotYet> {
    if holds {
        Ok(())
    } else {
        Err(NotYet::new(seen))
    }
}

#[cfg(test)]
mod tests;
