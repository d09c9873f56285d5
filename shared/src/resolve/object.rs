//! References to objects and kinds.

use std::fmt;

use serde_json::Value;

/// A kind in its API group, without a version: reads use the API server's preferred version (RES-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
}

impl fmt::Display for GroupKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            "" => f.write_str(self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

/// An object in the target's namespace, written as `Kind/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// API group and version as read from the object.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID, if it was read.
    pub uid: Option<String>,
}

impl ObjectRef {
    /// The reference to an object, if it has kind and name.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let text = |path: &str| {
            let text = object.pointer(path).and_then(Value::as_str);
            text.filter(|it| !it.is_empty())
        };
        Some(Self {
            api_version: text("/apiVersion")?.to_owned(),
            kind: text("/kind")?.to_owned(),
            name: text("/metadata/name")?.to_owned(),
            uid: text("/metadata/uid").map(str::to_owned),
        })
    }

    /// The object's kind in its API group.
    #[must_use]
    pub fn group_kind(&self) -> GroupKind<'_> {
        GroupKind {
            group: group_of(&self.api_version),
            kind: &self.kind,
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// The controller owner of an object (RES-2).
#[must_use]
pub fn controller_of(object: &Value) -> Option<ObjectRef> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|it| it["controller"] == true)?;
    let text = |key: &str| {
        let text = owner.get(key).and_then(Value::as_str);
        text.filter(|it| !it.is_empty()).map(str::to_owned)
    };
    Some(ObjectRef {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid"),
    })
}

/// The group in `group/version`; empty for `v1`.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version
        .split_once('/')
        .map_or("", |(group, _version)| group)
}
