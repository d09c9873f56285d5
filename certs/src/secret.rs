//! The Secret as an API object whose `Debug` output does not show its values.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

use crate::data::Data;

/// The Secret type for TLS certificates; it requires `tls.crt` and `tls.key`.
pub const TYPE: &str = "kubernetes.io/tls";

/// A Secret with certificates; it has every readable field of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsSecret {
    /// The object metadata.
    pub metadata: ObjectMeta,
    /// The Secret's data.
    #[serde(default)]
    pub data: Data,
    /// The Secret's type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether the Secret is immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
}

impl Resource for TlsSecret {
    type DynamicType = ();
    type Scope = <Secret as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Secret::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Secret::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Secret::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Secret::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
