//! How the queue of an actor that is being deleted is removed, step by step (QUE-34).

use asya_shared::transport::mark::NotOurs;

use crate::broker::{BrokerError, Emptied, QueueCheck, QueueObservation};

/// Whether a queue that status does not name is ours: it matches what we would have created.
///
/// # Errors
/// When the broker does not tell.
pub fn is_as_we_make_it(
    observed: Result<QueueObservation, BrokerError>,
) -> Result<bool, BrokerError> {
    match observed {
        Ok(seen) => Ok(matches!(
            seen.standing,
            QueueCheck::Serves(_) | QueueCheck::Drifted | QueueCheck::Unmarked
        )),
        Err(BrokerError::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What follows from an attempt to delete a queue.
#[derive(Debug, PartialEq)]
pub enum AfterRemoval {
    /// It is gone: delete its dead letter queues.
    DeadLetters,
    /// It has no mark of ours, although we may have created it: mark it and, because any other unmarked queue is
    /// foreign, delete it only if it is empty.
    Mark,
    /// It is not ours, so it stays.
    Leave(NotOurs),
    /// It is still there.
    Wait(Emptied),
}

/// Decides for a queue; `recorded`: status names it. A reconcile that created the queue may have been interrupted
/// before it marked it.
pub fn after_removal(removed: Emptied, recorded: bool) -> AfterRemoval {
    match removed {
        Emptied::Gone => AfterRemoval::DeadLetters,
        Emptied::Left(NotOurs::Unmarked) if !recorded => AfterRemoval::Mark,
        Emptied::Left(not_ours) => AfterRemoval::Leave(not_ours),
        kept @ (Emptied::Kept | Emptied::Later(_)) => AfterRemoval::Wait(kept),
    }
}

/// Decides for an unmarked queue that was marked and then deleted if empty.
pub fn after_marked_removal(removed: Emptied) -> AfterRemoval {
    match removed {
        Emptied::Kept => AfterRemoval::Leave(NotOurs::Unmarked),
        removed => after_removal(removed, true),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_shared::transport::mark::NotOurs;

    use super::{AfterRemoval, after_marked_removal, after_removal, is_as_we_make_it};
    use crate::broker::{BrokerError, Emptied, QueueCheck, QueueObservation};

    /// QUE-34
    #[test]
    fn unmarked_queue_is_deleted_only_if_status_names_none_and_it_is_empty() {
        let later = Emptied::Later(Duration::from_secs(1));
        let unmarked = || Emptied::Left(NotOurs::Unmarked);
        for (removed, recorded, wanted) in [
            (Emptied::Gone, true, AfterRemoval::DeadLetters),
            (Emptied::Gone, false, AfterRemoval::DeadLetters),
            (unmarked(), false, AfterRemoval::Mark),
            (unmarked(), true, AfterRemoval::Leave(NotOurs::Unmarked)),
            (Emptied::Kept, false, AfterRemoval::Wait(Emptied::Kept)),
            (later.clone(), true, AfterRemoval::Wait(later.clone())),
        ] {
            assert_eq!(after_removal(removed, recorded), wanted);
        }
        for (removed, wanted) in [
            (Emptied::Gone, AfterRemoval::DeadLetters),
            (Emptied::Kept, AfterRemoval::Leave(NotOurs::Unmarked)),
            (unmarked(), AfterRemoval::Leave(NotOurs::Unmarked)),
            (later.clone(), AfterRemoval::Wait(later)),
        ] {
            assert_eq!(after_marked_removal(removed), wanted);
        }
    }

    /// FIN-4
    #[test]
    fn unrecorded_queue_is_ours_only_if_it_is_as_we_make_it() {
        let seen = |standing| {
            let depth = None;
            is_as_we_make_it(Ok(QueueObservation { standing, depth })).unwrap()
        };
        assert!(seen(QueueCheck::Drifted) && seen(QueueCheck::Unmarked));
        assert!(!seen(QueueCheck::Absent));
        let conflict = Err(BrokerError::Conflict("another's".to_owned()));
        assert!(!is_as_we_make_it(conflict).unwrap());
    }
}
