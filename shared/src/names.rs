//! Every label, annotation, finalizer, field manager and reserved name that Asya uses.

/// API group of `AsyncActor`.
pub const GROUP: &str = "asya.sh";

/// Finalizer that keeps an actor until its clean-up is done (FIN-1).
pub const FINALIZER: &str = "asya.sh/finalizer";

/// Value of `app.kubernetes.io/managed-by` on objects that the operator creates.
pub const MANAGED_BY: &str = "asya-operator";

/// Label keys.
pub mod label {
    /// The recommended Kubernetes label for the tool that manages an object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// The recommended Kubernetes label for the application that an object is part of.
    pub const PART_OF: &str = "app.kubernetes.io/part-of";
    /// On webhook configurations: keeps AKS's admissions enforcer from adding terms to their `namespaceSelector`s.
    pub const ENFORCER_DISABLED: &str = "admissions.enforcer/disabled";
    /// The recommended Kubernetes label for the name of an application.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// The recommended Kubernetes label for a component of an application.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// The actor's name on its pods and child objects; part of the selector.
    pub const ASYA: &str = "asya.sh/asya";
    /// The actor's name on its pods and child objects; not part of the selector (POD-9).
    pub const ACTOR: &str = "asya.sh/actor";
    /// `deployment` or `statefulset`; part of the selector.
    pub const WORKLOAD: &str = "asya.sh/workload";
    /// On a pod: `"false"` opts out of a binding's sidecar (INJ-1).
    pub const INJECT: &str = "asya.sh/inject";
    /// The actor's name on its pods; part of the selector.
    pub const APP: &str = "app";
}

/// Annotation keys that we write or read.
pub mod annotation {
    /// On a child object: hash of the object as the operator last applied it.
    pub const APPLIED_HASH: &str = "asya.sh/applied-hash";
    /// On pods: hash of the pod template, which identifies pods of the current rollout (STA-4).
    pub const TEMPLATE_HASH: &str = "asya.sh/template-hash";
    /// On pods: hash of the runtime script, so that a new script rolls them (RUN-4).
    pub const RUNTIME_HASH: &str = "asya.sh/runtime-hash";
    /// On an actor: `"true"` stops all writes except those for its deletion (API-3).
    pub const PAUSED: &str = "asya.sh/paused";
    /// On an actor: how to reconcile it, `Always`, `Once` or `Paused` (FW-21).
    pub const RECONCILE: &str = "asya.sh/reconcile";
    /// On an actor: `"true"` keeps its queue when the actor is deleted (FIN-4).
    pub const SKIP_QUEUE_DELETION: &str = "asya.sh/skip-queue-deletion";
    /// On an actor: UID of namespace `kube-system` of the other cluster whose queue it adopts (QUE-33).
    pub const ADOPT_QUEUE_FROM: &str = "asya.sh/adopt-queue-from";
    /// On an actor: `"true"` takes over, once, fields of its workload that kubectl or Helm manage (FW-22).
    pub const RECLAIM_FIELDS: &str = "asya.sh/reclaim-fields";
    /// On a workload that the operator created: `"true"` once the fields have been reclaimed.
    pub const RECLAIMED: &str = "asya.sh/reclaimed";
    /// On an actor: `"true"` allows recreating a workload that cannot be updated in place (FW-22).
    pub const ALLOW_RECREATE: &str = "asya.sh/allow-recreate";
    /// On a `ConfigMap` that the operator created: `"true"` once no actor needs it any more (FW-23).
    pub const ORPHANED: &str = "asya.sh/orphaned";
    /// On a pod of a binding: UID of the actor whose sidecar was injected (BIND-22).
    pub const INJECTED_BY: &str = "asya.sh/injected-by";
    /// On a pod of a binding: the two hashes of what was injected (INJ-9, ROLL-8).
    pub const INJECTED_HASH: &str = "asya.sh/injected-hash";
    /// On a pod of a binding: the reason why it was not injected (BIND-7).
    pub const NOT_INJECTED: &str = "asya.sh/not-injected";
    /// On a dry-run pod of a binding: UID of the actor that the probe is for. Such a pod gets the sidecar regardless of
    /// the actor's probe result. The annotation has no effect on a pod that is persisted (SAFE-2).
    pub const PROBE: &str = "asya.sh/probe";
    /// On the object that creates a binding's pods: a new value makes its controller roll them (ROLL-3).
    pub const ROLL: &str = "asya.sh/roll";
    /// On an actor: replaces every outdated pod immediately, whatever `binding.rollout` says (ROLL-8).
    pub const ROLL_NOW: &str = "asya.sh/roll-now";
    /// On another controller's workload: the actor that binds it, for information only (BIND-47).
    pub const MANAGED_BY: &str = "asya.sh/managed-by";
    /// On an `InferenceService`, defined by `KServe`: which autoscaler sets its replicas (SO-5).
    pub const AUTOSCALER_CLASS: &str = "serving.kserve.io/autoscalerClass";
    /// On pods, defined by the cluster autoscaler: local volumes in spite of which it may evict the pod (BIND-33).
    pub const LOCAL_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
    /// On pods, defined by the cluster autoscaler: whether it may evict the pod, whatever its volumes.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// On an actor: `"true"` lets its deletion complete while pods still have its sidecar (BIND-44).
    pub const SKIP_UNBIND: &str = "asya.sh/skip-unbind";
    /// On the Secret with the webhook's certificates: since when its serving certificate is signed by the current CA
    /// (CERT-4).
    pub const AUTHORITY_SINCE: &str = "asya.sh/authority-since";
    /// On the CRD: the version that wrote it.
    pub const CRD_VERSION: &str = "asya.sh/crd-version";
    /// On a `ScaledObject`: pauses scaling by KEDA, unless the value parses as false.
    pub const KEDA_PAUSED: &str = "autoscaling.keda.sh/paused";
    /// On the `CustomResourceDefinition` of `AsyncActor`: `"true"` allows deleting it while actors have queues
    /// (QUE-49).
    pub const ALLOW_DELETION: &str = "asya.sh/allow-deletion";
    /// On an actor: the IAM role of its pods (SA-1).
    pub const ROLE_ARN: &str = "eks.amazonaws.com/role-arn";
}

/// Field managers, one per concern.
pub mod manager {
    /// Deployments and `StatefulSet`s.
    pub const WORKLOAD: &str = "asya-operator/workload";
    /// The `asya-runtime` `ConfigMap`s.
    pub const RUNTIME: &str = "asya-operator/runtime";
    /// `ScaledObject`s, and what they refer to: `TriggerAuthentication`s and the transports' `ConfigMap`s.
    pub const SCALED_OBJECT: &str = "asya-operator/scaledobject";
    /// Status of `AsyncActor`s.
    pub const STATUS: &str = "asya-operator/status";
    /// Actors' `ServiceAccount`s.
    pub const SERVICE_ACCOUNT: &str = "asya-operator/serviceaccount";
    /// The Secret with the webhook's certificates (CERT-2).
    pub const CERTS: &str = "asya-operator/certs";
    /// The CRD.
    pub const CRD: &str = "asya-operator/crd";
    /// The replicas of a target, set once when scaling ends (SO-6).
    pub const SCALE: &str = "asya-operator/scale";
    /// The annotation that rolls pods of a binding, on their workload (ROLL-3).
    pub const ROLL: &str = "asya-operator/roll";
    /// The operator's fields of the pod template of a target with strategy Template: containers, volumes, labels and
    /// annotations (BIND-50).
    pub const TEMPLATE: &str = "asya-operator/template";
    /// What the operator writes to the object that a binding names, or to its owner.
    pub const OWNER: &str = "asya-operator/parent";
    /// The annotation on a workload that names the actor binding it (BIND-47).
    pub const BINDING: &str = "asya-operator/binding";
    /// The webhook configurations.
    pub const ADMISSION: &str = "asya-operator/admission";
    /// The field manager of the Go operator (WRK-7).
    pub const GO_OPERATOR: &str = "manager";
    /// `spec.replicas` while its ownership is handed off (WRK-3).
    pub const REPLICAS_HANDOFF: &str = "asya-operator/handover";
}

/// Whether this field manager is ours.
#[must_use]
pub fn is_our_manager(name: &str) -> bool {
    name.starts_with("asya-operator/")
}

/// The container that runs the user's handler.
pub const RUNTIME_CONTAINER: &str = "asya-runtime";
/// The container that the operator adds to move messages between queue and socket.
pub const SIDECAR_CONTAINER: &str = "asya-sidecar";
/// The `ConfigMap` with the runtime script, one per namespace; also the name of the volume that mounts it.
pub const RUNTIME_CONFIG_MAP: &str = "asya-runtime";
/// Key of the runtime script in that `ConfigMap`.
pub const RUNTIME_SCRIPT_KEY: &str = "asya_runtime.py";
/// Key of the adapters in that `ConfigMap`, which pods of a binding use (BIND-30).
pub const RUNTIME_ADAPTERS_KEY: &str = "asya_adapters.py";
/// Prefix of the names of the transports' `ConfigMap`s (KEDA-6).
pub const TRANSPORT_CONFIG_MAP: &str = "asya-transport";

/// Whether nothing can be bound in a namespace, and no pod is injected there: the operator's, and all of Kubernetes'
/// own, `kube-*` (BIND-2; INJ-1, row 1).
#[must_use]
pub fn is_excluded_namespace(namespace: &str, operator_namespace: &str) -> bool {
    namespace == operator_namespace || namespace.starts_with("kube-")
}

/// Whether this `ConfigMap` is shared by the actors of its namespace. Checks the name, because other objects use the
/// same label.
#[must_use]
pub fn is_shared_config_map(name: &str) -> bool {
    let of_transport = name.strip_prefix(TRANSPORT_CONFIG_MAP);
    name == RUNTIME_CONFIG_MAP || of_transport.is_some_and(|rest| rest.starts_with('-'))
}

/// Name of the trigger in a `ScaledObject`, by which formulas refer to the queue's depth (KEDA-3).
pub const TRIGGER_NAME: &str = "queueLength";
/// The volume with the Unix socket between sidecar and runtime.
pub const SOCKET_VOLUME: &str = "socket-dir";
/// The volume mounted at `/tmp`.
pub const TMP_VOLUME: &str = "tmp";
/// [`SOCKET_VOLUME`] in pods of a binding, which may already use the short name (BIND-21).
pub const BOUND_SOCKET_VOLUME: &str = "asya-socket-dir";
/// [`TMP_VOLUME`] in pods of a binding.
pub const BOUND_TMP_VOLUME: &str = "asya-tmp";
/// The volume that hides the service account token from the operator's containers in pods of a binding (BIND-28).
pub const NO_TOKEN_VOLUME: &str = "asya-no-token";
/// The volume with the token with which the sidecar of a binding assumes its IAM role (BIND-28).
pub const ROLE_TOKEN_VOLUME: &str = "asya-role-token";
/// The volume with the CA that the sidecar checks the broker's certificate against (POD-3).
pub const BROKER_CA_VOLUME: &str = "asya-broker-ca";
/// Path of the runtime script in the pod.
pub const RUNTIME_SCRIPT_PATH: &str = "/opt/asya/asya_runtime.py";

/// Directory of the runtime script and the adapters in pods of a binding.
pub const RUNTIME_SCRIPT_DIR: &str = "/opt/asya";
/// Python module of the adapters, in the same directory as the script (BIND-30).
pub const ADAPTERS: &str = "asya_adapters";

pub use asya_wire::socket::DIRECTORY as SOCKET_DIR;
pub use asya_wire::{ERROR_END, HAPPY_END};

/// The `ServiceAccount` in each namespace that is impersonated to apply child objects, if impersonation is enabled
/// (FW-27).
pub const IMPERSONATED_SERVICE_ACCOUNT: &str = "asya-applier";

/// The leader election Lease (OPS-1). The Go operator uses the same name, so the two never lead at the same time.
pub const LEASE: &str = "asya-operator.asya.sh";
