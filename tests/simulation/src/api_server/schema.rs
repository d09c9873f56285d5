//! Schemas, as far as field ownership depends on them.

use serde_json::{Value, json};

use super::resources::Resource;

/// How list elements are identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// By the values of these fields.
    Map(&'static [&'static str]),
    /// By their value.
    Set,
}

/// The schema of a value. Covers only the objects that the operator and the simulated owners write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// An object with known fields, or a scalar.
    Struct(Rules),
    /// An object with any keys, or a scalar.
    Map,
    /// A value that is owned as a whole.
    Atomic,
    /// A list whose elements are owned individually.
    List(ListType, &'static Schema),
}

/// The schemas of an object's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Those of built-in objects.
    BuiltIn,
    /// Those of a `ServiceAccount`.
    ServiceAccount,
    /// Those of the `AsyncActor` CRD.
    Actor,
    /// Those of CRDs that declare no list types, such as KEDA's.
    Custom,
    /// Those of any metadata.
    Metadata,
}

/// A list of built-in objects, identified by one field.
const fn by(key: &'static [&'static str]) -> Schema {
    Schema::List(ListType::Map(key), &Schema::Struct(Rules::BuiltIn))
}

impl Schema {
    /// The schema of the objects of a resource.
    #[must_use]
    pub fn of(resource: &Resource) -> Self {
        Self::Struct(match resource.group {
            "asya.sh" => Rules::Actor,
            "keda.sh" | "serving.kserve.io" | "kaito.sh" | "ray.io" => Rules::Custom,
            _ if resource.kind == "ServiceAccount" => Rules::ServiceAccount,
            _ => Rules::BuiltIn,
        })
    }

    /// Whether it is the schema of a built-in object.
    #[must_use]
    pub fn is_built_in(self) -> bool {
        matches!(self, Self::Struct(Rules::BuiltIn | Rules::ServiceAccount))
    }

    /// The schema of a field.
    #[must_use]
    pub fn field(self, name: &str) -> Self {
        match self {
            Self::Struct(rules) => rules.field(name),
            Self::List(_, item) => item.field(name),
            Self::Map | Self::Atomic => self,
        }
    }

    /// The schema at this path element.
    #[must_use]
    pub fn below(self, step: &str) -> Self {
        match (step.strip_prefix("f:"), self) {
            (Some(name), schema) => schema.field(name),
            (None, Self::List(_, item)) => *item,
            (None, schema) => schema,
        }
    }

    /// How the elements of the list with this schema are identified; `None` if the list is owned as a whole.
    #[must_use]
    pub fn list(self) -> Option<ListType> {
        match self {
            Self::List(kind, _) => Some(kind),
            _ => None,
        }
    }
}

impl Rules {
    fn field(self, name: &str) -> Schema {
        match (self, name) {
            (Self::Metadata, "finalizers") => Schema::List(ListType::Set, &Schema::Atomic),
            (Self::Metadata, "ownerReferences") => {
                Schema::List(ListType::Map(&["uid"]), &Schema::Atomic)
            }
            (_, "metadata") => Schema::Struct(Self::Metadata),
            (Self::Metadata, "labels" | "annotations")
            | (
                Self::Actor,
                "template" | "resources" | "behavior" | "fallback" | "securityContext",
            ) => Schema::Map,
            (Self::Actor | Self::BuiltIn, "conditions") => by(&["type"]),
            (Self::BuiltIn, name) => built_in(name),
            _ => Schema::Struct(self),
        }
    }
}

fn built_in(name: &str) -> Schema {
    match name {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => by(&["name"]),
        "ports" => by(&["containerPort", "protocol"]),
        "volumeMounts" => by(&["mountPath"]),
        "data" | "stringData" | "binaryData" | "limits" | "requests" => Schema::Map,
        "selector" | "nodeSelector" | "secretKeyRef" | "configMapKeyRef" | "fieldRef"
        | "resourceFieldRef" => Schema::Atomic,
        _ => Schema::Struct(Rules::BuiltIn),
    }
}

/// Whether a CRD defines the resource.
#[must_use]
pub fn is_custom(resource: &Resource) -> bool {
    matches!(
        Schema::of(resource),
        Schema::Struct(Rules::Actor | Rules::Custom)
    )
}

/// The object against which a new one is compared: built-in objects always have certain fields, which then have no
/// owner.
#[must_use]
pub fn nothing(resource: &Resource) -> Value {
    if is_custom(resource) {
        json!({"metadata": {}})
    } else {
        json!({
            "metadata": {},
            "spec": {"template": {"metadata": {}, "spec": {"containers": null}}, "strategy": {}, "updateStrategy": {}},
        })
    }
}
