//! Circuit breaker: when to stop calling a broker that does not respond (QUE-9). Pure: the clock is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::BrokerError;

/// Consecutive calls without a response that open the circuit.
pub const FAILURE_THRESHOLD: u32 = 5;
/// How long the circuit stays open before a trial call.
const OPEN_DURATION: Duration = Duration::from_secs(30);
/// Consecutive failures, with time in between for the broker to recover, that count as an outage.
const OUTAGE_THRESHOLD: u32 = 3;

/// Circuit breaker of one client of a broker.
#[derive(Debug, Default)]
pub struct Circuit {
    /// Consecutive calls without a response.
    failures: u32,
    /// How many times in a row the circuit was opened, kept open by a trial, or paused.
    rounds: u32,
    /// A trial call is in flight.
    is_trying: bool,
    /// Open until this time, with the error of the last call. Callers keep getting that error while no call is made, so
    /// that status does not change (QUE-11).
    open_until: Option<(Instant, BrokerError)>,
    /// Same, because the broker requested a pause (FW-28).
    pause: Option<(Instant, BrokerError)>,
}

impl Circuit {
    /// Allows a call, or rejects it while the circuit is open. After that, one call is allowed as a trial, and no other
    /// for another `OPEN_DURATION` unless it gets a response.
    ///
    /// # Errors
    /// While the circuit is open: `CircuitOpen` with the error of the last call and the time until the circuit closes,
    /// or `Outage` if the broker has not recovered for so long that this is one (QUE-10).
    pub fn allow(&mut self, now: Instant) -> Result<(), BrokerError> {
        if let Some((until, error)) = &self.pause
            && now < *until
        {
            return Err(rejection(self.rounds, error, *until - now));
        }
        match &mut self.open_until {
            Some((until, error)) if now < *until => {
                Err(rejection(self.rounds, error, *until - now))
            }
            Some((until, _)) => {
                *until = now + OPEN_DURATION;
                self.is_trying = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records a call that got any response, even an error.
    pub fn record_response(&mut self) {
        self.close();
        self.rounds = 0;
    }

    /// Opens the circuit for as long as the broker requests.
    pub fn paused_until(&mut self, now: Instant, wait: Duration, error: &BrokerError) {
        self.close();
        // Concurrent calls get the same request.
        if self.pause.as_ref().is_none_or(|(until, _)| now >= *until) {
            self.rounds = self.rounds.saturating_add(1);
        }
        self.pause = Some((now + wait, error.clone()));
    }

    fn close(&mut self) {
        (self.failures, self.open_until, self.is_trying) = (0, None, false);
    }

    /// Records a call without a response.
    pub fn record_failure(&mut self, now: Instant, error: &BrokerError) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURE_THRESHOLD {
            if self.open_until.is_none() || self.is_trying {
                self.rounds = self.rounds.saturating_add(1);
                self.is_trying = false;
            }
            self.open_until = Some((now + OPEN_DURATION, error.clone()));
        }
    }
}

fn rejection(rounds: u32, error: &BrokerError, wait: Duration) -> BrokerError {
    let last = Box::new(error.clone());
    if rounds < OUTAGE_THRESHOLD {
        BrokerError::CircuitOpen(last, wait)
    } else {
        BrokerError::Outage { last, wait, rounds }
    }
}

#[cfg(test)]
mod tests;
