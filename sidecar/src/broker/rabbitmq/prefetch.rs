//! Adjusts the total prefetch of a channel. The prefetch of a consumer is immutable, so consumers are added and
//! cancelled instead (SC-31).

/// A change of the set of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// Add a consumer with this prefetch count.
    Add(usize),
    /// Cancel the most recently added consumer.
    CancelLast,
}

/// The next change on the way to `wanted` messages in flight.
///
/// `orphaned` is the number of unsettled messages of cancelled consumers, which count until they are settled. While
/// there are any, a consumer is added only if none is left, which bounds the number of consumers.
pub(super) fn change(wanted: usize, orphaned: usize, prefetches: &[usize]) -> Change {
    let allowed: usize = prefetches.iter().sum();
    if allowed + orphaned > wanted && !prefetches.is_empty() {
        return Change::CancelLast;
    }
    let missing = wanted.saturating_sub(allowed + orphaned);
    if missing > 0 && (orphaned == 0 || prefetches.is_empty()) {
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
        for (wanted, orphaned, prefetches, expected) in [
            (0, 0, &[] as &[usize], Change::None),
            (1, 0, &[], Change::Add(1)),
            (1, 0, &[1], Change::None),
            // Lookahead is enabled, then disabled while one of its messages is in process.
            (17, 0, &[1], Change::Add(16)),
            (17, 0, &[1, 16], Change::None),
            (1, 0, &[1, 16], Change::CancelLast),
            (1, 1, &[1], Change::CancelLast),
            (1, 1, &[], Change::None),
            (1, 0, &[], Change::Add(1)),
            // Lookahead is enabled while a message of a cancelled consumer is unsettled.
            (17, 1, &[], Change::Add(16)),
            (17, 1, &[16], Change::None),
            (17, 0, &[16], Change::Add(1)),
            // Demand drops to zero.
            (0, 3, &[8, 1], Change::CancelLast),
            (0, 3, &[], Change::None),
        ] {
            assert_eq!(
                change(wanted, orphaned, prefetches),
                expected,
                "{wanted} {orphaned} {prefetches:?}"
            );
        }
    }

    /// SC-31
    #[test]
    fn any_sequence_of_changes_converges_to_the_demand() {
        let mut random = fastrand::Rng::with_seed(31);
        for _ in 0..200 {
            let (wanted, mut orphaned) = (random.usize(0..40), random.usize(0..40));
            let mut prefetches: Vec<usize> = (0..random.usize(0..4))
                .map(|_| random.usize(1..20))
                .collect();
            for _ in 0..50 {
                match change(wanted, orphaned, &prefetches) {
                    Change::Add(prefetch) => prefetches.push(prefetch),
                    Change::CancelLast => drop(prefetches.pop()),
                    Change::None if orphaned == 0 => break,
                    Change::None => orphaned -= 1,
                }
                assert!(prefetches.len() <= 5, "{prefetches:?}");
            }
            assert_eq!(prefetches.iter().sum::<usize>(), wanted);
        }
    }
}
