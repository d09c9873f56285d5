//! KEDA's kinds, as uninhabited marker types: the watches decode them into records.

use std::borrow::Cow;

use asya_shared::scaling::{KEDA_GROUP, KEDA_VERSION};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// KEDA's `ScaledObject`.
#[derive(Debug)]
pub enum ScaledObject {}

/// KEDA's `TriggerAuthentication`.
#[derive(Debug)]
pub enum TriggerAuthentication {}

macro_rules! of_keda {
    ($kind:ident, $plural:literal) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                KEDA_GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                KEDA_VERSION.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                match *self {}
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                match *self {}
            }
        }
    };
}

of_keda!(ScaledObject, "scaledobjects");
of_keda!(TriggerAuthentication, "triggerauthentications");
