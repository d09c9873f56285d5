//! How many messages may wait here beside those at the runtime, by its pace (SC-44).

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::Lookahead;

/// How many calls are looked at.
const CALLS: usize = 32;
/// Below this mean, messages may wait.
const FAST: Duration = Duration::from_millis(20);
/// Above this mean, none may.
const SLOW: Duration = Duration::from_millis(50);
/// While a call has run for this long, none may.
pub const LONG_CALL: Duration = Duration::from_secs(1);
/// How many may wait, where some may.
const MESSAGES: usize = 16;

/// The pace of the last calls.
#[derive(Debug)]
pub struct Pace {
    rule: Lookahead,
    last: VecDeque<Duration>,
    is_fast: bool,
}

impl Pace {
    /// Of a runtime that has not been called.
    #[must_use]
    pub fn new(rule: Lookahead) -> Self {
        Self {
            rule,
            last: VecDeque::with_capacity(CALLS),
            is_fast: false,
        }
    }

    /// A call has ended.
    pub fn called(&mut self, time: Duration) {
        if self.last.len() == CALLS {
            self.last.pop_front();
        }
        self.last.push_back(time);
        if self.last.len() < CALLS {
            return;
        }
        let mean = self.last.iter().sum::<Duration>() / u32::try_from(CALLS).unwrap_or(1);
        if mean < FAST {
            self.is_fast = true;
        } else if mean > SLOW {
            self.is_fast = false;
        }
    }

    /// A call has run for [`LONG_CALL`]: others could have what waits.
    pub fn is_stuck(&mut self) {
        self.is_fast = false;
        self.last.clear();
    }

    /// How many may wait beside those in `slots`.
    #[must_use]
    pub fn lookahead(&self, slots: usize) -> usize {
        match self.rule {
            Lookahead::Fixed(count) => count,
            Lookahead::InFlight(count) => count.saturating_sub(slots),
            Lookahead::Auto if self.is_fast => MESSAGES,
            Lookahead::Auto => 0,
        }
    }

    /// Whether what waits behind a long call is given back.
    #[must_use]
    pub fn gives_back(&self) -> bool {
        self.rule == Lookahead::Auto
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CALLS, Pace};
    use crate::config::Lookahead;

    fn after(pace: &mut Pace, count: usize, milliseconds: u64) -> usize {
        (0..count).for_each(|_| pace.called(Duration::from_millis(milliseconds)));
        pace.lookahead(1)
    }

    /// SC-44
    #[test]
    fn messages_may_wait_only_while_calls_are_quick() {
        let mut pace = Pace::new(Lookahead::Auto);
        assert_eq!(after(&mut pace, CALLS - 1, 1), 0, "too few calls");
        assert_eq!(after(&mut pace, 1, 1), 16);
        assert_eq!(
            after(&mut pace, CALLS, 40),
            16,
            "between the bounds nothing changes"
        );
        assert_eq!(after(&mut pace, CALLS, 51), 0);
        assert_eq!(after(&mut pace, CALLS, 40), 0);
        assert_eq!(after(&mut pace, CALLS, 19), 16);
        pace.is_stuck();
        assert_eq!(pace.lookahead(1), 0);
        assert_eq!(
            after(&mut pace, CALLS - 1, 1),
            0,
            "the pace is learned anew"
        );
    }

    /// SC-44, SC-31
    #[test]
    fn a_number_is_fixed() {
        for (rule, slots, expected) in [
            (Lookahead::Fixed(0), 1, 0),
            (Lookahead::Fixed(5), 8, 5),
            (Lookahead::InFlight(10), 8, 2),
            (Lookahead::InFlight(1), 8, 0),
        ] {
            let mut pace = Pace::new(rule);
            pace.is_stuck();
            assert_eq!(pace.lookahead(slots), expected, "{rule:?}");
        }
    }
}
