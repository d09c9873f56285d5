//! Integrations: the systems whose kinds can be bound. Each has one entry in the webhook configuration (CFG-3).

use super::GroupKind;
use crate::api::WorkloadRef;

/// The system that owns a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Integration {
    /// KAITO.
    Kaito,
    /// `KServe`'s `InferenceService`.
    Kserve,
    /// `KServe`'s `LLMInferenceService`.
    LlmInferenceService,
    /// `KubeRay`.
    Ray,
    /// Knative Serving.
    Knative,
    /// Seldon Core 1.
    Seldon,
    /// Seldon Core 2.
    Seldon2,
    /// Yatai.
    Bento,
    /// Deployments, `StatefulSet`s and all unknown kinds: their pods are matched by owner, not by label.
    Generic,
}

/// Kinds whose pods are matched by label.
const KINDS: [(&str, &str, Integration); 10] = [
    ("kaito.sh", "Workspace", Integration::Kaito),
    ("kaito.sh", "InferenceSet", Integration::Kaito),
    ("serving.kserve.io", "InferenceService", Integration::Kserve),
    (
        "serving.kserve.io",
        "LLMInferenceService",
        Integration::LlmInferenceService,
    ),
    ("ray.io", "RayCluster", Integration::Ray),
    ("ray.io", "RayService", Integration::Ray),
    ("serving.knative.dev", "Service", Integration::Knative),
    (
        "machinelearning.seldon.io",
        "SeldonDeployment",
        Integration::Seldon,
    ),
    ("mlops.seldon.io", "Server", Integration::Seldon2),
    ("serving.yatai.ai", "BentoDeployment", Integration::Bento),
];

impl Integration {
    /// The integration that a kind belongs to.
    #[must_use]
    pub fn of(kind: GroupKind<'_>) -> Self {
        KINDS
            .into_iter()
            .find(|(group, name, _)| *group == kind.group && *name == kind.kind)
            .map_or(Self::Generic, |(_, _, integration)| integration)
    }

    /// The labels of all integrations.
    pub(super) fn labels() -> impl Iterator<Item = &'static str> {
        KINDS.into_iter().filter_map(|(.., it)| it.label())
    }

    /// The integration of a binding's target.
    #[must_use]
    pub fn of_target(target: &WorkloadRef) -> Self {
        Self::of(GroupKind {
            group: target.group(),
            kind: &target.kind,
        })
    }

    /// First part of the name of the integration's webhook entry.
    #[must_use]
    pub fn entry(self) -> &'static str {
        match self {
            Self::Kaito => "kaito",
            Self::Kserve => "kserve",
            Self::LlmInferenceService => "llmisvc",
            Self::Ray => "ray",
            Self::Knative => "knative",
            Self::Seldon => "seldon",
            Self::Seldon2 => "seldon2",
            Self::Bento => "bento",
            Self::Generic => "generic",
        }
    }

    /// The label that all pods of the integration carry. The entry selects on the values that the bindings'
    /// [`PodMatch`](super::PodMatch)es require, or on the key alone if a binding requires none. `None` if pods are
    /// matched by owner.
    #[must_use]
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Kaito => Some("kaito.sh/workspace"),
            Self::Kserve => Some("serving.kserve.io/inferenceservice"),
            Self::LlmInferenceService => Some("app.kubernetes.io/name"),
            Self::Ray => Some("ray.io/cluster"),
            Self::Knative => Some("serving.knative.dev/service"),
            Self::Seldon => Some("seldon-deployment-id"),
            Self::Seldon2 => Some("seldon-server-name"),
            Self::Bento => Some("yatai.ai/selector"),
            Self::Generic => None,
        }
    }
}
