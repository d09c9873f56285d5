//! Waits for conditions instead of sleeping.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Time limit for what a running operator does, on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);
/// Time limit for what a program does that was just started, such as an operator, a webhook or KEDA.
pub const AFTER_START: Duration = Duration::from_mins(1);
/// Time limit for what several controllers do one after the other: KEDA, the HPA, the owners of targets.
pub const LATER: Duration = Duration::from_mins(2);

/// Why a condition does not hold yet: the state that was observed instead.
///
/// Every error converts into one with `?`, so that a call that fails temporarily is retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotYet(String);

impl NotYet {
    /// The reason, given as the observed state.
    pub fn new(seen: impl Display) -> Self {
        Self(seen.to_string())
    }
}

impl<E: std::error::Error> From<E> for NotYet {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Polls `look`, with increasing pauses, until it returns a value.
///
/// # Errors
/// After `timeout`, with the last observed state.
pub async fn eventually<T, F>(what: impl Display, timeout: Duration, mut look: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<T, NotYet>,
{
    let started = Instant::now();
    let mut pause = Duration::from_millis(20);
    let mut last = NotYet::new("nothing: the first look did not end");
    loop {
        // The timeout could not interrupt a `look` that completes at once.
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

/// Polls `look` for the whole span and fails as soon as `look` does: for conditions that must hold throughout.
///
/// # Errors
/// The state that `look` observed.
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

/// Succeeds if the condition holds; otherwise reports the observed state.
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
