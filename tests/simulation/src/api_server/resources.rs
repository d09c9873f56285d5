//! The resources that the simulated API server serves.

use std::cmp::Ordering;

/// A resource.
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The only served version.
    pub version: &'static str,
    /// Plural name, as in paths.
    pub plural: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Whether objects belong to a namespace.
    pub namespaced: bool,
    /// Whether `status` is a subresource.
    pub status: bool,
    /// Whether the server counts changes of the spec in `metadata.generation`.
    pub generation: bool,
}

impl Resource {
    /// Identifies the resource. There is only one value for each.
    fn key(&self) -> (&str, &str) {
        (self.group, self.plural)
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Resource {}

impl Ord for Resource {
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Resource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

const fn resource(
    api: (&'static str, &'static str),
    names: (&'static str, &'static str),
) -> Resource {
    Resource {
        group: api.0,
        version: api.1,
        plural: names.0,
        kind: names.1,
        namespaced: true,
        status: false,
        generation: false,
    }
}

/// A resource with a status subresource and a generation.
const fn reconciled(
    api: (&'static str, &'static str),
    names: (&'static str, &'static str),
) -> Resource {
    Resource {
        status: true,
        generation: true,
        ..resource(api, names)
    }
}

const fn cluster_scoped(mut resource: Resource) -> Resource {
    resource.namespaced = false;
    resource
}

/// A webhook configuration: cluster-scoped, without a status.
const fn admission(names: (&'static str, &'static str)) -> Resource {
    cluster_scoped(Resource {
        generation: true,
        ..resource(("admissionregistration.k8s.io", "v1"), names)
    })
}

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const KEDA: (&str, &str) = ("keda.sh", "v1alpha1");

/// `AsyncActor`s.
pub static ACTORS: Resource = reconciled(("asya.sh", "v1alpha1"), ("asyncactors", "AsyncActor"));
/// `ClusterRole`s.
pub static CLUSTER_ROLES: Resource = cluster_scoped(resource(
    ("rbac.authorization.k8s.io", "v1"),
    ("clusterroles", "ClusterRole"),
));
/// `ConfigMap`s.
pub static CONFIG_MAPS: Resource = resource(CORE, ("configmaps", "ConfigMap"));
/// `CustomResourceDefinition`s.
pub static CRDS: Resource = cluster_scoped(reconciled(
    ("apiextensions.k8s.io", "v1"),
    ("customresourcedefinitions", "CustomResourceDefinition"),
));
/// `Deployment`s.
pub static DEPLOYMENTS: Resource = reconciled(APPS, ("deployments", "Deployment"));
/// Events, as written.
pub static EVENTS: Resource = resource(("events.k8s.io", "v1"), ("events", "Event"));
/// Events, as watched.
pub static CORE_EVENTS: Resource = resource(CORE, ("events", "Event"));
/// `HorizontalPodAutoscaler`s.
pub static HPAS: Resource = Resource {
    status: true,
    ..resource(
        ("autoscaling", "v2"),
        ("horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    )
};
/// KServe's `InferenceService`s.
pub static INFERENCE_SERVICES: Resource = reconciled(
    ("serving.kserve.io", "v1beta1"),
    ("inferenceservices", "InferenceService"),
);
/// `Lease`s.
pub static LEASES: Resource = resource(("coordination.k8s.io", "v1"), ("leases", "Lease"));
/// `LimitRange`s.
pub static LIMIT_RANGES: Resource = resource(CORE, ("limitranges", "LimitRange"));
/// `MutatingWebhookConfiguration`s.
pub static MUTATING_WEBHOOKS: Resource = admission((
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
));
/// Namespaces.
pub static NAMESPACES: Resource = cluster_scoped(Resource {
    status: true,
    ..resource(CORE, ("namespaces", "Namespace"))
});
/// `PodDisruptionBudget`s.
pub static POD_DISRUPTION_BUDGETS: Resource = reconciled(
    ("policy", "v1"),
    ("poddisruptionbudgets", "PodDisruptionBudget"),
);
/// Pods.
pub static PODS: Resource = Resource {
    status: true,
    ..resource(CORE, ("pods", "Pod"))
};
/// `KubeRay`'s `RayCluster`s.
pub static RAY_CLUSTERS: Resource = reconciled(("ray.io", "v1"), ("rayclusters", "RayCluster"));
/// `ResourceQuota`s.
pub static RESOURCE_QUOTAS: Resource = Resource {
    status: true,
    ..resource(CORE, ("resourcequotas", "ResourceQuota"))
};
/// `ScaledObject`s.
pub static SCALED_OBJECTS: Resource = reconciled(KEDA, ("scaledobjects", "ScaledObject"));
/// Secrets.
pub static SECRETS: Resource = resource(CORE, ("secrets", "Secret"));
/// `ServiceAccount`s.
pub static SERVICE_ACCOUNTS: Resource = resource(CORE, ("serviceaccounts", "ServiceAccount"));
/// `StatefulSet`s.
pub static STATEFUL_SETS: Resource = reconciled(APPS, ("statefulsets", "StatefulSet"));
/// `TriggerAuthentication`s.
pub static TRIGGER_AUTHENTICATIONS: Resource =
    reconciled(KEDA, ("triggerauthentications", "TriggerAuthentication"));

/// `ValidatingWebhookConfiguration`s.
pub static VALIDATING_WEBHOOKS: Resource = admission((
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
));

/// KAITO's `Workspace`s.
pub static WORKSPACES: Resource = reconciled(("kaito.sh", "v1beta1"), ("workspaces", "Workspace"));

/// All resources.
static ALL: [&Resource; 24] = [
    &ACTORS,
    &CLUSTER_ROLES,
    &CONFIG_MAPS,
    &CRDS,
    &DEPLOYMENTS,
    &EVENTS,
    &CORE_EVENTS,
    &HPAS,
    &INFERENCE_SERVICES,
    &LEASES,
    &LIMIT_RANGES,
    &MUTATING_WEBHOOKS,
    &NAMESPACES,
    &POD_DISRUPTION_BUDGETS,
    &PODS,
    &RAY_CLUSTERS,
    &RESOURCE_QUOTAS,
    &SCALED_OBJECTS,
    &SECRETS,
    &SERVICE_ACCOUNTS,
    &STATEFUL_SETS,
    &TRIGGER_AUTHENTICATIONS,
    &VALIDATING_WEBHOOKS,
    &WORKSPACES,
];

/// The resource at this path.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    let matches = |it: &&&Resource| (it.group, it.version, it.plural) == (group, version, plural);
    ALL.iter().find(matches).copied()
}

/// The resources of an API group.
pub fn in_group(group: &str) -> impl Iterator<Item = &'static Resource> {
    ALL.iter().filter(move |it| it.group == group).copied()
}

impl Resource {
    /// The `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `RESOURCE.GROUP`, as in messages.
    #[must_use]
    pub fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }
}
