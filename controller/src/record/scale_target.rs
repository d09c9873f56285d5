//! What an autoscaler scales.

use std::borrow::Cow;

use asya_shared::api::WorkloadKind;
use serde::Deserialize;

/// The object that an autoscaler scales, free of its version: two versions of a kind are one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleTarget {
    /// API group; empty for the core group.
    pub group: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name, in the autoscaler's own namespace.
    pub name: Box<str>,
}

impl ScaleTarget {
    /// The workload that we make for an actor.
    pub fn workload(kind: WorkloadKind, actor: &str) -> Self {
        Self {
            group: "apps".into(),
            kind: kind.name().into(),
            name: actor.into(),
        }
    }
}

/// The spec of an autoscaler, as far as HPAs and `ScaledObject`s agree.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawScaling<'a> {
    #[serde(borrow)]
    scale_target_ref: Option<RawScaleTarget<'a>>,
}

impl RawScaling<'_> {
    pub(super) fn target(self) -> ScaleTarget {
        self.scale_target_ref.unwrap_or_default().keep()
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
    /// What KEDA takes for what is left out is true of every HPA that works, too.
    fn keep(&self) -> ScaleTarget {
        let version = filled(self.api_version.as_deref()).unwrap_or("apps/v1");
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        ScaleTarget {
            group: group.into(),
            kind: filled(self.kind.as_deref()).unwrap_or("Deployment").into(),
            name: self.name.as_ref().into(),
        }
    }
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
