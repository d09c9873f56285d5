//! A condition of a Kubernetes object, borrowed from the API server's response.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// One entry of `status.conditions`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawCondition<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) status: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) reason: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) message: Cow<'a, str>,
    pub(super) last_transition_time: Option<Time>,
}

impl RawCondition<'_> {
    pub(super) fn is(&self, kind: &str, status: &str) -> bool {
        self.kind == kind && self.status == status
    }
}
