//! Steps to delete the queue of an actor that is being deleted (QUE-34).

use std::time::Duration;

use asya_shared::transport::ownership::DeletionRefusal;

use crate::broker::{BrokerError, DeleteIfEmptyOutcome, QueueCheck, QueueObservation};

/// The remaining work on a queue of an actor that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalProgress {
    /// Nothing: it is deleted, or it stays.
    Done,
    /// Delete it once it holds no messages and has no consumers.
    InUse,
    /// Delete it if it is still empty after this time.
    Recheck(Duration),
}

/// Whether a queue that status does not name may be deleted as ours, because it matches what we would have created. One
/// that does not exist may have left dead letter queues: they are created before it, and deleted after it.
///
/// # Errors
/// When the broker cannot be queried.
pub fn is_removable(observed: Result<QueueObservation, BrokerError>) -> Result<bool, BrokerError> {
    match observed {
        Ok(queue) => Ok(matches!(
            queue.check,
            QueueCheck::Ready(_)
                | QueueCheck::Drifted
                | QueueCheck::NotTaggedYet
                | QueueCheck::NotFound
        )),
        Err(BrokerError::QueueNameTaken(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The next step after an attempt to delete a queue.
#[derive(Debug, PartialEq)]
pub enum AfterRemoval {
    /// It is deleted: delete its dead letter queues.
    DeadLetters,
    /// It is not ours: keep it.
    Leave(DeletionRefusal),
    /// It still exists, and must be empty first.
    Wait(RemovalProgress),
}

/// Whether a queue that status does not name was kept only because it has no owner tag. The reconcile that created it
/// may have been interrupted, so it may be deleted without one, but only if it is empty, as it may be foreign.
pub fn is_untagged(removed: &DeleteIfEmptyOutcome) -> bool {
    *removed == DeleteIfEmptyOutcome::NotOwned(DeletionRefusal::NoOwnerTag)
}

pub fn after_removal(removed: DeleteIfEmptyOutcome) -> AfterRemoval {
    match removed {
        DeleteIfEmptyOutcome::Deleted => AfterRemoval::DeadLetters,
        DeleteIfEmptyOutcome::NotOwned(refusal) => AfterRemoval::Leave(refusal),
        DeleteIfEmptyOutcome::InUse => AfterRemoval::Wait(RemovalProgress::InUse),
        DeleteIfEmptyOutcome::Recheck(delay) => AfterRemoval::Wait(RemovalProgress::Recheck(delay)),
    }
}

/// Decides for a queue that was to be deleted without a tag.
pub fn after_untagged_removal(removed: DeleteIfEmptyOutcome) -> AfterRemoval {
    match removed {
        DeleteIfEmptyOutcome::InUse => AfterRemoval::Leave(DeletionRefusal::NoOwnerTag),
        removed => after_removal(removed),
    }
}

/// For a queue that an earlier process may have created: how often its broker may fail, and the delay between attempts.
const MAX_FAILURES: u32 = 3;
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Decides for a queue that an earlier process may have created (QUE-13). `failures` is how many calls its broker has
/// failed to answer, including this one.
pub fn after_unrecorded_removal(
    removed: Result<DeleteIfEmptyOutcome, BrokerError>,
    failures: u32,
) -> RemovalProgress {
    match removed {
        Ok(DeleteIfEmptyOutcome::Recheck(delay)) => RemovalProgress::Recheck(delay),
        Ok(_) => RemovalProgress::Done,
        Err(_) if failures >= MAX_FAILURES => RemovalProgress::Done,
        Err(error) => RemovalProgress::Recheck(error.not_called_delay().unwrap_or(RETRY_AFTER)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_shared::transport::ownership::DeletionRefusal;

    use super::{
        AfterRemoval, RemovalProgress, after_removal, after_unrecorded_removal,
        after_untagged_removal, is_removable, is_untagged,
    };
    use crate::broker::{BrokerError, DeleteIfEmptyOutcome, QueueCheck, QueueObservation};

    /// QUE-34
    #[test]
    fn untagged_queue_is_deleted_only_if_status_names_none_and_it_is_empty() {
        let second = Duration::from_secs(1);
        let later = || DeleteIfEmptyOutcome::Recheck(second);
        let recheck = || AfterRemoval::Wait(RemovalProgress::Recheck(second));
        let untagged = || DeleteIfEmptyOutcome::NotOwned(DeletionRefusal::NoOwnerTag);
        for (removed, expected) in [
            (DeleteIfEmptyOutcome::Deleted, AfterRemoval::DeadLetters),
            (untagged(), AfterRemoval::Leave(DeletionRefusal::NoOwnerTag)),
            (
                DeleteIfEmptyOutcome::InUse,
                AfterRemoval::Wait(RemovalProgress::InUse),
            ),
            (later(), recheck()),
        ] {
            assert_eq!(is_untagged(&removed), removed == untagged());
            assert_eq!(after_removal(removed), expected);
        }
        for (removed, expected) in [
            (DeleteIfEmptyOutcome::Deleted, AfterRemoval::DeadLetters),
            (
                DeleteIfEmptyOutcome::InUse,
                AfterRemoval::Leave(DeletionRefusal::NoOwnerTag),
            ),
            (untagged(), AfterRemoval::Leave(DeletionRefusal::NoOwnerTag)),
            (later(), recheck()),
        ] {
            assert_eq!(after_untagged_removal(removed), expected);
        }
    }

    /// FIN-4, QUE-14
    #[test]
    fn unrecorded_queue_is_ours_if_it_matches_what_we_create_or_has_left_dead_letters() {
        let may_be_deleted = |check| {
            let depth = None;
            is_removable(Ok(QueueObservation { check, depth })).unwrap()
        };
        assert!(may_be_deleted(QueueCheck::Drifted) && may_be_deleted(QueueCheck::NotTaggedYet));
        assert!(may_be_deleted(QueueCheck::NotFound));
        let desired = "durable=true".to_owned();
        let found = "durable=false".to_owned();
        assert!(!may_be_deleted(QueueCheck::Mismatch { desired, found }));
        let name_taken = Err(BrokerError::QueueNameTaken("another's".to_owned()));
        assert!(!is_removable(name_taken).unwrap());
    }

    /// QUE-13
    #[test]
    fn queue_that_only_may_exist_holds_the_deletion_neither_for_messages_nor_for_a_broker_that_is_down()
     {
        let second = Duration::from_secs(1);
        let untagged = DeleteIfEmptyOutcome::NotOwned(DeletionRefusal::NoOwnerTag);
        for (removed, expected) in [
            (DeleteIfEmptyOutcome::Deleted, RemovalProgress::Done),
            (untagged, RemovalProgress::Done),
            (DeleteIfEmptyOutcome::InUse, RemovalProgress::Done),
            (
                DeleteIfEmptyOutcome::Recheck(second),
                RemovalProgress::Recheck(second),
            ),
        ] {
            assert_eq!(after_unrecorded_removal(Ok(removed), 9), expected);
        }
        let after = |failures| {
            let silent = BrokerError::Unreachable("no answer".to_owned());
            after_unrecorded_removal(Err(silent), failures)
        };
        assert!(matches!(after(1), RemovalProgress::Recheck(_)));
        assert!(matches!(after(2), RemovalProgress::Recheck(_)));
        assert_eq!(after(3), RemovalProgress::Done);
    }

    /// QUE-13, QUE-9
    #[test]
    fn queue_that_may_exist_is_looked_up_again_at_the_next_trial_of_its_broker() {
        let wait = Duration::from_secs(31);
        let last = || Box::new(BrokerError::Unreachable("no answer".to_owned()));
        let outage = BrokerError::Outage {
            last: last(),
            wait,
            rounds: 3,
        };
        for rejected in [BrokerError::CircuitOpen(last(), wait), outage] {
            for failures in [0, 1, 2] {
                let progress = after_unrecorded_removal(Err(rejected.clone()), failures);
                assert_eq!(progress, RemovalProgress::Recheck(wait), "{failures}");
            }
        }
    }
}
