//! Sets of fields, as in `metadata.managedFields`.
//!
//! A path is written as in `fieldsV1`: `f:NAME` for a field, `k:{…}` for an element of a list with keys, `v:…` for an
//! element of a set.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A path from the root of an object.
pub type Path = Vec<String>;

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub BTreeSet<Path>);

/// How the elements of a list are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Only the list as a whole has an owner.
    Atomic,
    /// By the values of these fields.
    Map(&'static [&'static str]),
    /// By their value.
    Set,
}

/// The type of the list with this name. It depends on the name alone, which is right for the objects that the operator
/// and the simulated owners write.
#[must_use]
pub fn list_type(name: &str) -> ListType {
    match name {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => {
            ListType::Map(&["name"])
        }
        "ports" => ListType::Map(&["containerPort", "protocol"]),
        "volumeMounts" => ListType::Map(&["mountPath"]),
        "ownerReferences" => ListType::Map(&["uid"]),
        "conditions" => ListType::Map(&["type"]),
        "finalizers" => ListType::Set,
        _ => ListType::Atomic,
    }
}

/// Whether the object with this name has only one owner.
fn is_atomic(name: &str) -> bool {
    [
        "selector",
        "secretKeyRef",
        "configMapKeyRef",
        "fieldRef",
        "resourceFieldRef",
    ]
    .contains(&name)
}

/// Fields of the metadata that have no owner.
const UNOWNED: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// The path element of an element of a list.
#[must_use]
pub fn element(list: ListType, item: &Value) -> String {
    match list {
        ListType::Map(keys) => {
            let default = |key: &str| {
                if key == "protocol" {
                    Value::from("TCP")
                } else {
                    Value::Null
                }
            };
            let keys = keys.iter().map(|key| {
                let value = item.get(*key).cloned().unwrap_or_else(|| default(key));
                ((*key).to_owned(), value)
            });
            format!("k:{}", Value::Object(keys.collect()))
        }
        ListType::Set | ListType::Atomic => format!("v:{item}"),
    }
}

impl Fields {
    /// All fields of an object that have an owner.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let mut fields = Self::default();
        for (name, value) in object.as_object().into_iter().flatten() {
            let path = vec![format!("f:{name}")];
            match &**name {
                "apiVersion" | "kind" => {}
                "metadata" => {
                    let metadata = value.as_object().into_iter().flatten();
                    for (name, value) in metadata.filter(|(name, _)| !UNOWNED.contains(&&***name)) {
                        fields.collect(&path, name, value);
                    }
                }
                _ => fields.collect(&[], name, value),
            }
        }
        fields
    }

    fn collect(&mut self, parent: &[String], name: &str, value: &Value) {
        let mut path = parent.to_vec();
        path.push(format!("f:{name}"));
        match value {
            Value::Object(map) if !map.is_empty() && !is_atomic(name) => {
                for (name, value) in map {
                    self.collect(&path, name, value);
                }
            }
            Value::Array(items) if list_type(name) != ListType::Atomic => {
                for item in items {
                    self.collect_item(&path, list_type(name), item);
                }
            }
            _ => {
                self.0.insert(path);
            }
        }
    }

    fn collect_item(&mut self, list: &[String], kind: ListType, item: &Value) {
        let mut path = list.to_vec();
        path.push(element(kind, item));
        for (name, value) in item.as_object().into_iter().flatten() {
            self.collect(&path, name, value);
        }
        self.0.insert(path);
    }

    /// Whether it has this field, or one below it.
    #[must_use]
    pub fn covers(&self, path: &[String]) -> bool {
        let below = self.0.range(path.to_vec()..).next();
        below.is_some_and(|first| first.starts_with(path))
    }

    /// The set as `fieldsV1`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut root = Map::new();
        for path in &self.0 {
            insert(&mut root, path);
        }
        let mut root = Value::Object(root);
        without_leaf_dots(&mut root);
        root
    }

    /// Reads `fieldsV1`.
    #[must_use]
    pub fn from_json(json: &Value) -> Self {
        let mut fields = Self::default();
        fields.read(&mut Vec::new(), json);
        fields
    }

    fn read(&mut self, at: &mut Path, json: &Value) {
        let Some(map) = json.as_object() else { return };
        if map.is_empty() && !at.is_empty() {
            self.0.insert(at.clone());
        }
        for (step, below) in map {
            if step == "." {
                self.0.insert(at.clone());
                continue;
            }
            at.push(step.clone());
            self.read(at, below);
            at.pop();
        }
    }
}

fn insert(at: &mut Map<String, Value>, path: &[String]) {
    let Some((step, rest)) = path.split_first() else {
        at.insert(".".to_owned(), Value::Object(Map::new()));
        return;
    };
    let below = at
        .entry(step.clone())
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(below) = below {
        insert(below, rest);
    }
}

/// A field without others below it is written as `{}`, not as `{".": {}}`.
fn without_leaf_dots(value: &mut Value) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    if map.len() == 1 && map.contains_key(".") {
        map.clear();
    }
    map.values_mut().for_each(without_leaf_dots);
}
