//! Findings of `check`.

use asya_shared::reason::Reason;

use super::{ADMISSION, Entry, FAQ, INDEX, RUNBOOKS, STANDALONE, conditions, entry_of};

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
        "SeveralOperators",
        "The cluster has another operator. Two reconcile the same AsyncActors, and each undoes what the other writes.",
        "Keep one release, and remove the others with `helm uninstall --no-hooks`: actors, workloads and queues stay.",
        FAQ,
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
        "WebhookWithoutEndpoints",
        "The webhook's Service has no ready endpoints, so the API server cannot call the webhook.",
        "Compare the selector of the webhook's Service with the labels of the webhook's pods, and look at their readiness.",
        RUNBOOKS,
    ),
    entry_of(
        "WebhookRuleMissing",
        "The webhook configuration does not cover every change of an AsyncActor.",
        "Look at the controller's log: it restores the rule. Find out who changes it.",
        ADMISSION,
    ),
    entry_of(
        "InjectorEntryMissing",
        "The API server does not ask the webhook about pods of bound targets, so they start without the sidecar.",
        "Look at the controller's log: it writes the configuration <release>-injector. Find out who changes it.",
        ADMISSION,
    ),
    entry_of(
        "WebhookCAMismatch",
        "An entry of a webhook configuration trusts another CA than the one that issued the webhook's certificate.",
        "Look at the controller's log: it writes the CA. Find out who else does, for example cert-manager's CA injector.",
        RUNBOOKS,
    ),
    entry_of(
        "CertificateExpired",
        "The webhook's certificate or its CA has expired, so the API server does not call the webhook.",
        "Look at the log of the controller, or of cert-manager if webhook.certManager.enabled: it renews the certificate.",
        RUNBOOKS,
    ),
    entry_of(
        "CertificateExpiring",
        "The webhook's certificate should have been renewed and was not.",
        "Look at the log of the controller, or of cert-manager if webhook.certManager.enabled: it renews the certificate.",
        RUNBOOKS,
    ),
    entry_of(
        "CertificateInvalid",
        "The webhook cannot serve its certificate, or the API server does not accept it.",
        "Look at the controller's log: it repairs the Secret. With webhook.certManager.enabled, correct the Certificate.",
        RUNBOOKS,
    ),
    entry_of(
        "OperatorPermissionMissing",
        "The operator lacks a permission that it needs.",
        "Run helm upgrade with the chart of the operator's release, or add the permission to its ClusterRole or Role.",
        RUNBOOKS,
    ),
    entry_of(
        "KEDAMissing",
        "KEDA is not installed: actors that ask for scaling are not scaled.",
        conditions::fix(Reason::KedaNotInstalled),
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
        "An actor needs attention for a reason that this program does not know: the operator is probably newer.",
        "See `kubectl asya status NAME`, or run kubectl-asya of the operator's release.",
        RUNBOOKS,
    ),
    entry_of(
        "NotReconciled",
        "The operator has not acted on the actor's latest spec yet.",
        "Wait a moment; if it stays, run `kubectl asya check`.",
        RUNBOOKS,
    ),
    entry_of(
        "NoConsumers",
        "Messages wait in the actor's queue, and none of its running pods receives them.",
        "`kubectl asya trace NAME` shows whether its pods have the sidecar; the log of their container asya-sidecar says why it receives nothing.",
        RUNBOOKS,
    ),
    entry_of(
        "DeadLetters",
        "Messages failed, and are in the actor's dead letter queue.",
        "`kubectl asya dlq NAME list` shows them; `kubectl asya dlq NAME redrive` moves them back, once the cause is gone.",
        INDEX,
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
