//! When an object that another client keeps changing is restored (CFG-9, ADM-24, WRK-8): manual changes at once,
//! repeated changes at increasing intervals, because two writers that revert each other would never stop.

use std::time::Duration;

use asya_shared::backoff::Backoff;

/// Manual changes are occasional, so this many in a row are restored without a delay.
pub const UNDELAYED_RESTORES: u32 = 5;
/// The longest delay of a restore.
pub const MAX_DELAY: Duration = Duration::from_mins(5);
/// Restores are counted from the start again after this long without one; longer than any delay.
pub const QUIET_PERIOD: Duration = Duration::from_mins(15);

/// How long to wait after this many restores in a row; `None` if the next one needs no delay. The first delay is twice
/// `base`.
pub fn restore_delay(restores: u32, base: Duration) -> Option<Duration> {
    let delayed = restores.checked_sub(UNDELAYED_RESTORES)?;
    Some(Backoff::new(base, MAX_DELAY).after(delayed.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CFG-9, WRK-8
    #[test]
    fn five_restores_are_undelayed_and_later_delays_double_up_to_the_maximum() {
        for (restores, seconds) in [
            (0, None),
            (4, None),
            (5, Some(10)),
            (6, Some(20)),
            (9, Some(160)),
            (10, Some(300)),
            (u32::MAX, Some(300)),
        ] {
            let delay = restore_delay(restores, Duration::from_secs(5));
            assert_eq!(delay.map(|it| it.as_secs()), seconds, "{restores}");
        }
        assert!(QUIET_PERIOD > MAX_DELAY);
    }
}
