//! Whether a transport's broker responds to any of its clients (OPS-30). Pure: the clock is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::broker::circuit::FAILURE_THRESHOLD;

/// How long the history of a client that makes no calls counts: twice the interval of the health check.
const EVIDENCE: Duration = Duration::from_mins(10);

/// What the clients of a transport know about its broker.
#[derive(Debug, Default)]
pub struct Reachability {
    clients: Vec<ClientHistory>,
}

#[derive(Debug)]
struct ClientHistory {
    id: usize,
    last_call: Instant,
    /// Calls without a response since the last one with one.
    unanswered: u32,
}

impl ClientHistory {
    fn is_answered(&self) -> bool {
        self.unanswered < FAILURE_THRESHOLD
    }
}

impl Reachability {
    /// Records a call of a client. Returns whether the broker responds to any.
    pub fn record(&mut self, id: usize, now: Instant, is_answered: bool) -> bool {
        self.clients
            .retain(|it| it.id == id || now - it.last_call < EVIDENCE);
        let position = self.clients.iter().position(|it| it.id == id);
        let position = position.unwrap_or_else(|| {
            self.clients.push(ClientHistory {
                id,
                last_call: now,
                // It has never been answered.
                unanswered: FAILURE_THRESHOLD,
            });
            self.clients.len() - 1
        });
        let client = &mut self.clients[position];
        client.last_call = now;
        client.unanswered = if is_answered {
            0
        } else {
            client.unanswered.saturating_add(1)
        };
        self.clients.iter().any(ClientHistory::is_answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OPS-30
    #[tokio::test(start_paused = true)]
    async fn broker_responds_if_any_of_its_clients_gets_responses() {
        const GOOD: usize = 1;
        const WRONG_CA: usize = 2;
        let second = Duration::from_secs(1);
        let (mut reachability, start) = (Reachability::default(), Instant::now());
        let mut record = |client, seconds, is_answered| {
            reachability.record(client, start + second * seconds, is_answered)
        };
        assert!(!record(WRONG_CA, 0, false), "no client was ever answered");
        assert!(record(GOOD, 1, true));
        for seconds in 2..100 {
            assert!(record(WRONG_CA, seconds, false), "{seconds}");
        }
        for seconds in 100..104 {
            assert!(record(GOOD, seconds, false), "{seconds}");
        }
        assert!(!record(GOOD, 104, false), "five calls without a response");
        assert!(!record(WRONG_CA, 105, false));
        assert!(record(GOOD, 106, true), "one response is enough");
        assert!(record(WRONG_CA, 106 + 599, false));
        let silent = record(WRONG_CA, 106 + 600, false);
        assert!(!silent, "the other client has not called for ten minutes");
        assert!(record(WRONG_CA, 707, true));
    }
}
