//! Kinds that simulated owners read and write.

use kube::api::ApiResource;

/// A namespaced kind, in the version used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural name, as in paths.
    pub plural: &'static str,
}

impl Kind {
    /// Deployments.
    pub const DEPLOYMENT: Self = Self::new("apps", "v1", "Deployment", "deployments");
    /// `StatefulSet`s.
    pub const STATEFUL_SET: Self = Self::new("apps", "v1", "StatefulSet", "statefulsets");
    /// Pods.
    pub const POD: Self = Self::new("", "v1", "Pod", "pods");
    /// `HorizontalPodAutoscaler`s.
    pub const HPA: Self = Self::new(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    );

    /// Creates a kind.
    #[must_use]
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
        }
    }

    /// `group/version`, as in manifests.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The description of this kind for kube's dynamic API.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}
