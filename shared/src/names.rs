//! Every label, annotation, finalizer, field manager and reserved name of Asya.

/// API group of the `AsyncActor`.
pub const GROUP: &str = "asya.sh";

/// Finalizer that holds an actor until its queue is gone (FIN-1).
pub const FINALIZER: &str = "asya.sh/finalizer";

/// Value of `app.kubernetes.io/managed-by` on what we create.
pub const MANAGED_BY: &str = "asya-operator";

/// Labels.
pub mod label {
    /// Kubernetes' own label for the tool that manages an object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Kubernetes' own label for the application that an object is part of.
    pub const PART_OF: &str = "app.kubernetes.io/part-of";
    /// On webhook configurations: AKS' admissions enforcer adds no terms to their `namespaceSelector`s.
    pub const ENFORCER_DISABLED: &str = "admissions.enforcer/disabled";
    /// Kubernetes' own label for the name of an application.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// Kubernetes' own label for a component of an application.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// The actor's name on its pods and children; part of the selector.
    pub const ASYA: &str = "asya.sh/asya";
    /// The actor's name on its pods and children; not part of the selector (POD-9).
    pub const ACTOR: &str = "asya.sh/actor";
    /// `deployment` or `statefulset`; part of the selector.
    pub const WORKLOAD: &str = "asya.sh/workload";
    /// On a pod: `"false"` keeps a binding's sidecar out of it (INJ-1).
    pub const INJECT: &str = "asya.sh/inject";
    /// The actor's name on its pods; part of the selector.
    pub const APP: &str = "app";
}

/// Annotations that we write or read.
pub mod annotation {
    /// Hash of the child as we would send it, on the child itself.
    pub const APPLIED_HASH: &str = "asya.sh/applied-hash";
    /// Hash of the pod template, on pods: tells new pods from old ones (STA-4).
    pub const TEMPLATE_HASH: &str = "asya.sh/template-hash";
    /// Hash of the runtime script, on pods: a new script rolls them (RUN-4).
    pub const RUNTIME_HASH: &str = "asya.sh/runtime-hash";
    /// On an actor: `"true"` stops every write but those of its deletion (API-3).
    pub const PAUSED: &str = "asya.sh/paused";
    /// On an actor: `Always`, `Once` or `Paused` (FW-21).
    pub const RECONCILE: &str = "asya.sh/reconcile";
    /// On an actor: `"true"` leaves its queue behind when it is deleted (FIN-4).
    pub const SKIP_QUEUE_DELETION: &str = "asya.sh/skip-queue-deletion";
    /// On an actor: uid of namespace `kube-system` of another cluster, whose queue it takes over (QUE-33).
    pub const ADOPT_QUEUE_FROM: &str = "asya.sh/adopt-queue-from";
    /// On an actor: `"true"` makes fields of its workload ours, once, that kubectl or Helm wrote (FW-22).
    pub const RECLAIM_FIELDS: &str = "asya.sh/reclaim-fields";
    /// On a workload of ours: `"true"` when that was done.
    pub const RECLAIMED: &str = "asya.sh/reclaimed";
    /// On an actor: `"true"` lets a workload that cannot be changed in place be made anew (FW-22).
    pub const ALLOW_RECREATE: &str = "asya.sh/allow-recreate";
    /// On a `ConfigMap` of ours: `"true"` when it outlives the actors that needed it (FW-23).
    pub const ORPHANED: &str = "asya.sh/orphaned";
    /// On a pod of a binding: uid of the actor whose sidecar it has (BIND-22).
    pub const INJECTED_BY: &str = "asya.sh/injected-by";
    /// On such a pod: the two hashes of what it got (INJ-9, ROLL-8).
    pub const INJECTED_HASH: &str = "asya.sh/injected-hash";
    /// On a pod of a binding that was left alone: the reason (BIND-7).
    pub const NOT_INJECTED: &str = "asya.sh/not-injected";
    /// On a dry run of a pod of a binding: uid of the actor whose probe it is. Such a pod gets the sidecar whatever the
    /// actor's gate says; on a pod that is going to be stored it means nothing (SAFE-2).
    pub const PROBE: &str = "asya.sh/probe";
    /// On what makes the pods of a binding: another value makes its controller replace them (ROLL-3).
    pub const ROLL: &str = "asya.sh/roll";
    /// On an actor: pods with anything older than today's are replaced at once, whatever `binding.rollout` says (ROLL-8).
    pub const ROLL_NOW: &str = "asya.sh/roll-now";
    /// On a workload that others make: the actor that binds it, for whoever looks at it (BIND-47).
    pub const MANAGED_BY: &str = "asya.sh/managed-by";
    /// `KServe`'s, on an `InferenceService`: who sets the number of its pods (SO-5).
    pub const AUTOSCALER_CLASS: &str = "serving.kserve.io/autoscalerClass";
    /// On an actor: `"true"` lets it go although pods still have its sidecar (BIND-44).
    pub const SKIP_UNBIND: &str = "asya.sh/skip-unbind";
    /// On the Secret with the webhook's certificates: since when its leaf is one of the present CA (CERT-4).
    pub const AUTHORITY_SINCE: &str = "asya.sh/authority-since";
    /// On the CRD: the release that it is of.
    pub const CRD_VERSION: &str = "asya.sh/crd-version";
    /// On a `ScaledObject`: stops KEDA from scaling, unless its text is a false.
    pub const KEDA_PAUSED: &str = "autoscaling.keda.sh/paused";
    /// On our `CustomResourceDefinition`: `"true"` lets it be deleted although actors have queues (QUE-49).
    pub const ALLOW_DELETION: &str = "asya.sh/allow-deletion";
    /// On an actor: the IAM role of its pods (SA-1).
    pub const ROLE_ARN: &str = "eks.amazonaws.com/role-arn";
}

/// Field managers, one per fact that we write.
pub mod manager {
    /// Deployments and `StatefulSet`s.
    pub const WORKLOAD: &str = "asya-operator/workload";
    /// The `asya-runtime` `ConfigMap`s.
    pub const RUNTIME: &str = "asya-operator/runtime";
    /// `ScaledObject`s, and what they read: `TriggerAuthentication`s and the transports' `ConfigMap`s.
    pub const SCALED_OBJECT: &str = "asya-operator/scaledobject";
    /// Status of `AsyncActor`s.
    pub const STATUS: &str = "asya-operator/status";
    /// Actors' `ServiceAccount`s.
    pub const SERVICE_ACCOUNT: &str = "asya-operator/serviceaccount";
    /// The Secret with the webhook's certificates (CERT-2).
    pub const CERTS: &str = "asya-operator/certs";
    /// The CRD.
    pub const CRD: &str = "asya-operator/crd";
    /// The replicas of a target, once, when nobody scales it any more (SO-6).
    pub const SCALE: &str = "asya-operator/scale";
    /// The annotation that makes pods of a binding roll, on their workload (ROLL-3).
    pub const ROLL: &str = "asya-operator/roll";
    /// Containers, volumes, labels and annotations in the pod template of a target with strategy Template (BIND-50).
    pub const TEMPLATE: &str = "asya-operator/template";
    /// What is written to an object that a binding names, or to the owner of that.
    pub const PARENT: &str = "asya-operator/parent";
    /// Which actor binds a workload, on that (BIND-47).
    pub const BINDING: &str = "asya-operator/binding";
    /// The webhook configurations.
    pub const ADMISSION: &str = "asya-operator/admission";
    /// What the former operator, written in Go, wrote as (WRK-7).
    pub const FORMER_OPERATOR: &str = "manager";
    /// `spec.replicas` for the moment in which its owner changes (WRK-3).
    pub const HANDOVER: &str = "asya-operator/handover";
}

/// Whether a field manager is one of ours.
#[must_use]
pub fn is_our_manager(name: &str) -> bool {
    name.starts_with("asya-operator/")
}

/// Container that runs the user's handler.
pub const RUNTIME_CONTAINER: &str = "asya-runtime";
/// Container that we add: it moves messages between queue and socket.
pub const SIDECAR_CONTAINER: &str = "asya-sidecar";
/// `ConfigMap` with the runtime script, one per namespace; also the name of the volume that mounts it.
pub const RUNTIME_CONFIG_MAP: &str = "asya-runtime";
/// Key of the script in that `ConfigMap`.
pub const RUNTIME_SCRIPT_KEY: &str = "asya_runtime.py";
/// Key of the adapters beside it, which pods of a binding use (BIND-30).
pub const RUNTIME_ADAPTERS_KEY: &str = "asya_adapters.py";
/// What the names of the transports' `ConfigMap`s begin with (KEDA-6).
pub const TRANSPORT_CONFIG_MAP: &str = "asya-transport";

/// Whether a `ConfigMap` of this name is one that the actors of its namespace share. Their label is a common one.
#[must_use]
pub fn is_shared_config_map(name: &str) -> bool {
    let of_transport = name.strip_prefix(TRANSPORT_CONFIG_MAP);
    name == RUNTIME_CONFIG_MAP || of_transport.is_some_and(|rest| rest.starts_with('-'))
}

/// Name of the trigger of a `ScaledObject`, by which formulas know the queue's depth (KEDA-3).
pub const TRIGGER_NAME: &str = "queueLength";
/// Volume with the Unix socket between sidecar and runtime.
pub const SOCKET_VOLUME: &str = "socket-dir";
/// Volume mounted at `/tmp`.
pub const TMP_VOLUME: &str = "tmp";
/// [`SOCKET_VOLUME`] in pods of a binding: foreign pods may own the short names (BIND-21).
pub const BOUND_SOCKET_VOLUME: &str = "asya-socket-dir";
/// [`TMP_VOLUME`] in pods of a binding.
pub const BOUND_TMP_VOLUME: &str = "asya-tmp";
/// Volume that covers the place of the service account's token in our containers of a binding (BIND-28).
pub const NO_TOKEN_VOLUME: &str = "asya-no-token";
/// Volume with the token by which the sidecar of a binding takes its role (BIND-28).
pub const ROLE_TOKEN_VOLUME: &str = "asya-role-token";
/// Folder of the socket.
pub const SOCKET_DIR: &str = "/var/run/asya";
/// Where the script lies in the pod.
pub const RUNTIME_SCRIPT_PATH: &str = "/opt/asya/asya_runtime.py";

/// Folder of the script and the adapters in pods of a binding.
pub const RUNTIME_SCRIPT_DIR: &str = "/opt/asya";
/// Module of the adapters, which lies beside the script (BIND-30).
pub const ADAPTERS: &str = "asya_adapters";

/// Actor that receives what finished well.
pub const HAPPY_END: &str = "happy-end";
/// Actor that receives what failed.
pub const ERROR_END: &str = "error-end";

/// `ServiceAccount` of each namespace in whose name children are applied, where that is asked for (FW-27).
pub const APPLIER: &str = "asya-applier";

/// Lease of the leader (OPS-1): today's name, so that the former operator and ours never lead together.
pub const LEASE: &str = "asya-operator.asya.sh";
