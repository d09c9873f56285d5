//! Adjusts the total prefetch of a channel. The prefetch of a consumer is immutable, so consumers are added and
//! cancelled instead (SC-31).

/// A change of the set of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// Add a consumer with this prefetch count.
    Add(usize),
    /// Cancel the most recently added consumer.
    CancelLast,
}

/// Up to this many consumers, another one is added however little prefetch it adds.
const FEW: usize = 8;
/// Beyond that, another one is added only if it adds more than the current prefetch divided by this.
const MIN_GAIN_DIVISOR: usize = 4;

/// The next change on the way to `wanted` messages in flight.
///
/// `draining` is the number of unsettled messages of cancelled consumers, which count until they are settled. Each
/// settlement makes room for one more message, but one consumer per message would be too many, so some of the room
/// stays unused until there is enough of it, or none is left to drain.
pub(super) fn change(wanted: usize, draining: usize, prefetches: &[usize]) -> Change {
    let allowed: usize = prefetches.iter().sum();
    if allowed + draining > wanted && !prefetches.is_empty() {
        return Change::CancelLast;
    }
    let missing = wanted.saturating_sub(allowed + draining);
    let is_worth_it =
        draining == 0 || prefetches.len() < FEW || missing > allowed / MIN_GAIN_DIVISOR;
    if missing > 0 && is_worth_it {
        return Change::Add(missing);
    }
    Change::None
}

#[cfg(test)]
mod tests {
    use super::{Change, change};

    /// SC-31
    #[test]
    fn consumers_are_adjusted_without_exceeding_the_demand() {
        for (wanted, draining, prefetches, expected) in [
            (0, 0, &[] as &[usize], Change::None),
            (1, 0, &[], Change::Add(1)),
            (1, 0, &[1], Change::None),
            // Lookahead is enabled, then disabled while one of its messages is being processed.
            (17, 0, &[1], Change::Add(16)),
            (17, 0, &[1, 16], Change::None),
            (1, 0, &[1, 16], Change::CancelLast),
            (1, 1, &[1], Change::CancelLast),
            (1, 1, &[], Change::None),
            (1, 0, &[], Change::Add(1)),
            // Lookahead is enabled while a message of a cancelled consumer is unsettled.
            (17, 1, &[], Change::Add(16)),
            (17, 1, &[15], Change::Add(1)),
            (17, 1, &[16], Change::None),
            (17, 0, &[16], Change::Add(1)),
            // A message of a cancelled consumer that takes hours keeps no other slot idle.
            (8, 7, &[], Change::Add(1)),
            (8, 6, &[1], Change::Add(1)),
            (8, 1, &[1; 6], Change::Add(1)),
            (8, 1, &[1; 7], Change::None),
            (64, 40, &[2; 8], Change::Add(8)),
            (64, 44, &[2; 8], Change::None),
            // Demand drops to zero.
            (0, 3, &[8, 1], Change::CancelLast),
            (0, 3, &[], Change::None),
        ] {
            assert_eq!(
                change(wanted, draining, prefetches),
                expected,
                "{wanted} {draining} {prefetches:?}"
            );
        }
    }

    /// SC-31
    #[test]
    fn any_sequence_of_changes_converges_to_the_demand() {
        let mut random = fastrand::Rng::with_seed(31);
        for _ in 0..200 {
            let (wanted, mut draining) = (random.usize(0..40), random.usize(0..40));
            let mut prefetches: Vec<usize> = (0..random.usize(0..4))
                .map(|_| random.usize(1..20))
                .collect();
            for _ in 0..100 {
                match change(wanted, draining, &prefetches) {
                    Change::Add(prefetch) => prefetches.push(prefetch),
                    Change::CancelLast => drop(prefetches.pop()),
                    Change::None if draining == 0 => break,
                    Change::None => draining -= 1,
                }
                assert!(prefetches.len() <= 16, "{prefetches:?}");
            }
            assert_eq!(prefetches.iter().sum::<usize>(), wanted);
        }
    }

    /// SC-31
    #[test]
    fn draining_messages_that_are_settled_one_by_one_leave_few_slots_idle_and_few_consumers() {
        let (wanted, mut prefetches) = (256, Vec::new());
        for draining in (0..wanted).rev() {
            while let Change::Add(prefetch) = change(wanted, draining, &prefetches) {
                prefetches.push(prefetch);
            }
            let allowed: usize = prefetches.iter().sum();
            assert!(
                allowed * 5 >= (wanted - draining) * 4,
                "{draining}: {prefetches:?}"
            );
        }
        assert_eq!(prefetches.iter().sum::<usize>(), wanted);
        assert!(prefetches.len() <= 24, "{prefetches:?}");
    }
}
