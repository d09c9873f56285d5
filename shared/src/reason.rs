//! What users see as a reason: of conditions, of Events, and of reviews by the webhook. The controller, the webhook,
//! `kubectl asya explain` and `docs/reference/` have names and texts from here.

mod event;
mod injection;
mod review;

pub use event::{EventReason, EventType, PodEventReason};
pub use injection::{InjectionReason, MissingSidecar};
pub use review::ReviewReason;

use crate::explained::explained;

/// Defines `Reason`: for each type of condition (`None`: any) its reasons, and for each reason the cause and what to
/// do about it; `None` where there is nothing to do. Code is in backticks, as in Markdown.
macro_rules! reasons {
    ($($condition:tt $(($type_:literal))? {
        $($name:ident: $cause:literal, $remedy:expr;)+
    })+) => {
        explained! {
            /// Why a condition has its status. Users see the variant's name.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[expect(clippy::doc_markdown, reason = "users read these texts, too: kinds are no code")]
            pub enum Reason {
                $($($name: $cause, $remedy;)+)+
            }
        }

        impl Reason {
            /// The type of the condition that usually has it; `None` if any does.
            #[must_use]
            pub const fn condition(self) -> Option<&'static str> {
                match self {
                    $($(Self::$name)|+ => $condition $(($type_))?,)+
                }
            }
        }
    };
}

reasons! {
    Some("TransportReady") {
        QueueReady:
            "The queue exists as configured.",
            None;
        TransportValidated:
            "Queue management is switched off (`controller.disableQueueManagement`), so only the \
             transport's configuration was checked.",
            None;
        InvalidTransport:
            "`spec.transport` names a transport that is not configured, or that is disabled.",
            Some("Name a configured transport, or add or enable it in the chart's `transports`.");
        QueueConflict:
            "The queue, or its dead letter queue, belongs to another actor, which may be deleted and \
             have left it, or to another cluster that shares the broker. This actor's pods are \
             stopped, so that they consume none of its messages.",
            Some("Rename the actor, or set another `queues.nameTemplate` in one of the clusters; \
                  the message names the owner. To adopt the queue of a cluster that no longer \
                  needs it, set annotation `asya.sh/adopt-queue-from`.");
        QueueDeletedRecently:
            "SQS rejects a queue's name for 60 seconds after the queue's deletion.",
            Some("Wait; the operator creates the queue after 65 seconds.");
        QueueMissing:
            "The queue does not exist, and `queues.autoCreate` is false.",
            Some("Create the queue at the broker, or set `queues.autoCreate: true` for the \
                  transport.");
        QueueMismatch:
            "The existing queue differs from the configuration in a property that the operator \
             cannot or must not change; the message shows what was found and what was desired.",
            Some("Adapt the transport's configuration to the queue. A RabbitMQ queue cannot be \
                  changed: delete it at the broker once it is empty, and the operator creates it \
                  as configured. An SQS queue with `queues.autoCreate: false` can be changed at \
                  SQS.");
        QueueConfigInvalid:
            "The broker rejects the queue's configuration, or lacks something that the queue \
             needs, such as its virtual host or its dead letter queue; or the queue is in another \
             AWS account than `accountId` says.",
            Some("Correct what the message names in the transport's configuration, or create it at \
                  the broker.");
        CredentialsMissing:
            "The Secret with the broker's credentials, or a key of it, is missing or empty: for \
             the operator, if it is neither in the operator's namespace nor in the actor's; for a \
             binding's sidecars, if it is not in the actor's namespace. On SQS without keys, the \
             operator has no AWS credentials.",
            Some("Create the Secret that the message names in the actor's namespace, where \
                  sidecars read it, or give the operator's ServiceAccount a role; the operator \
                  tries again within five minutes.");
        BrokerAuthFailed:
            "The broker rejects the credentials, or denies a permission.",
            Some("Correct the Secret that the transport names, or grant the permissions in the \
                  message (reference, \"Transports\").");
        BrokerUnreachable:
            "The broker does not answer: DNS, connection, TLS or timeout. Messages stay in it.",
            Some("Check the broker, its Service and NetworkPolicies, and host, port and CA of the \
                  transport. RabbitMQ needs its management plugin. The operator retries by itself.");
        BrokerThrottled:
            "The broker throttles requests or reports errors of its own, the operator limits its \
             calls to a slow broker, or it could not confirm in time what the deletion of a queue \
             relies on.",
            Some("Wait: the operator retries with backoff. If it stays, look at the broker's load \
                  and log.");
        QueueDeletionFailed:
            "The actor is being deleted, and its queue cannot be.",
            Some("Fix what the message names. Annotation `asya.sh/skip-queue-deletion: \"true\"` \
                  lets the deletion complete and leaves the queue with its messages at the broker.");
        QueueNotEmpty:
            "The actor is being deleted with `queue.deletionPolicy: DeleteIfEmpty`, and its queue \
             holds messages or has consumers.",
            Some("Stop the producers and let the messages be processed, or set the policy to \
                  `Retain`, which keeps the queue and its messages.");
        QueueDraining:
            "The actor is being deleted with `queue.deletionPolicy: Drain`, and its pods still \
             process the remaining messages.",
            Some("Wait while messages decrease. Otherwise stop the producers, or set the policy to \
                  `Retain`, which keeps the queue and its messages.");
    }
    Some("WorkloadReady") {
        ValidationError:
            "The spec or an annotation breaks a rule that the CustomResourceDefinition cannot \
             express, for example in the pod template. Nothing is applied until it is corrected; \
             what exists stays.",
            Some("Correct the field that the message names; `kubectl asya lint -f FILE` finds this \
                  before you apply.");
        NotAuthorized:
            "The operator, or with `controller.impersonate` the namespace's ServiceAccount \
             `asya-applier`, lacks a permission, or that account does not exist.",
            Some("Grant the rule in the message with a Role and a RoleBinding; in a namespace that \
                  is being deleted, with a ClusterRole and a ClusterRoleBinding.");
        ReconcileError:
            "The API server rejects an object that the operator applies (a quota, a policy, an \
             admission webhook or an invalid pod template), or keeps failing.",
            Some("Correct what the API server's answer in the message names; the operator retries.");
        NotOwned:
            "The name of a child object is taken by an object that this actor does not own.",
            Some("Rename the actor or that object, or set `spec.adoptionPolicy: IfUnowned` to \
                  adopt an object without a controller.");
        TransportNotReady:
            "There is no workload yet, because the queue is not ready.",
            Some("See condition TransportReady.");
        ConfigError:
            "A container cannot start, because a ConfigMap or Secret, or a key in it, is missing.",
            Some("Create what the message names in the actor's namespace, or correct the \
                  reference.");
        VolumeError:
            "A volume cannot be mounted.",
            Some("Look at the message and the pod's Events: PersistentVolumeClaim, storage driver \
                  or node.");
        ImagePullError:
            "An image cannot be pulled.",
            Some("Correct its name, or add an `imagePullSecret` to the pod template.");
        RuntimeError:
            "Container `asya-runtime` fails: the handler cannot be imported, exits or is killed \
             for memory.",
            Some("Read `kubectl logs POD --container asya-runtime --previous`.");
        SidecarError:
            "Container `asya-sidecar` fails.",
            Some("Read `kubectl logs POD --container asya-sidecar --previous`; its last line names \
                  the setting, or the broker's answer.");
        WorkloadError:
            "Another container of the pod fails.",
            Some("Read the log of the container that the message names. As a value of STATUS it \
                  also stands for an invalid spec, an object that cannot be applied and a target \
                  that cannot be bound: see the conditions that are False.");
        PendingResources:
            "No node has room for a pod, or a quota of the namespace rejects it.",
            Some("Add nodes, raise the quota or lower requests; the message has the scheduler's \
                  reason.");
        WorkloadMissing:
            "The workload was deleted, and annotation `asya.sh/reconcile: Once` keeps the operator \
             from recreating it.",
            Some("Change the spec or remove the annotation.");
        PodsNotReady:
            "A pod has been running without being ready for `timeout.progress` or, if that is not \
             set, `controller.unreadyDeadline`.",
            Some("Look at its readiness probe and logs. For a model that loads slowly, raise \
                  `timeout.progress`.");
        ProgressDeadlineExceeded:
            "No further pod has become ready within `timeout.progress` although more are desired.",
            Some("Look at the pods that are not ready; raise `timeout.progress` if they only need \
                  longer.");
        PodsReady:
            "As many pods as desired are ready.",
            None;
        Progressing:
            "The first pods are starting, and none is ready yet.",
            None;
        RollingOut:
            "A rollout replaces pods, and at least one pod is ready.",
            None;
        Scaling:
            "The number of pods is changing, and at least one pod is ready.",
            None;
        ScaledToZero:
            "There are no pods, and none are desired; with scaling, the first message starts one.",
            None;
    }
    Some("ScalingReady") {
        ScaledObjectCreated:
            "The ScaledObject is applied, and KEDA has not reported on it yet.",
            Some("Wait; if it stays, look at the log of KEDA's operator.");
        ScaledObjectReady:
            "KEDA scales the workload, or is paused by an annotation that the message names.",
            None;
        ScaledObjectNotReady:
            "KEDA reports that it cannot use the ScaledObject.",
            Some("See the message; `kubectl describe scaledobject NAME` has KEDA's Events.");
        MetricsUnavailable:
            "KEDA's HorizontalPodAutoscaler has had no metrics for \
             `controller.hpaMetricsDeadline`.",
            Some("Check that KEDA's metrics server runs and reaches the broker with the \
                  credentials in TriggerAuthentication `NAME-trigger-auth`.");
        KedaNotInstalled:
            "The cluster does not serve `scaledobjects.keda.sh`.",
            Some("Install KEDA 2.16 or newer, or set `spec.scaling.enabled: false`.");
        RivalAutoscaler:
            "Another HorizontalPodAutoscaler or ScaledObject scales the same workload.",
            Some("Delete that object, or set `spec.scaling.enabled: false`.");
        ScaledByOther:
            "Another autoscaler sets the number of pods, which is allowed while \
             `spec.scaling.enabled` is false.",
            None;
        QueueURLUnknown:
            "KEDA needs the URL of the SQS queue, which is not known yet.",
            Some("Wait until condition TransportReady is True, or set `accountId` of the \
                  transport.");
        ScalingNotSupported:
            "The target's kind, or its owner, does not let a queue scale it.",
            Some("Set `spec.scaling.enabled: false` and scale the target by its owner's means; the \
                  message names them.");
    }
    Some("TargetResolved") {
        Resolved:
            "`spec.workloadRef` resolves to a workload.",
            None;
        TargetNotFound:
            "The object that `spec.workloadRef` names does not exist.",
            Some("Create it, or correct the name; the actor binds it once it exists.");
        TargetNotReady:
            "The object exists, but its controller has not created the workload yet.",
            Some("Look at that object's own status.");
        TargetStopped:
            "The user has stopped the target.",
            Some("Start the target to bind it again.");
        KindNotInstalled:
            "The API server does not serve the kind of `spec.workloadRef`.",
            Some("Install its CustomResourceDefinition, or correct `apiVersion` and `kind`.");
        KindForbidden:
            "The operator is not permitted to read objects of this kind.",
            Some("Set the kind's switch in `binding.kinds` to true, or add the rule in the message \
                  to the operator's ClusterRole.");
        UnsupportedTarget:
            "Objects of this kind, or with this configuration, cannot be bound.",
            Some("Bind the object that the message names instead.");
        AlreadyBound:
            "An older actor binds the same target.",
            Some("Let one actor bind it; the younger one binds it once the older one no longer \
                  does. Before you delete the surplus one, set its `queue.deletionPolicy: Retain`, \
                  which keeps its messages.");
        CrossNamespace:
            "`spec.workloadRef.namespace` is not the actor's own namespace.",
            Some("Create the actor in the target's namespace.");
        NamespaceExcluded:
            "Nothing can be bound in the operator's namespace and in namespaces `kube-*`.",
            Some("Move the target to another namespace.");
        Ambiguous:
            "Several workloads fit, and none is preferred.",
            Some("Reference the workload itself; the message lists the candidates.");
    }
    Some("Injected") {
        AllPodsInjected:
            "Every pod of the target has the sidecar.",
            None;
        PodsNotInjected:
            "Some pods of the target have no sidecar; `status.pods.reasons` counts them by reason.",
            Some("`kubectl asya why POD` explains the reason of each; `kubectl asya roll NAME` \
                  replaces those that started before the binding.");
        RolloutInProgress:
            "Running pods are being replaced by pods with the sidecar.",
            None;
        RolloutWaiting:
            "Pods are not replaced yet: a PodDisruptionBudget allows none, `binding.maxRollouts` \
             targets are being replaced already, the target's rollout is paused, not all of its \
             pods are ready, its strategy Recreate would stop all of them at once, or replaced \
             pods came back without the sidecar because a replica of the webhook had not read \
             the latest status of the actor. ScalingReady has this reason while the autoscaler \
             of KServe cannot be disabled, because that would replace the pods.",
            Some("See the message; a paused rollout has to be resumed. After reviews by a webhook \
                  that was behind, the rollout continues by itself within 30 s.");
        RolloutHalted:
            "Replaced pods came back without the sidecar, or did not become ready in time, so no \
             further pod is replaced.",
            Some("Find out what removes the sidecar, usually another admission webhook, or why the \
                  replacement is not ready. The rollout resumes when that pod is ready, when the \
                  spec of the actor or of the target changes, or when the actor is annotated with \
                  `asya.sh/roll-now` (`kubectl asya roll NAME`).");
        ProbeFailed:
            "Dry runs of new pods come back without the sidecar, so no pod is replaced.",
            Some("See the message: the API server does not reach the webhook or does not trust it \
                  (`kubectl asya check`), or another webhook changes the pod.");
        ProbeRejected:
            "The API server rejects pods of the target with the sidecar, for example because of a \
             quota or a policy. Pods of an optional binding start without it.",
            Some("See the API server's answer in the message: allow the sidecar there, or change \
                  `spec.runtime` and `spec.sidecar`.");
        TargetURLUnknown:
            "The port of the model's server in the pod is unknown.",
            Some("Declare the port of the model's container, or set `spec.runtime.targetURL`.");
        WebhookNotReady:
            "The operator is installed without its webhook, so no pod gets the sidecar; or the \
             webhook entry of a required binding does not fail closed, yet or because there are \
             too many.",
            Some("Without the webhook, set `webhook.enabled: true` in the chart; waiting does not \
                  help. Otherwise see the message; if it stays, run `kubectl asya check`.");
        SpecConflict:
            "The target's pods have a container or volume with a name that is reserved for the \
             sidecar, or another actor's label.",
            Some("Rename the container or volume, or remove the label, in the pod template.");
        StrategyNotAllowed:
            "`spec.binding.strategy: Template` cannot be used with this target, for example \
             because it has an owner.",
            Some("Use strategy `Pod`, or see the message.");
        NotProven:
            "No dry run has shown yet whether new pods get the sidecar.",
            Some("Wait for the target to exist and for the next dry run; otherwise see conditions \
                  TransportReady and TargetResolved.");
    }
    Some("Conflict") {
        NoConflict:
            "No other field manager reverts what the operator writes.",
            None;
        BindingConflict:
            "Another field manager reverts what the operator wrote to the target or to its \
             ScaledObject.",
            Some("Make the manager that the message names ignore the field. The troubleshooting \
                  page has a way for each field; `status.conflicts` lists them.");
        FieldConflict:
            "Another client keeps changing a field of the actor's own workload or ScaledObject.",
            Some("Make that client leave the field alone, and change it in the actor's spec \
                  instead; the message names both.");
    }
    None {
        RetriesExhausted:
            "The operator has tried `controller.retry.attempts` times; the message begins with the \
             original reason.",
            Some("Fix that cause, then change the actor or one of its objects.");
    }
    Some("Ready") {
        AllReady:
            "Every condition that counts is True.",
            None;
        Paused:
            "Annotation `asya.sh/paused` or `asya.sh/reconcile: Paused` stops all writes.",
            Some("Remove the annotation: `kubectl asya resume NAME`.");
        Terminating:
            "The actor is being deleted; its conditions say what the deletion waits for.",
            None;
        UnbindBlocked:
            "The actor is being deleted, and pods of its target still have the sidecar.",
            Some("Remove the obstacle that the message names. Annotation `asya.sh/skip-unbind: \
                  \"true\"` lets the deletion complete and leaves those pods as they are.");
    }
}

impl Reason {
    /// Whether a spec with this reason is unusable because of its transport.
    #[must_use]
    pub const fn concerns_transport(self) -> bool {
        matches!(self, Self::InvalidTransport | Self::QueueConflict)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::State;

    /// Texts are whole sentences, with code in pairs of backticks.
    fn assert_sentence(name: &str, text: &str) {
        assert!(text.ends_with('.'), "{name}: {text}");
        assert!(!text.contains("  "), "{name}: {text}");
        assert_eq!(text.matches('`').count() % 2, 0, "{name}: {text}");
    }

    macro_rules! assert_explained {
        ($($type_:ident),+) => {
            $(
                let mut names = BTreeSet::new();
                for &it in $type_::ALL {
                    assert!(names.insert(it.as_str()), "{it} is there twice");
                    assert_sentence(it.as_str(), it.meaning());
                    it.remedy().into_iter().for_each(|text| assert_sentence(it.as_str(), text));
                }
            )+
        };
    }

    #[test]
    fn explained_words_have_a_name_of_their_own_and_whole_sentences() {
        assert_explained!(Reason, InjectionReason, MissingSidecar, State);
    }

    #[test]
    fn described_words_have_whole_sentences() {
        let of_controller = EventReason::ALL
            .iter()
            .map(|it| (it.as_str(), it.meaning()));
        let of_webhook = PodEventReason::ALL
            .iter()
            .map(|it| (it.as_str(), it.meaning()));
        let of_reviews = ReviewReason::ALL
            .iter()
            .map(|it| (it.as_str(), it.meaning()));
        for (name, meaning) in of_controller.chain(of_webhook).chain(of_reviews) {
            assert_sentence(name, meaning);
        }
    }

    /// The webhook and conditions explain the same reason in the same words.
    #[test]
    fn reasons_of_reviews_and_of_conditions_share_their_texts() {
        for of_pod in InjectionReason::ALL {
            let same = Reason::ALL.iter().find(|it| it.as_str() == of_pod.as_str());
            if let Some(reason) = same {
                assert_eq!(of_pod.meaning(), reason.meaning());
                assert_eq!(of_pod.remedy(), reason.remedy());
            }
        }
    }

    /// Waiting does not install a webhook.
    #[test]
    fn webhook_that_is_not_installed_is_not_waited_for() {
        let reason = Reason::WebhookNotReady;
        assert!(reason.meaning().contains("without its webhook"));
        assert!(reason.remedy().unwrap().contains("webhook.enabled: true"));
    }
}
