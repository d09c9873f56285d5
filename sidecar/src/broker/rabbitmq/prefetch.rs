//! How many messages the consumers of a channel may have: a consumer's prefetch cannot be changed, so consumers are added
//! and cancelled (SC-31).

/// What to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// Add a consumer with this prefetch.
    Add(usize),
    /// Cancel the consumer that was added last.
    CancelLast,
}

/// The next change on the way to `wanted` messages in flight.
///
/// `orphaned` messages of cancelled consumers are not settled yet: they count until they are. A consumer is added for what
/// is missing only when there are none of them, or there is no consumer at all; so there are never more than a few.
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
    fn consumers_are_added_and_cancelled_so_that_never_more_than_wanted_are_in_flight() {
        for (wanted, orphaned, prefetches, expected) in [
            (0, 0, &[] as &[usize], Change::None),
            (1, 0, &[], Change::Add(1)),
            (1, 0, &[1], Change::None),
            // Lookahead is switched on, and off again while one of its messages is worked on.
            (17, 0, &[1], Change::Add(16)),
            (17, 0, &[1, 16], Change::None),
            (1, 0, &[1, 16], Change::CancelLast),
            (1, 1, &[1], Change::CancelLast),
            (1, 1, &[], Change::None),
            (1, 0, &[], Change::Add(1)),
            // It is switched on while a message of a cancelled consumer is left.
            (17, 1, &[], Change::Add(16)),
            (17, 1, &[16], Change::None),
            (17, 0, &[16], Change::Add(1)),
            // Nothing is wanted any more.
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
    fn any_sequence_of_changes_ends_with_what_is_wanted() {
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
