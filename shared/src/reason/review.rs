//! Reasons of reviews by the webhook.

use super::InjectionReason;
use crate::explained::described;

described! {
    /// Why a review had its result: the label `reason` of the webhook's metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReviewReason {
        /// The cache of actors is not synced yet.
        NotSynced,
        /// The actor is valid.
        Valid,
        /// The actor is invalid.
        Invalid,
        /// The actor is invalid, but mode Warn allows it.
        InvalidWarned,
        /// The queue of an actor being deleted still holds messages.
        HoldsMessages,
        /// The garbage collector would delete the objects that `deletionPolicy: Orphan` keeps.
        LosesOrphans,
        /// Actors of the CRD being deleted still have queues.
        ActorsLeft,
        /// Validation is disabled.
        Off,
        /// The actor is being deleted, so its spec no longer matters.
        Deleting,
        /// The spec did not change.
        Unchanged,
        /// The path does not serve this kind, resource or operation.
        NotServed,
        /// The object cannot be decoded.
        Unreadable,
        /// The review failed because of an internal error.
        InternalError,
        /// The request has a wrong media type, size or format.
        BadRequest,
        /// Too many bytes in flight.
        Busy,
        /// The request did not arrive in time.
        Deadline,
        @of
        /// The decision about a pod.
        Pod(InjectionReason),
    }
}
