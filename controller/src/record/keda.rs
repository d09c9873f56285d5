//! KEDA's kinds. There are no values of them: what a watch shows of one is its record.

use std::borrow::Cow;

use asya_shared::scaling::{KEDA_GROUP, KEDA_VERSION};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// What KEDA scales, and how.
#[derive(Debug)]
pub enum ScaledObject {}

/// What KEDA logs in to a broker with.
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
