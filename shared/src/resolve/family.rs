//! Families of kinds: each has one entry in the webhook configuration (CFG-3).

use super::GroupKind;
use crate::api::WorkloadRef;

/// The owning system of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
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
    /// Deployments, `StatefulSet`s and every kind that we do not know: told by owner, not by label.
    Generic,
}

/// Kinds of the families that a label tells.
const KINDS: [(&str, &str, Family); 10] = [
    ("kaito.sh", "Workspace", Family::Kaito),
    ("kaito.sh", "InferenceSet", Family::Kaito),
    ("serving.kserve.io", "InferenceService", Family::Kserve),
    (
        "serving.kserve.io",
        "LLMInferenceService",
        Family::LlmInferenceService,
    ),
    ("ray.io", "RayCluster", Family::Ray),
    ("ray.io", "RayService", Family::Ray),
    ("serving.knative.dev", "Service", Family::Knative),
    (
        "machinelearning.seldon.io",
        "SeldonDeployment",
        Family::Seldon,
    ),
    ("mlops.seldon.io", "Server", Family::Seldon2),
    ("serving.yatai.ai", "BentoDeployment", Family::Bento),
];

impl Family {
    /// The family of a kind.
    #[must_use]
    pub fn of(kind: GroupKind<'_>) -> Self {
        KINDS
            .into_iter()
            .find(|(group, name, _)| *group == kind.group && *name == kind.kind)
            .map_or(Self::Generic, |(_, _, family)| family)
    }

    /// The family of what an actor binds to.
    #[must_use]
    pub fn of_target(target: &WorkloadRef) -> Self {
        Self::of(GroupKind {
            group: target.group(),
            kind: &target.kind,
        })
    }

    /// The first part of its entry's name.
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

    /// The label that all its pods carry. Its values are those that the bindings' [`PodMatch`](super::PodMatch)es ask
    /// for; a binding that asks for none makes the entry ask for the key alone. `None`: pods are told by owner.
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
