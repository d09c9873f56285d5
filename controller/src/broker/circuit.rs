//! When a broker that does not answer is left alone (QUE-9). Pure: the clock is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::BrokerError;

/// So many calls without an answer in a row, and the broker is left alone.
const FAILURES: u32 = 5;
/// For how long.
const REST: Duration = Duration::from_secs(30);

/// Whether a broker may be called.
#[derive(Debug, Default)]
pub struct Circuit {
    /// Calls without an answer in a row.
    failures: u32,
    /// Left alone until then, and what the last call came to: while nothing is called, nothing new
    /// is told (QUE-11).
    resting: Option<(Instant, BrokerError)>,
    /// The same, because it asked for it (FW-28).
    asked: Option<(Instant, BrokerError)>,
}

impl Circuit {
    /// Asks for a call. After the rest one call is let through as a probe, and then none for another
    /// rest, unless the probe is answered.
    ///
    /// # Errors
    /// What the last call came to, while the broker is left alone.
    pub fn admit(&mut self, now: Instant) -> Result<(), BrokerError> {
        if let Some((until, error)) = &self.asked
            && now < *until
        {
            return Err(error.clone());
        }
        match &mut self.resting {
            Some((until, error)) if now < *until => Err(error.clone()),
            Some((until, _)) => {
                *until = now + REST;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A call was answered, whatever the answer.
    pub fn answered(&mut self) {
        (self.failures, self.resting) = (0, None);
    }

    /// The broker asks to be left alone for so long.
    pub fn asked(&mut self, now: Instant, wait: Duration, error: &BrokerError) {
        self.asked = Some((now + wait, error.clone()));
    }

    /// A call was not answered.
    pub fn unanswered(&mut self, now: Instant, error: &BrokerError) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES {
            self.resting = Some((now + REST, error.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
