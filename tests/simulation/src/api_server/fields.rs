//! Sets of fields, as in `metadata.managedFields`.
//!
//! A path is written as in `fieldsV1`: `f:NAME` for a field, `k:{…}` for an element of a list with keys, `v:…` for an
//! element of a set. The rules follow sigs.k8s.io/structured-merge-diff.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::schema::{ListType, Schema};

/// An element of a path, shared by many paths.
pub type Step = Rc<str>;

/// A path from the root of an object.
pub type Path = Vec<Step>;

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub BTreeSet<Path>);

/// The difference between two values.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Fields that only the second value has, or that differ there.
    pub changed: Fields,
    /// Fields that only the first value has.
    pub removed: Fields,
}

/// Fields of the metadata that have no owner.
const UNOWNED: [&str; 7] = [
    "f:name",
    "f:namespace",
    "f:uid",
    "f:resourceVersion",
    "f:generation",
    "f:creationTimestamp",
    "f:managedFields",
];

fn has_owner(path: &[Step]) -> bool {
    match path {
        [root] => !["f:apiVersion", "f:kind", "f:metadata"].contains(&&**root),
        [root, field, ..] => **root != *"f:metadata" || !UNOWNED.contains(&&**field),
        [] => false,
    }
}

/// The path element for an item of a list.
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
        ListType::Set => format!("v:{item}"),
    }
}

/// The path element for a field.
fn field(name: &str) -> Step {
    format!("f:{name}").into()
}

fn joined(path: &[Step], step: Step) -> Path {
    path.iter().cloned().chain([step]).collect()
}

/// The values below a value, by their path elements; `None` if the value is owned as a whole.
fn children(value: &Value, schema: Schema) -> Option<Vec<(Step, &Value)>> {
    match (value, schema.list()) {
        _ if schema == Schema::Atomic => None,
        (Value::Object(fields), _) => {
            let children = fields.iter().map(|(name, value)| (field(name), value));
            Some(children.collect())
        }
        (Value::Array(items), Some(list)) => Some(
            items
                .iter()
                .map(|item| (element(list, item).into(), item))
                .collect(),
        ),
        _ => None,
    }
}

impl Fields {
    /// All fields of an applied configuration.
    #[must_use]
    pub fn of(object: &Value, schema: Schema) -> Self {
        let mut fields = Self::all_of(object, schema);
        fields.0.retain(|path| has_owner(path));
        fields
    }

    /// All fields of an object, including those without an owner.
    #[must_use]
    pub fn all_of(object: &Value, schema: Schema) -> Self {
        let mut fields = Self::default();
        fields.collect(&[], object, schema);
        fields
    }

    fn collect(&mut self, path: &[Step], value: &Value, schema: Schema) {
        let Some(children) = children(value, schema) else {
            self.0.insert(path.to_vec());
            return;
        };
        for (step, child) in children {
            let path = joined(path, step);
            let schema_below = schema.below(&path[path.len() - 1]);
            self.collect(&path, child, schema_below);
            let is_empty = child.as_object().is_some_and(Map::is_empty);
            // Known fields have no owner of their own, unlike map keys and list elements.
            if is_empty || !matches!(schema, Schema::Struct(_)) {
                self.0.insert(path);
            }
        }
    }

    /// The set, plus the known fields on the path to each member.
    #[must_use]
    pub fn with_named(&self, schema: Schema) -> Self {
        let mut all = self.clone();
        for path in &self.0 {
            let mut at = schema;
            for (length, step) in (1..).zip(path) {
                if matches!(at, Schema::Struct(_)) && step.starts_with("f:") {
                    all.0.insert(path[..length].to_vec());
                }
                at = at.below(step);
            }
        }
        all
    }

    /// The members that the other set lacks.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }

    /// The members that the other set has as well.
    #[must_use]
    pub fn both(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).cloned().collect())
    }

    fn has_below(&self, path: &[Step]) -> bool {
        let mut from = self.0.range(path.to_vec()..);
        from.find(|it| *it != path)
            .is_some_and(|it| it.starts_with(path))
    }

    /// The value without these fields; `None` if nothing is left.
    #[must_use]
    pub fn removed_from(&self, value: &Value, schema: Schema) -> Option<Value> {
        self.removed_below(&[], value, schema)
    }

    fn removed_below(&self, path: &[Step], value: &Value, schema: Schema) -> Option<Value> {
        let rest = |step: Step, child: &Value| {
            let path = joined(path, step);
            if self.0.contains(&path) {
                None
            } else if self.has_below(&path) {
                // An emptied field remains, as `null`.
                let schema = schema.below(&path[path.len() - 1]);
                Some(self.removed_below(&path, child, schema).unwrap_or_default())
            } else {
                Some(child.clone())
            }
        };
        match (value, schema.list()) {
            _ if schema == Schema::Atomic => None,
            (Value::Object(fields), _) => {
                let fields = fields.iter();
                let fields = fields
                    .filter_map(|(name, child)| Some((name.clone(), rest(field(name), child)?)));
                let fields: Map<String, Value> = fields.collect();
                (!fields.is_empty()).then_some(fields.into())
            }
            (Value::Array(items), Some(list)) => {
                let items = items.iter();
                let items: Vec<Value> = items
                    .filter_map(|item| rest(element(list, item).into(), item))
                    .collect();
                (!items.is_empty()).then_some(items.into())
            }
            _ => None,
        }
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

    /// Parses `fieldsV1`.
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
            at.push((&**step).into());
            self.read(at, below);
            at.pop();
        }
    }
}

/// Like [`children`]; an absent value has none.
fn below(value: Option<&Value>, schema: Schema) -> Option<BTreeMap<Step, &Value>> {
    match value {
        None | Some(Value::Null) => Some(BTreeMap::new()),
        Some(value) => Some(children(value, schema)?.into_iter().collect()),
    }
}

impl Comparison {
    /// How `after` differs from `before`.
    #[must_use]
    pub fn of(before: &Value, after: &Value, schema: Schema) -> Self {
        let mut comparison = Self::default();
        comparison.compare(&[], (Some(before), Some(after)), schema);
        // Built-in objects always have both fields, perhaps empty.
        let is_part =
            |path: &[Step]| matches!(path, [part] if ["f:spec", "f:status"].contains(&&**part));
        let has_owner = |path: &Path| has_owner(path) && !(schema.is_built_in() && is_part(path));
        comparison.changed.0.retain(has_owner);
        comparison.removed.0.retain(has_owner);
        comparison
    }

    fn compare(
        &mut self,
        path: &[Step],
        (before, after): (Option<&Value>, Option<&Value>),
        schema: Schema,
    ) {
        match (before, after) {
            // Most of an object is unchanged.
            _ if before == after => return,
            (None, Some(_)) => self.changed.0.insert(path.to_vec()),
            (Some(_), None) => self.removed.0.insert(path.to_vec()),
            _ => false,
        };
        match (below(before, schema), below(after, schema)) {
            (Some(old), Some(new)) if !old.is_empty() || !new.is_empty() => {
                let steps: BTreeSet<&Step> = old.keys().chain(new.keys()).collect();
                for step in steps {
                    let path = joined(path, step.clone());
                    let values = (old.get(step).copied(), new.get(step).copied());
                    self.compare(&path, values, schema.below(step));
                }
            }
            _ if before.is_some() && after.is_some() => {
                self.changed.0.insert(path.to_vec());
            }
            _ => {}
        }
    }
}

/// A path as shown in messages.
#[must_use]
pub fn shown(path: &[Step]) -> String {
    let step = |step: &Step| {
        if let Some(name) = step.strip_prefix("f:") {
            return format!(".{name}");
        }
        if let Some(value) = step.strip_prefix("v:") {
            return format!("[={value}]");
        }
        let keys: Map<String, Value> =
            serde_json::from_str(step.trim_start_matches("k:")).unwrap_or_default();
        let keys: Vec<String> = keys
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!("[{}]", keys.join(","))
    };
    path.iter().map(step).collect()
}

fn insert(at: &mut Map<String, Value>, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else {
        at.insert(".".to_owned(), Value::Object(Map::new()));
        return;
    };
    let below = at
        .entry(&**step)
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(below) = below {
        insert(below, rest);
    }
}

/// A field without fields below it is written as `{}`, not as `{".": {}}`.
fn without_leaf_dots(value: &mut Value) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    if map.len() == 1 && map.contains_key(".") {
        map.clear();
    }
    map.values_mut().for_each(without_leaf_dots);
}
