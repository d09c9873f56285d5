//! Reasons why a pod gets the sidecar of a binding, or does not, other than those that conditions have as well.

use super::{ADMISSION, BINDING, Entry, RUNBOOKS, SAFETY, entry_of};

pub const ENTRIES: &[Entry] = &[
    entry_of(
        "NotServed",
        "Pods of this namespace, or of this request, are never injected.",
        "Run the workload in a namespace of its own.",
        ADMISSION,
    ),
    entry_of(
        "Unreadable",
        "The webhook cannot decode the pod.",
        "Correct the pod template.",
        ADMISSION,
    ),
    entry_of(
        "NoActor",
        "No AsyncActor of the namespace binds the pod: its labels and its controller must both match.",
        "Compare the pod with the target of the actor that was meant; pods without a controller are never bound.",
        ADMISSION,
    ),
    entry_of(
        "OtherPath",
        "Another entry of the webhook serves this pod's actor.",
        "Nothing to do.",
        ADMISSION,
    ),
    entry_of(
        "ActorDeleting",
        "The actor is being deleted, so new pods start without its sidecar.",
        "Nothing to do.",
        ADMISSION,
    ),
    entry_of(
        "NotBoundYet",
        "The actor's queue or runtime script is not ready yet.",
        "See the actor's conditions with `kubectl asya status NAME`.",
        BINDING,
    ),
    entry_of(
        "StrategyTemplate",
        "The actor's sidecar is in the target's pod template, not added at admission.",
        "Nothing to do: see condition Injected of the actor.",
        BINDING,
    ),
    entry_of(
        "ActorUnusable",
        "The actor's spec or its transport cannot be used.",
        "Correct what condition WorkloadReady or TransportReady of the actor names.",
        ADMISSION,
    ),
    entry_of(
        "OptedOut",
        "The pod's label asya.sh/inject is \"false\".",
        "Remove the label from the pod template.",
        BINDING,
    ),
    entry_of(
        "HostNetwork",
        "The pod uses the host's network.",
        "Remove hostNetwork from the pod template.",
        BINDING,
    ),
    entry_of(
        "Windows",
        "The pod runs on Windows, and the sidecar on Linux.",
        "Run the model on Linux.",
        BINDING,
    ),
    entry_of(
        "RestartPolicy",
        "The pod's restartPolicy is not Always, and a queue worker never completes.",
        "Bind a workload whose pods restart.",
        BINDING,
    ),
    entry_of(
        "AlreadyInjected",
        "The pod has the current sidecar.",
        "Nothing to do.",
        ADMISSION,
    ),
    entry_of(
        "Replaced",
        "The pod has the sidecar of another spec, actor or release; a new pod gets the current one.",
        "`kubectl asya roll NAME` replaces such pods.",
        ADMISSION,
    ),
    entry_of(
        "Restored",
        "Parts of the pod's sidecar were missing or changed; a new pod gets them back.",
        "Look for a tool that changes pods after the webhook.",
        ADMISSION,
    ),
    entry_of(
        "NotProved",
        "No dry run has shown yet that the API server admits pods with the sidecar.",
        "Wait for the next dry run; condition Injected of the actor has its result.",
        SAFETY,
    ),
    entry_of(
        "Injected",
        "The pod gets the sidecar.",
        "Nothing to do.",
        ADMISSION,
    ),
    entry_of(
        "StartedBeforeBinding",
        "The pod was created before the binding took effect.",
        "With spec.binding.rollout Always, the operator replaces it by itself. With OnRestart, it gets the sidecar when it \
         restarts; `kubectl asya roll NAME` replaces such pods now.",
        BINDING,
    ),
    entry_of(
        "WebhookUnavailable",
        "The pod was created after the binding took effect, and the webhook left no mark on it: the API server could not \
         reach it, got no answer in time, or asked a replica that did not know the binding yet.",
        "Run `kubectl asya check`, which names what keeps the API server from the webhook. The operator then replaces the \
         pod; with spec.binding.rollout OnRestart, run `kubectl asya roll NAME`.",
        RUNBOOKS,
    ),
    entry_of(
        "RemovedByOther",
        "The webhook injected the sidecar, and something removed it afterwards.",
        "Look for another admission webhook or controller that rewrites containers.",
        BINDING,
    ),
    entry_of(
        "NotInTemplate",
        "With spec.binding.strategy Template: the pod was created from a pod template without the sidecar.",
        "Its workload replaces the pod while a rollout is in progress. If condition Conflict is True, another writer removes \
         the sidecar from the template: give up one of the two, or use strategy Pod.",
        BINDING,
    ),
];
