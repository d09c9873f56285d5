//! Circuit breaker: when to stop calling a broker that does not answer (QUE-9). Pure: the clock is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::BrokerError;

/// Consecutive unanswered calls that open the circuit.
const FAILURES: u32 = 5;
/// How long the circuit stays open before a probe.
const REST: Duration = Duration::from_secs(30);

/// Circuit breaker of one broker.
#[derive(Debug, Default)]
pub struct Circuit {
    /// Consecutive unanswered calls.
    failures: u32,
    /// Open until this time, with the error of the last call. Callers keep getting that error while no call is made, so
    /// that status does not change (QUE-11).
    resting: Option<(Instant, BrokerError)>,
    /// Same, because the broker asked for a pause (FW-28).
    asked: Option<(Instant, BrokerError)>,
}

impl Circuit {
    /// Admits a call, or refuses it while the circuit is open. After that one call is admitted as a probe, then none
    /// for another `REST` unless the probe is answered.
    ///
    /// # Errors
    /// The error of the last call, while the circuit is open.
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

    /// Records an answered call, whatever the answer.
    pub fn answered(&mut self) {
        (self.failures, self.resting) = (0, None);
    }

    /// Opens the circuit for as long as the broker asks for.
    pub fn asked(&mut self, now: Instant, wait: Duration, error: &BrokerError) {
        self.asked = Some((now + wait, error.clone()));
    }

    /// Records a call without an answer.
    pub fn unanswered(&mut self, now: Instant, error: &BrokerError) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES {
            self.resting = Some((now + REST, error.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
