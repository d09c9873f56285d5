//! Findings of `check`.

use super::{ADMISSION, Entry, INDEX, RUNBOOKS, STANDALONE, entry_of};

pub const ENTRIES: &[Entry] = &[
    entry_of(
        "KubernetesTooOld",
        "The API server is older than the operator supports.",
        "Upgrade the cluster to Kubernetes 1.30 or newer.",
        INDEX,
    ),
    entry_of(
        "CRDMissing",
        "The CustomResourceDefinition of AsyncActors is not installed.",
        "Install the operator's chart, or apply crds/asyncactors.yaml.",
        INDEX,
    ),
    entry_of(
        "CRDOutdated",
        "The CustomResourceDefinition is of another release than the operator.",
        "Apply crds/asyncactors.yaml of the operator's release, or set the chart's value crds.manage.",
        INDEX,
    ),
    entry_of(
        "OperatorMissing",
        "There is no operator in this namespace.",
        "Install the chart, or name its namespace with --operator-namespace.",
        RUNBOOKS,
    ),
    entry_of(
        "ControllerDown",
        "No replica of the controller is ready: changes of actors wait.",
        "Look at the pods of the controller's Deployment and their logs.",
        RUNBOOKS,
    ),
    entry_of(
        "ControllerDegraded",
        "Fewer replicas of the controller are ready than desired.",
        "Look at the pods of the controller's Deployment and their logs.",
        RUNBOOKS,
    ),
    entry_of(
        "LeaderMissing",
        "No replica of the controller holds the lease: nothing is reconciled.",
        "Look at the controller's log; it needs permission on its Lease.",
        RUNBOOKS,
    ),
    entry_of(
        "VersionSkew",
        "Controller, webhook and this program are of different releases.",
        "Upgrade them together; a rolling upgrade may be in progress.",
        INDEX,
    ),
    entry_of(
        "WebhookDown",
        "No replica of the webhook is ready: pods of optional bindings start without the sidecar, those of required ones do not start.",
        "Look at the pods of the webhook's Deployment and their logs.",
        RUNBOOKS,
    ),
    entry_of(
        "WebhookDegraded",
        "Fewer replicas of the webhook are ready than desired.",
        "Look at the pods of the webhook's Deployment and their logs.",
        RUNBOOKS,
    ),
    entry_of(
        "WebhookNotInstalled",
        "The webhook is not installed: bound pods get no sidecar, and only the CRD's rules reject actors.",
        "Set the chart's value webhook.enabled to true.",
        ADMISSION,
    ),
    entry_of(
        "WebhookConfigurationMissing",
        "The API server does not call the webhook for AsyncActors.",
        "Look at the controller's log: it writes the configuration, and needs the ClusterRole <release>-webhook-anchor.",
        ADMISSION,
    ),
    entry_of(
        "WebhookCAMissing",
        "An entry of a webhook configuration has no CA, so the API server cannot call the webhook.",
        "Look at the controller's log: it writes the CA.",
        RUNBOOKS,
    ),
    entry_of(
        "WebhookUnreachable",
        "The API server cannot call the webhook.",
        "Check the webhook's Service, NetworkPolicies, and whether the API server can reach its port.",
        RUNBOOKS,
    ),
    entry_of(
        "KEDAMissing",
        "KEDA is not installed: actors that ask for scaling are not scaled.",
        "Install KEDA, or set spec.scaling.enabled to false.",
        STANDALONE,
    ),
    entry_of(
        "NoTransport",
        "No transport is enabled, so no actor can have a queue.",
        "Enable one in the chart's values (transports).",
        STANDALONE,
    ),
    entry_of(
        "TransportFailing",
        "Actors report that a transport cannot be used.",
        "See the message of condition TransportReady; the broker's own log has more.",
        RUNBOOKS,
    ),
    entry_of(
        "ActorFailing",
        "An actor needs attention.",
        "`kubectl asya status NAME` has the details.",
        RUNBOOKS,
    ),
    entry_of(
        "NotReconciled",
        "The operator has not acted on the actor's latest spec yet.",
        "Wait a moment; if it stays, run `kubectl asya check`.",
        RUNBOOKS,
    ),
    entry_of(
        "InstallPermissionMissing",
        "You lack a permission that installing the chart takes.",
        "Ask an administrator for it, or let them install the chart.",
        INDEX,
    ),
    entry_of(
        "NotChecked",
        "This could not be checked.",
        "Remove the obstacle that the detail names, for example a permission that you lack.",
        INDEX,
    ),
];
