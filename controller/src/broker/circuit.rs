//! Circuit breaker: when to stop calling a broker that does not respond (QUE-9). Pure: the clock is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::BrokerError;

/// Consecutive calls without a response that open the circuit.
const FAILURE_THRESHOLD: u32 = 5;
/// How long the circuit stays open before a trial call.
const OPEN_DURATION: Duration = Duration::from_secs(30);

/// Circuit breaker of one broker.
#[derive(Debug, Default)]
pub struct Circuit {
    /// Consecutive calls without a response.
    failures: u32,
    /// Open until this time, with the error of the last call. Callers keep getting that error while no call is made, so
    /// that status does not change (QUE-11).
    open_until: Option<(Instant, BrokerError)>,
    /// Same, because the broker requested a pause (FW-28).
    pause: Option<(Instant, BrokerError)>,
}

impl Circuit {
    /// Allows a call, or rejects it while the circuit is open. Then one call is allowed as a trial, and no other for
    /// another `OPEN_DURATION` unless it gets a response.
    ///
    /// # Errors
    /// The error of the last call, while the circuit is open.
    pub fn allow(&mut self, now: Instant) -> Result<(), BrokerError> {
        if let Some((until, error)) = &self.pause
            && now < *until
        {
            return Err(error.clone());
        }
        match &mut self.open_until {
            Some((until, error)) if now < *until => Err(error.clone()),
            Some((until, _)) => {
                *until = now + OPEN_DURATION;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records a call that got any response, even an error.
    pub fn record_response(&mut self) {
        (self.failures, self.open_until) = (0, None);
    }

    /// Opens the circuit for as long as the broker requests.
    pub fn paused_until(&mut self, now: Instant, wait: Duration, error: &BrokerError) {
        self.pause = Some((now + wait, error.clone()));
    }

    /// Records a call without a response.
    pub fn record_failure(&mut self, now: Instant, error: &BrokerError) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURE_THRESHOLD {
            self.open_until = Some((now + OPEN_DURATION, error.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
