//! Reasons why a pod of a binding gets the sidecar, or does not.

use crate::explained::explained;

explained! {
    /// The reason of the decision about a pod (INJ-1): a value of metrics, Events, annotations and status.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum InjectionReason {
        // Row 1 of INJ-1.
        NotServed:
            "Pods of this namespace, or of this request, are never injected.",
            Some("Run the workload in a namespace of its own.");
        // ADM-3
        Unreadable:
            "The webhook cannot decode the pod.",
            Some("Correct the pod template.");
        // Row 2 of INJ-1.
        NoActor:
            "No AsyncActor of the namespace binds the pod: its labels and its controller must both match.",
            Some("Compare the pod with the target of the actor that was meant; pods without a controller are never \
                  bound.");
        // Row 3 of INJ-1.
        ActorDeleting:
            "The actor is being deleted, so new pods start without its sidecar.",
            None;
        NotBoundYet:
            "The actor's queue or runtime script is not ready yet.",
            Some("See the actor's conditions with `kubectl asya status NAME`.");
        StrategyTemplate:
            "The actor's sidecar is in the target's pod template, not added at admission.",
            Some("Nothing to do: see condition Injected of the actor.");
        ActorUnusable:
            "The actor's spec or its transport cannot be used.",
            Some("Correct what condition WorkloadReady or TransportReady of the actor names.");
        // Row 4 of INJ-1.
        OptedOut:
            "The pod's label asya.sh/inject is \"false\".",
            Some("Remove the label from the pod template.");
        HostNetwork:
            "The pod uses the host's network.",
            Some("Remove hostNetwork from the pod template.");
        Windows:
            "The pod runs on Windows, and the sidecar on Linux.",
            Some("Run the model on Linux.");
        RestartPolicy:
            "The pod's restartPolicy is not Always, and a queue worker never completes.",
            Some("Bind a workload whose pods restart.");
        // Row 5 of INJ-1.
        AlreadyInjected:
            "The pod has the current sidecar.",
            None;
        // Row 6 of INJ-1.
        Replaced:
            "The pod has the sidecar of another spec, actor or release; a new pod gets the current one.",
            Some("`kubectl asya roll NAME` replaces such pods.");
        Restored:
            "Parts of the pod's sidecar were missing or changed; a new pod gets them back.",
            Some("Look for a tool that changes pods after the webhook.");
        // Row 7 of INJ-1.
        SpecConflict = SpecConflict;
        // BIND-23
        TargetUrlUnknown as "TargetURLUnknown" = TargetURLUnknown;
        // Row 8 of INJ-1.
        NotProved:
            "No dry run has shown yet that the API server admits pods with the sidecar.",
            Some("Wait for the next dry run; condition Injected of the actor has its result.");
        ProbeRejected = ProbeRejected;
        // Row 9 of INJ-1.
        Injected:
            "The pod gets the sidecar.",
            None;
    }
}

explained! {
    /// Why a pod of a binding has no sidecar, if the webhook left no reason on it (BIND-7, BIND-8): a value of status.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MissingSidecar {
        StartedBeforeBinding:
            "The pod was created before the binding took effect.",
            Some("With spec.binding.rollout Always, the operator replaces it by itself. With OnRestart, it gets the \
                  sidecar when it restarts; `kubectl asya roll NAME` replaces such pods now.");
        WebhookUnavailable:
            "The pod was created after the binding took effect, and the webhook left no mark on it: the API server \
             could not reach it, got no answer in time, or asked a replica that did not know the binding yet.",
            Some("Run `kubectl asya check`, which names what keeps the API server from the webhook. The operator \
                  then replaces the pod; with spec.binding.rollout OnRestart, run `kubectl asya roll NAME`.");
        RemovedByOther:
            "The webhook injected the sidecar, and something removed it afterwards.",
            Some("Look for another admission webhook or controller that rewrites containers.");
        NotInTemplate:
            "With spec.binding.strategy Template: the pod was created from a pod template without the sidecar.",
            Some("Its workload replaces the pod while a rollout is in progress. If condition Conflict is True, \
                  another writer removes the sidecar from the template: give up one of the two, or use strategy Pod.");
    }
}
