//! The Secret as an object of the API server, without a `Debug` that shows what it holds.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

use crate::data::Data;

/// Of the type that tools know certificates by. It asks for `tls.crt` and `tls.key`.
pub const TYPE: &str = "kubernetes.io/tls";

/// A Secret with certificates; every field of a Secret that can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsSecret {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it holds.
    #[serde(default)]
    pub data: Data,
    /// What it is for.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it can be changed no more.
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
