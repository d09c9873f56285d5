//! How long a delivery may stay unsettled (SC-32).

use std::time::Duration;

use super::Lookahead;

/// Margin on top of the processing time.
const MARGIN: Duration = Duration::from_mins(10);
/// An end actor's handler has three attempts, with pauses of 5 s in all (SC-70).
const END_ATTEMPTS: u32 = 3;
const END_PAUSES: Duration = Duration::from_secs(5);
/// How long a message may wait for its final report to be accepted (SC-90).
pub const FINAL_RETRY_PERIOD: Duration = Duration::from_mins(10);
/// The default of every broker that has a consumer timeout.
const BROKER_DEFAULT: Duration = Duration::from_mins(30);
/// Up to this time, margin included, that suffices.
const MAX_FOR_BROKER_DEFAULT: Duration = Duration::from_mins(20);

/// What contributes to the time between the delivery of a message and its settlement.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryTime {
    /// Timeout of a runtime call.
    pub call: Duration,
    /// Whether the actor is an end actor.
    pub is_end: bool,
    /// Whether the final report must be accepted.
    pub report_is_required: bool,
    pub slots: usize,
    pub lookahead: Lookahead,
}

impl DeliveryTime {
    /// The consumer timeout to request; `None` if the broker's default suffices.
    pub fn consumer_timeout(self) -> Option<Duration> {
        Some(self.longest()).filter(|needed| *needed > MAX_FOR_BROKER_DEFAULT)
    }

    /// Whether a broker that ignores the argument takes messages back too early.
    pub fn exceeds_the_default(self) -> bool {
        self.longest() > BROKER_DEFAULT
    }

    /// The longest processing time, plus a margin.
    fn longest(self) -> Duration {
        let processing = if self.is_end {
            self.call
                .saturating_mul(END_ATTEMPTS)
                .saturating_add(END_PAUSES)
        } else {
            self.call
        };
        // With `auto`, no message waits long behind a call (SC-44).
        let prefetched = match self.lookahead {
            Lookahead::Auto => 0,
            Lookahead::Fixed(count) => count,
            Lookahead::InFlight(count) => count.saturating_sub(self.slots),
        };
        let rounds = 1 + prefetched.div_ceil(self.slots.max(1));
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        // After a crash that ended several calls, the message is called once more, alone (SC-49).
        let alone = if self.slots > 1 {
            self.call
        } else {
            Duration::ZERO
        };
        let report = if self.is_end && self.report_is_required {
            FINAL_RETRY_PERIOD
        } else {
            Duration::ZERO
        };
        processing
            .saturating_mul(rounds)
            .saturating_add(alone)
            .saturating_add(report)
            .saturating_add(MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::DeliveryTime;
    use crate::config::Lookahead::{self, Auto, Fixed, InFlight};

    fn actor(minutes: u64, slots: usize, lookahead: Lookahead) -> DeliveryTime {
        DeliveryTime {
            call: Duration::from_mins(minutes),
            is_end: false,
            report_is_required: false,
            slots,
            lookahead,
        }
    }

    fn end_actor(minutes: u64, slots: usize, lookahead: Lookahead) -> DeliveryTime {
        DeliveryTime {
            is_end: true,
            ..actor(minutes, slots, lookahead)
        }
    }

    /// SC-32, SC-70, SC-90
    #[test]
    fn consumer_timeout_covers_all_attempts_and_calls_that_a_prefetched_message_waits_for() {
        let required = |time: DeliveryTime| DeliveryTime {
            report_is_required: true,
            ..time
        };
        // In minutes and seconds; `None`: the default suffices.
        for (time, expected) in [
            (actor(5, 1, Auto), None),
            (actor(10, 1, Auto), None),
            (actor(11, 1, Auto), Some((21, 0))),
            // One call of 10 min fits into the default, three do not.
            (end_actor(10, 1, Auto), Some((40, 5))),
            (end_actor(3, 1, Auto), None),
            (required(end_actor(3, 1, Auto)), Some((29, 5))),
            (required(actor(3, 1, Auto)), None),
            (actor(5, 1, Fixed(0)), None),
            (actor(5, 1, Fixed(4)), Some((35, 0))),
            (actor(5, 8, Auto), None),
            (actor(6, 8, Auto), Some((22, 0))),
            (actor(5, 8, Fixed(8)), Some((25, 0))),
            (actor(6, 8, Fixed(9)), Some((34, 0))),
            (end_actor(10, 2, Fixed(1)), Some((80, 10))),
            (actor(20, 8, InFlight(1)), Some((50, 0))),
            (actor(20, 8, InFlight(16)), Some((70, 0))),
        ] {
            let expected = expected.map(|(minutes, seconds)| {
                Duration::from_mins(minutes) + Duration::from_secs(seconds)
            });
            assert_eq!(time.consumer_timeout(), expected, "{time:?}");
            let is_late = expected.is_some_and(|it| it > Duration::from_mins(30));
            assert_eq!(time.exceeds_the_default(), is_late, "{time:?}");
        }
    }
}
