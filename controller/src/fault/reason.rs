//! Reasons of conditions, with cause and remedy: docs/reference/conditions.md is written from them.

use std::fmt;

use super::Requeue;

/// Why a condition has its status. Users see the variant's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    // TransportReady
    /// The queue exists as configured.
    ///
    /// Remedy: none.
    QueueReady,
    /// Queue management is switched off (`controller.disableQueueManagement`), so only the transport's configuration
    /// was checked.
    ///
    /// Remedy: none.
    TransportValidated,
    /// `spec.transport` names a transport that is not configured, or that is disabled.
    ///
    /// Remedy: name a configured transport, or add or enable it in the chart's `transports`.
    InvalidTransport,
    /// The queue belongs to another actor, which may be deleted and have left it, or to another cluster that shares the
    /// broker. This actor's pods are stopped, so that they consume none of its messages.
    ///
    /// Remedy: rename the actor, or set another `queues.nameTemplate` in one of the clusters. To adopt the queue of
    /// a cluster that no longer needs it, set annotation `asya.sh/adopt-queue-from`.
    QueueConflict,
    /// SQS rejects a queue's name for 60 seconds after the queue's deletion.
    ///
    /// Remedy: wait; the operator creates the queue after 65 seconds.
    QueueDeletedRecently,
    /// The queue does not exist, and `queues.autoCreate` is false.
    ///
    /// Remedy: create the queue at the broker, or set `queues.autoCreate: true` for the transport.
    QueueMissing,
    /// The existing queue differs from the configuration in a property that the operator cannot or must not change; the
    /// message shows what was found and what was desired.
    ///
    /// Remedy: adapt the transport's configuration to the queue. A RabbitMQ queue cannot be changed: delete it at the
    /// broker once it is empty, and the operator creates it as configured. With `queues.autoCreate: false`, change the
    /// queue at the broker.
    QueueMismatch,
    /// The broker rejects the queue's configuration, or lacks something that the queue needs, such as its virtual host
    /// or its dead letter queue.
    ///
    /// Remedy: correct what the message names in the transport's configuration, or create it at the broker.
    QueueConfigInvalid,
    /// The Secret with the broker's credentials, or its key, exists neither in the operator's namespace nor in the
    /// actor's.
    ///
    /// Remedy: create the Secret and the key that the message names; the operator tries again within five minutes.
    CredentialsMissing,
    /// The broker rejects the credentials, or denies a permission.
    ///
    /// Remedy: correct the Secret that the transport names, or grant the permissions in the message (reference,
    /// "Transports").
    BrokerAuthFailed,
    /// The broker does not answer: DNS, connection, TLS or timeout.
    ///
    /// Remedy: check the broker, its Service and `NetworkPolicies`, and host, port and CA of the transport. RabbitMQ
    /// needs its management plugin.
    BrokerUnreachable,
    /// The broker throttles requests or reports errors of its own, or the operator limits its calls to a slow broker.
    ///
    /// Remedy: none if it passes; otherwise look at the broker's load and log.
    BrokerThrottled,
    /// The actor is being deleted, and its queue cannot be.
    ///
    /// Remedy: fix what the message names. Annotation `asya.sh/skip-queue-deletion: "true"` lets the deletion complete
    /// and leaves the queue with its messages at the broker.
    QueueDeletionFailed,
    /// The actor is being deleted with `queue.deletionPolicy: DeleteIfEmpty`, and its queue holds messages or has
    /// consumers.
    ///
    /// Remedy: stop the producers and let the messages be processed, or set the policy to `Retain`, which keeps the
    /// queue and its messages.
    QueueNotEmpty,
    /// The actor is being deleted with `queue.deletionPolicy: Drain`, and its pods still process the remaining
    /// messages.
    ///
    /// Remedy: none if messages decrease. Otherwise stop the producers, or set the policy to `Retain`, which keeps the
    /// queue and its messages.
    QueueDraining,
    // WorkloadReady
    /// The spec breaks a rule that the `CustomResourceDefinition` cannot express, for example in the pod template.
    ///
    /// Remedy: correct the field that the message names; nothing is applied until then.
    ValidationError,
    /// The operator, or with `controller.impersonate` the namespace's `ServiceAccount` `asya-applier`, lacks a
    /// permission.
    ///
    /// Remedy: grant the rule in the message with a Role and a `RoleBinding`.
    NotAuthorized,
    /// The API server rejects an object that the operator applies: a quota, a policy, an admission webhook or an
    /// invalid pod template.
    ///
    /// Remedy: correct what the API server's answer in the message names.
    ReconcileError,
    /// The name of a child object is taken by an object that this actor does not own.
    ///
    /// Remedy: rename the actor or that object, or set `spec.adoptionPolicy: IfUnowned` to adopt an object without
    /// a controller.
    NotOwned,
    /// There is no workload yet, because the queue is not ready.
    ///
    /// Remedy: see condition `TransportReady`.
    TransportNotReady,
    /// A container cannot start, because a `ConfigMap` or Secret, or a key in it, is missing.
    ///
    /// Remedy: create what the message names in the actor's namespace.
    ConfigError,
    /// A volume cannot be mounted.
    ///
    /// Remedy: look at the message and the pod's Events: `PersistentVolumeClaim`, storage driver or node.
    VolumeError,
    /// An image cannot be pulled.
    ///
    /// Remedy: correct its name, or add an `imagePullSecret` to the pod template.
    ImagePullError,
    /// Container `asya-runtime` fails: the handler cannot be imported, exits or is killed for memory.
    ///
    /// Remedy: read `kubectl logs POD --container asya-runtime --previous`.
    RuntimeError,
    /// Container `asya-sidecar` fails.
    ///
    /// Remedy: read `kubectl logs POD --container asya-sidecar --previous`; its last line names the setting, or the
    /// broker's answer.
    SidecarError,
    /// Another container of the pod fails.
    ///
    /// Remedy: read the log of the container that the message names.
    WorkloadError,
    /// No node has room for a pod, or a quota of the namespace rejects it.
    ///
    /// Remedy: add nodes, raise the quota or lower requests; the message has the scheduler's reason.
    PendingResources,
    /// The workload was deleted, and annotation `asya.sh/reconcile: Once` keeps the operator from recreating it.
    ///
    /// Remedy: change the spec or remove the annotation.
    WorkloadMissing,
    /// A pod has been running without being ready for `timeout.progress` or, if that is not set,
    /// `controller.unreadyDeadline`.
    ///
    /// Remedy: look at its readiness probe and logs. For a model that loads slowly, raise `timeout.progress`.
    PodsNotReady,
    /// No further pod has become ready within `timeout.progress` although more are desired.
    ///
    /// Remedy: look at the pods that are not ready; raise `timeout.progress` if they only need longer.
    ProgressDeadlineExceeded,
    /// As many pods as desired are ready.
    ///
    /// Remedy: none.
    PodsReady,
    /// The first pods are starting, and none is ready yet.
    ///
    /// Remedy: none.
    Progressing,
    /// A rollout replaces pods, and at least one pod is ready.
    ///
    /// Remedy: none.
    RollingOut,
    /// The number of pods is changing, and at least one pod is ready.
    ///
    /// Remedy: none.
    Scaling,
    /// There are no pods, and none are desired; with scaling, the first message starts one.
    ///
    /// Remedy: none.
    ScaledToZero,
    // ScalingReady
    /// The `ScaledObject` is applied, and KEDA has not reported on it yet.
    ///
    /// Remedy: none if it passes; otherwise look at the log of KEDA's operator.
    ScaledObjectCreated,
    /// KEDA scales the workload, or is paused by an annotation that the message names.
    ///
    /// Remedy: none.
    ScaledObjectReady,
    /// KEDA reports that it cannot use the `ScaledObject`.
    ///
    /// Remedy: see the message; `kubectl describe scaledobject NAME` has KEDA's Events.
    ScaledObjectNotReady,
    /// KEDA's `HorizontalPodAutoscaler` has had no metrics for `controller.hpaMetricsDeadline`.
    ///
    /// Remedy: check that KEDA's metrics server runs and reaches the broker with the credentials in
    /// `TriggerAuthentication` `NAME-trigger-auth`.
    MetricsUnavailable,
    /// The cluster does not serve `scaledobjects.keda.sh`.
    ///
    /// Remedy: install KEDA 2.16 or newer, or set `spec.scaling.enabled: false`.
    KedaNotInstalled,
    /// Another `HorizontalPodAutoscaler` or `ScaledObject` scales the same workload.
    ///
    /// Remedy: delete that object, or set `spec.scaling.enabled: false`.
    RivalAutoscaler,
    /// Another autoscaler sets the number of pods, which is allowed while `spec.scaling` is off.
    ///
    /// Remedy: none.
    ScaledByOther,
    /// KEDA needs the URL of the SQS queue, which is not known yet.
    ///
    /// Remedy: none if it passes; otherwise set `accountId` of the transport.
    QueueURLUnknown,
    /// The target's kind, or its owner, does not let a queue scale it.
    ///
    /// Remedy: set `spec.scaling.enabled: false` and scale the target by its owner's means; the message names them.
    ScalingNotSupported,
    // TargetResolved
    /// `spec.workloadRef` leads to a workload.
    ///
    /// Remedy: none.
    Resolved,
    /// The object that `spec.workloadRef` names does not exist.
    ///
    /// Remedy: create it, or correct the name; the actor binds once it exists.
    TargetNotFound,
    /// The object exists, but its controller has not created the workload yet.
    ///
    /// Remedy: look at that object's own status.
    TargetNotReady,
    /// The user has stopped the target.
    ///
    /// Remedy: none; start the target to bind it again.
    TargetStopped,
    /// The API server does not serve the kind of `spec.workloadRef`.
    ///
    /// Remedy: install its `CustomResourceDefinition`, or correct `apiVersion` and `kind`.
    KindNotInstalled,
    /// The operator is not permitted to read objects of this kind.
    ///
    /// Remedy: set the kind's switch in `binding.kinds` to true, or add the rule in the message to the operator's
    /// `ClusterRole`.
    KindForbidden,
    /// Objects of this kind, or with this configuration, cannot be bound.
    ///
    /// Remedy: bind the object that the message names instead.
    UnsupportedTarget,
    /// An older actor binds the same target.
    ///
    /// Remedy: let one actor bind it; the younger one binds it once the older one no longer does.
    AlreadyBound,
    /// `spec.workloadRef.namespace` is not the actor's own namespace.
    ///
    /// Remedy: create the actor in the target's namespace.
    CrossNamespace,
    /// Nothing can be bound in the operator's namespace and in namespaces `kube-*`.
    ///
    /// Remedy: move the target to another namespace.
    NamespaceExcluded,
    /// Several workloads fit, and none is preferred.
    ///
    /// Remedy: reference the workload itself; the message lists the candidates.
    Ambiguous,
    // Injected
    /// Every pod of the target has the sidecar.
    ///
    /// Remedy: none.
    AllPodsInjected,
    /// Some pods of the target have no sidecar; `status.pods.reasons` counts them by reason.
    ///
    /// Remedy: depends on the reason: see "Pods without the sidecar" and "Reviews of pods" below.
    PodsNotInjected,
    /// Running pods are being replaced by pods with the sidecar.
    ///
    /// Remedy: none.
    RolloutInProgress,
    /// Pods are not replaced yet: a `PodDisruptionBudget` allows none, `binding.maxRollouts` targets are being replaced
    /// already, the target's rollout is paused, or replaced pods came back without the sidecar because a replica of the
    /// webhook had not read the latest status of the actor.
    ///
    /// Remedy: see the message; a paused rollout has to be resumed. After reviews by a webhook that was behind, the
    /// rollout continues by itself within 30 s.
    RolloutWaiting,
    /// Replaced pods came back without the sidecar, or did not become ready in time, so no further pod is replaced.
    ///
    /// Remedy: find out what removes the sidecar, usually another admission webhook, or why the replacement is not
    /// ready. The rollout resumes when that pod is ready, when the spec of the actor or of the target changes, or when
    /// the actor is annotated with `asya.sh/roll-now`.
    RolloutHalted,
    /// Dry runs of new pods come back without the sidecar, so no pod is replaced.
    ///
    /// Remedy: see the message: the API server does not reach the webhook or does not trust it, or another webhook
    /// changes the pod.
    ProbeFailed,
    /// The API server rejects pods of the target with the sidecar, for example because of a quota or a policy.
    ///
    /// Remedy: see the API server's answer in the message.
    ProbeRejected,
    /// The port of the model's server in the pod is unknown.
    ///
    /// Remedy: set `spec.runtime.targetURL`.
    TargetURLUnknown,
    /// The operator is installed without its webhook, or the rule that makes `binding.required` fail closed is not in
    /// place yet.
    ///
    /// Remedy: set `webhook.enabled: true`; otherwise see the message.
    WebhookNotReady,
    /// The target's pods have a container or volume with a name that the operator needs, or another actor's label.
    ///
    /// Remedy: rename it in the target.
    SpecConflict,
    /// `binding.strategy: Template` cannot be used with this target, for example because it has an owner.
    ///
    /// Remedy: use strategy `Pod`, or see the message.
    StrategyNotAllowed,
    /// No dry run has shown yet whether new pods get the sidecar.
    ///
    /// Remedy: none if it passes; otherwise see `TransportReady` and `TargetResolved`.
    NotProven,
    // Conflict
    /// No other field manager reverts what the operator writes.
    ///
    /// Remedy: none.
    NoConflict,
    /// Another field manager reverts what the operator wrote to the target or to its `ScaledObject`.
    ///
    /// Remedy: see [troubleshooting](../troubleshooting.md) for each field; `status.conflicts` lists them.
    BindingConflict,
    /// Another client keeps changing a field of the actor's own workload or `ScaledObject`.
    ///
    /// Remedy: make that client leave the field alone, and change it in the actor's spec instead; the message names
    /// both.
    FieldConflict,
    // any condition
    /// The operator has tried `controller.retry.attempts` times; the message begins with the original reason.
    ///
    /// Remedy: fix that cause, then change the actor or one of its objects.
    RetriesExhausted,
    // Ready
    /// Every condition that counts is True.
    ///
    /// Remedy: none.
    AllReady,
    /// Annotation `asya.sh/paused` or `asya.sh/reconcile: Paused` stops all writes.
    ///
    /// Remedy: remove the annotation.
    Paused,
    /// The actor is being deleted.
    ///
    /// Remedy: none.
    Terminating,
    /// The actor is being deleted, and pods of its target still have the sidecar.
    ///
    /// Remedy: see the message. Annotation `asya.sh/skip-unbind: "true"` lets the deletion complete and leaves those
    /// pods as they are.
    UnbindBlocked,
}

impl Reason {
    /// Whether a spec with this reason is unusable because of its transport.
    pub fn concerns_transport(self) -> bool {
        matches!(self, Self::InvalidTransport | Self::QueueConflict)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A fault to report in a condition, and when to retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub reason: Reason,
    /// The condition's message: what is wrong, where, and how to fix it.
    pub message: String,
    pub requeue: Requeue,
}

impl Fault {
    /// A fault that only a change of the actor, the configuration or another object resolves.
    pub fn until_change(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            requeue: Requeue::AwaitChange,
        }
    }
}
