//! Reasons of Events.

use crate::explained::described;

/// The type of an Event, as Kubernetes defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something happened as intended.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// The value of the Event's field `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

described! {
    /// Reason of an Event of the controller.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum EventReason {
        /// The actor's queue has been created.
        QueueCreated,
        /// The actor's queue was missing and has been recreated.
        QueueRecreated,
        /// The actor now uses another queue.
        QueueRetired,
        /// Nothing limits the redeliveries of a failing message.
        DeliveryLimitInactive,
        /// Settings of the transport have no effect on the actor's queue, which exists with other ones.
        QueueSettingsKept,
        /// The actor is being deleted, but its queue cannot be deleted.
        QueueDeletionFailed,
        /// Deletion of the actor is blocked while its queue holds messages.
        QueueNotEmpty,
        /// Deletion of the actor is blocked until its pods have drained the queue.
        QueueDraining,
        /// The actor's queue was deleted with messages in it.
        MessagesDeleted,
        /// The actor's queue outlives its namespace, because it holds messages.
        QueueKept,
        /// A queue outlives its actor: it is not the actor's, or pods that were left receive from it.
        QueueLeft,
        /// A dead letter queue outlives its actor, because it holds messages.
        DeadLettersKept,
        /// The spec is invalid.
        ValidationFailed,
        /// The workload is scaled to 0, because its pods would consume another actor's messages.
        WorkloadStopped,
        /// The name of a child is taken by an object that the actor does not own.
        NotOwned,
        /// The actor is deleted, but its children are kept.
        Orphaned,
        /// A rollout replaces pods that use GPUs.
        RollsGpuPods,
        /// The rollout of a binding is halted or stalled: no further pod is replaced for now.
        RolloutHalted,
        /// Another client reverted a change of the operator's to a bound target.
        BindingConflict,
        /// Another client keeps changing one of the operator's objects.
        FieldConflict,
        /// One of the operator's webhook configurations was changed or deleted, and has been restored.
        WebhookConfigurationRestored,
        /// Dry-run pods of a required binding's target are not injected.
        InjectionNotProved,
        /// The webhook entry of a required binding still fails open.
        RequiredNotEnforced,
    }
}

impl EventReason {
    /// The type of such Events.
    #[must_use]
    pub const fn type_(self) -> EventType {
        match self {
            Self::QueueCreated
            | Self::QueueRetired
            | Self::QueueDraining
            | Self::Orphaned
            | Self::RollsGpuPods => EventType::Normal,
            Self::QueueRecreated
            | Self::DeliveryLimitInactive
            | Self::QueueSettingsKept
            | Self::QueueDeletionFailed
            | Self::QueueNotEmpty
            | Self::MessagesDeleted
            | Self::QueueKept
            | Self::QueueLeft
            | Self::DeadLettersKept
            | Self::ValidationFailed
            | Self::WorkloadStopped
            | Self::NotOwned
            | Self::RolloutHalted
            | Self::BindingConflict
            | Self::FieldConflict
            | Self::WebhookConfigurationRestored
            | Self::InjectionNotProved
            | Self::RequiredNotEnforced => EventType::Warning,
        }
    }

    /// What the operator did, or tried to do.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::QueueCreated | Self::QueueRecreated => "CreateQueue",
            Self::QueueRetired => "RetireQueue",
            Self::DeliveryLimitInactive | Self::QueueSettingsKept => "VerifyQueue",
            Self::QueueDeletionFailed
            | Self::QueueNotEmpty
            | Self::QueueDraining
            | Self::MessagesDeleted
            | Self::QueueKept
            | Self::QueueLeft
            | Self::DeadLettersKept => "DeleteQueue",
            Self::ValidationFailed => "Validate",
            Self::NotOwned => "ApplyWorkload",
            Self::WorkloadStopped => "StopWorkload",
            Self::Orphaned => "Orphan",
            Self::RollsGpuPods | Self::RolloutHalted => "ReplacePods",
            Self::BindingConflict => "WriteTarget",
            Self::FieldConflict | Self::WebhookConfigurationRestored => "Restore",
            Self::InjectionNotProved | Self::RequiredNotEnforced => "Prove",
        }
    }
}

described! {
    /// Reason of an Event of the webhook.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum PodEventReason {
        /// The sidecar was injected into the pod.
        Injected,
        /// The pod starts without the sidecar.
        InjectionSkipped,
        /// The pod is denied, because the sidecar cannot be injected.
        InjectionDenied,
    }
}

impl PodEventReason {
    /// The type of such Events.
    #[must_use]
    pub const fn type_(self) -> EventType {
        match self {
            Self::Injected => EventType::Normal,
            Self::InjectionSkipped | Self::InjectionDenied => EventType::Warning,
        }
    }
}
