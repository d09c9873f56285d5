//! How many messages may be prefetched, depending on the speed of the runtime (SC-44).

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::Lookahead;

/// Size of the sliding window, in calls.
const WINDOW: usize = 32;
/// Below this mean, lookahead is enabled.
const ENABLE_BELOW: Duration = Duration::from_millis(20);
/// Above this mean, lookahead is disabled.
const DISABLE_ABOVE: Duration = Duration::from_millis(50);
/// A call that runs this long disables lookahead.
pub const LONG_CALL: Duration = Duration::from_secs(1);
/// Lookahead while it is enabled.
const ENABLED_LOOKAHEAD: usize = 16;

/// Adapts to the durations of recent calls.
#[derive(Debug)]
pub struct LookaheadPolicy {
    rule: Lookahead,
    last: VecDeque<Duration>,
    is_fast: bool,
}

impl LookaheadPolicy {
    /// Creates a policy without recorded calls.
    #[must_use]
    pub fn new(rule: Lookahead) -> Self {
        Self {
            rule,
            last: VecDeque::with_capacity(WINDOW),
            is_fast: false,
        }
    }

    /// Records a finished call.
    pub fn record_call(&mut self, time: Duration) {
        if self.last.len() == WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(time);
        if self.last.len() < WINDOW {
            return;
        }
        let mean = self.last.iter().sum::<Duration>() / u32::try_from(WINDOW).unwrap_or(1);
        if mean < ENABLE_BELOW {
            self.is_fast = true;
        } else if mean > DISABLE_ABOVE {
            self.is_fast = false;
        }
    }

    /// Records a call that has run for [`LONG_CALL`]: others could process what is prefetched here.
    pub fn record_long_call(&mut self) {
        self.restart();
    }

    /// Forgets all calls.
    pub fn restart(&mut self) {
        self.is_fast = false;
        self.last.clear();
    }

    /// How many messages to prefetch in addition to `slots`.
    #[must_use]
    pub fn limit(&self, slots: usize) -> usize {
        match self.rule {
            Lookahead::Fixed(count) => count,
            Lookahead::InFlight(count) => count.saturating_sub(slots),
            Lookahead::Auto if self.is_fast => ENABLED_LOOKAHEAD,
            Lookahead::Auto => 0,
        }
    }

    /// Whether messages that wait behind a long call are requeued.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        self.rule == Lookahead::Auto
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LookaheadPolicy, WINDOW};
    use crate::config::Lookahead;

    fn after(policy: &mut LookaheadPolicy, count: usize, milliseconds: u64) -> usize {
        (0..count).for_each(|_| policy.record_call(Duration::from_millis(milliseconds)));
        policy.limit(1)
    }

    /// SC-44
    #[test]
    fn lookahead_is_enabled_only_while_calls_are_fast() {
        let mut policy = LookaheadPolicy::new(Lookahead::Auto);
        assert_eq!(after(&mut policy, WINDOW - 1, 1), 0, "too few calls");
        assert_eq!(after(&mut policy, 1, 1), 16);
        assert_eq!(
            after(&mut policy, WINDOW, 40),
            16,
            "between the bounds nothing changes"
        );
        assert_eq!(after(&mut policy, WINDOW, 51), 0);
        assert_eq!(after(&mut policy, WINDOW, 40), 0);
        assert_eq!(after(&mut policy, WINDOW, 19), 16);
        policy.record_long_call();
        assert_eq!(policy.limit(1), 0);
        assert_eq!(after(&mut policy, WINDOW - 1, 1), 0, "the window is reset");
    }

    /// SC-44, SC-31
    #[test]
    fn explicit_lookahead_is_fixed() {
        for (rule, slots, expected) in [
            (Lookahead::Fixed(0), 1, 0),
            (Lookahead::Fixed(5), 8, 5),
            (Lookahead::InFlight(10), 8, 2),
            (Lookahead::InFlight(1), 8, 0),
        ] {
            let mut policy = LookaheadPolicy::new(rule);
            policy.record_long_call();
            assert_eq!(policy.limit(slots), expected, "{rule:?}");
        }
    }
}
