//! Identifies the field manager that reverted a field, as far as `managedFields` reveal it (CONF-7, CONF-8).

use std::cmp::Reverse;
use std::fmt;

use asya_shared::names::is_our_manager;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

/// Kind of the controller of our own objects.
const OWN_KIND: &str = "AsyncActor";
/// The minimum depth at which a shared parent identifies a manager: anyone may own fields below `spec` or `metadata`.
const MIN_PARENT_DEPTH: usize = 2;

/// One element of a field's path.
#[derive(Clone, Debug, PartialEq)]
pub enum PathElement {
    /// A field of an object, or a key of a map.
    Field(String),
    /// A list item, identified by its key fields.
    Item(Value),
}

impl PathElement {
    /// A path that consists of plain fields.
    pub fn path(fields: &[&str]) -> Vec<Self> {
        let fields = fields.iter();
        fields
            .map(|field| Self::Field((*field).to_owned()))
            .collect()
    }

    /// Formats a path for users.
    pub fn text(path: &[Self]) -> String {
        let elements = path.iter().map(|element| match element {
            // Keys of labels and annotations contain dots themselves.
            Self::Field(name) if name.contains(['.', '/']) => format!("[{name}]"),
            Self::Field(name) => format!(".{name}"),
            Self::Item(keys) => {
                let mut values = keys.as_object().into_iter().flat_map(Map::values);
                let name = values.next().and_then(Value::as_str).unwrap_or_default();
                format!("[{name}]")
            }
        });
        let text: String = elements.collect();
        text.trim_start_matches('.').to_owned()
    }

    /// The subset of a field set below this element.
    fn below<'a>(&self, set: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
        let value = match self {
            Self::Field(name) => set.get(&format!("f:{name}")),
            // The keys of an item are JSON within a map key, in any order.
            Self::Item(keys) => set
                .iter()
                .find(|(key, _)| {
                    let found = key.strip_prefix("k:");
                    found
                        .and_then(|found| serde_json::from_str(found).ok())
                        .as_ref()
                        == Some(keys)
                })
                .map(|(_, below)| below),
        };
        value.and_then(Value::as_object)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldManager {
    pub manager: String,
    /// `Update` or `Apply`, if known.
    pub operation: Option<String>,
    /// Whether it owns the field itself, and not only a parent of it.
    pub owns_field: bool,
}

impl fmt::Display for FieldManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.owns_field {
            f.write_str("probably ")?;
        }
        f.write_str(&self.manager)?;
        match &self.operation {
            Some(operation) => write!(f, " ({operation})"),
            None => Ok(()),
        }
    }
}

/// The newest other manager that owns the field at `path`. If the field was removed, the newest owner of its nearest
/// parent: a manager that only removes fields leaves no trace.
pub fn find_manager(entries: &[ManagedFieldsEntry], path: &[PathElement]) -> Option<FieldManager> {
    let mut others: Vec<_> = entries
        .iter()
        .filter(|entry| !is_our_manager(manager(entry)))
        .collect();
    others.sort_by_key(|entry| Reverse(entry.time.as_ref().map(|time| time.0)));
    let covers = |entry: &&ManagedFieldsEntry| coverage(entry, path);
    if let Some(owner) = others.iter().find(|entry| covers(entry) == Coverage::Field) {
        return Some(to_manager(owner, true));
    }
    // Ignore subresources: a status update carries fields that its controller does not decide.
    others.retain(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    let depths = others.iter().map(|entry| match covers(entry) {
        Coverage::Field => path.len(),
        Coverage::Parent(depth) => depth,
    });
    let nearest = depths.max().filter(|depth| *depth >= MIN_PARENT_DEPTH)?;
    others
        .iter()
        .find(|entry| covers(entry) == Coverage::Parent(nearest))
        .map(|entry| to_manager(entry, false))
}

/// Names the field manager that owns `path`, and the controller of the object, because many field managers are just
/// called "manager".
pub fn describe_manager(metadata: &ObjectMeta, path: &[PathElement]) -> Option<String> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let manager = find_manager(entries, path)?;
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true) && owner.kind != OWN_KIND);
    Some(match controller {
        Some(controller) => format!(
            "{manager}; the object is controlled by {} {}",
            controller.kind, controller.name
        ),
        None => manager.to_string(),
    })
}

/// When another owner of the field at `path` last wrote; `None` if nobody else owns it.
pub fn written_at(entries: &[ManagedFieldsEntry], path: &[PathElement]) -> Option<Timestamp> {
    let others = entries.iter();
    let others = others.filter(|entry| !is_our_manager(manager(entry)));
    let owners = others.filter(|entry| coverage(entry, path) == Coverage::Field);
    owners
        .filter_map(|entry| Some(entry.time.as_ref()?.0))
        .max()
}

/// When `manager` last applied an object.
pub fn applied_at(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Timestamp> {
    let entry = entries.iter().find(|entry| is_applied_by(entry, manager))?;
    Some(entry.time.as_ref()?.0)
}

fn is_applied_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
}

/// The first field of `desired`, as applied by `manager`, that it no longer owns. Lists are compared as a whole.
pub fn first_unowned_field(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    desired: &Value,
) -> Option<Vec<PathElement>> {
    first_unowned(entries, manager, leaves(desired))
}

/// The first of `paths`, as applied by `manager`, that it no longer owns.
pub fn first_unowned(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    paths: Vec<Vec<PathElement>>,
) -> Option<Vec<PathElement>> {
    let entry = entries.iter().find(|entry| is_applied_by(entry, manager));
    let owned =
        |path: &[PathElement]| entry.is_some_and(|entry| coverage(entry, path) == Coverage::Field);
    paths.into_iter().find(|path| !owned(path))
}

/// The paths of an object's fields, without those that have no field manager.
fn leaves(object: &Value) -> Vec<Vec<PathElement>> {
    let mut open = vec![(Vec::new(), object)];
    let mut leaves = Vec::new();
    while let Some((path, value)) = open.pop() {
        match value.as_object().filter(|fields| !fields.is_empty()) {
            Some(fields) => open.extend(fields.iter().map(|(name, value)| {
                let element = PathElement::Field(name.clone());
                (path.iter().cloned().chain([element]).collect(), value)
            })),
            None => leaves.push(path),
        }
    }
    let unowned = ["apiVersion", "kind", "metadata.name", "metadata.namespace"];
    leaves.retain(|path| !unowned.contains(&&*PathElement::text(path)));
    leaves.sort_by_key(|path| PathElement::text(path));
    leaves
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// It owns the field, or all of a parent.
    Field,
    /// It only owns something below a parent, which is this many elements deep.
    Parent(usize),
}

fn coverage(entry: &ManagedFieldsEntry, path: &[PathElement]) -> Coverage {
    let Some(mut set) = entry.fields_v1.as_ref().and_then(|it| it.0.as_object()) else {
        return Coverage::Parent(0);
    };
    for (depth, element) in path.iter().enumerate() {
        // An atomic list or map covers everything in it.
        if depth > 0 && set.is_empty() {
            return Coverage::Field;
        }
        match element.below(set) {
            Some(below) => set = below,
            None => return Coverage::Parent(depth),
        }
    }
    Coverage::Field
}

fn manager(entry: &ManagedFieldsEntry) -> &str {
    entry.manager.as_deref().unwrap_or_default()
}

fn to_manager(entry: &ManagedFieldsEntry, owns_field: bool) -> FieldManager {
    FieldManager {
        manager: manager(entry).to_owned(),
        operation: entry.operation.clone(),
        owns_field,
    }
}

#[cfg(test)]
mod tests;
