//! The target of an autoscaler.

use std::borrow::Cow;

use asya_shared::api::WorkloadKind;
use serde::Deserialize;

/// Object that an autoscaler scales, without its API version: all versions of a kind are the same object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoscalerTarget {
    /// API group; empty for the core group.
    pub group: Box<str>,
    pub kind: Box<str>,
    /// Name, in the autoscaler's namespace.
    pub name: Box<str>,
}

impl AutoscalerTarget {
    /// The workload that the operator creates for an actor.
    pub fn workload(kind: WorkloadKind, actor: &str) -> Self {
        Self {
            group: "apps".into(),
            kind: kind.name().into(),
            name: actor.into(),
        }
    }
}

/// The spec fields that HPAs and `ScaledObject`s have in common.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawScaling<'a> {
    #[serde(borrow)]
    scale_target_ref: Option<RawScaleTarget<'a>>,
}

impl RawScaling<'_> {
    pub(super) fn target(self) -> AutoscalerTarget {
        self.scale_target_ref.unwrap_or_default().to_target()
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawScaleTarget<'a> {
    #[serde(borrow)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl RawScaleTarget<'_> {
    /// Applies KEDA's defaults for omitted fields, which also hold for every working HPA.
    fn to_target(&self) -> AutoscalerTarget {
        let version = filled(self.api_version.as_deref()).unwrap_or("apps/v1");
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        AutoscalerTarget {
            group: group.into(),
            kind: filled(self.kind.as_deref()).unwrap_or("Deployment").into(),
            name: self.name.as_ref().into(),
        }
    }
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
