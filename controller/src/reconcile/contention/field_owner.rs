//! Identifies who took a field back, as far as `managedFields` show it (CONF-7, CONF-8).

use std::cmp::Reverse;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use serde_json::{Map, Value};

/// The prefix of all our field managers.
const OURS: &str = "asya-operator/";
/// Kind of the controller of our own objects.
const OWN_KIND: &str = "AsyncActor";
/// The depth from which a common parent identifies a rival: any manager may own fields below `spec` or `metadata`.
const NEAREST: usize = 2;
/// The API server's reason for a field on which an unforced apply conflicts.
const OWNED: &str = "FieldManagerConflict";

/// One step of a field's path.
#[derive(Clone, Debug, PartialEq)]
pub enum Segment {
    /// A field of an object, or a key of a map.
    Field(String),
    /// A list item, identified by its key fields.
    Item(Value),
}

impl Segment {
    /// A path that consists of plain fields.
    pub fn path(fields: &[&str]) -> Vec<Self> {
        let fields = fields.iter();
        fields.map(|it| Self::Field((*it).to_owned())).collect()
    }

    /// Formats a path for users.
    pub fn text(path: &[Self]) -> String {
        let steps = path.iter().map(|segment| match segment {
            // Keys of labels and annotations contain dots themselves.
            Self::Field(name) if name.contains(['.', '/']) => format!("[{name}]"),
            Self::Field(name) => format!(".{name}"),
            Self::Item(keys) => {
                let mut values = keys.as_object().into_iter().flat_map(Map::values);
                let name = values.next().and_then(Value::as_str).unwrap_or_default();
                format!("[{name}]")
            }
        });
        let text: String = steps.collect();
        text.trim_start_matches('.').to_owned()
    }

    /// The part of a field set below this step.
    fn below<'a>(&self, set: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
        let found = match self {
            Self::Field(name) => set.get(&format!("f:{name}")),
            // The keys of an item are JSON within a map key, in any order.
            Self::Item(keys) => set
                .iter()
                .find(|(step, _)| {
                    let step = step.strip_prefix("k:");
                    step.and_then(|it| serde_json::from_str(it).ok()).as_ref() == Some(keys)
                })
                .map(|(_, below)| below),
        };
        found.and_then(Value::as_object)
    }
}

/// Another field manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    pub manager: String,
    /// `Update` or `Apply`, if known.
    pub operation: Option<String>,
    /// Whether it owns the field now; otherwise it only owns something around it.
    pub has_it: bool,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.has_it {
            f.write_str("probably ")?;
        }
        f.write_str(&self.manager)?;
        match &self.operation {
            Some(operation) => write!(f, " ({operation})"),
            None => Ok(()),
        }
    }
}

/// The rival for the field at `path`: the newest manager that owns it. If none does because the field was removed, the
/// newest that owns its nearest parent: a manager that only removes fields leaves no trace.
pub fn of(entries: &[ManagedFieldsEntry], path: &[Segment]) -> Option<Rival> {
    let mut others: Vec<_> = entries
        .iter()
        .filter(|entry| !manager(entry).starts_with(OURS))
        .collect();
    others.sort_by_key(|entry| Reverse(entry.time.as_ref().map(|time| time.0)));
    let reach = |entry: &&ManagedFieldsEntry| reach(entry, path);
    if let Some(owner) = others.iter().find(|it| reach(it) == Reach::Field) {
        return Some(rival(owner, true));
    }
    // Ignore subresources: a status update carries fields that its controller does not decide.
    others.retain(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    let depths = others.iter().map(|entry| match reach(entry) {
        Reach::Field => path.len(),
        Reach::Parent(depth) => depth,
    });
    let nearest = depths.max().filter(|depth| *depth >= NEAREST)?;
    let around = others.iter();
    around
        .into_iter()
        .find(|entry| reach(entry) == Reach::Parent(nearest))
        .map(|entry| rival(entry, false))
}

/// Names the field manager that owns `path`, and the controller of the object, because many field managers are just
/// called "manager".
pub fn named(metadata: &ObjectMeta, path: &[Segment]) -> Option<String> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let rival = of(entries, path)?;
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|it| it.controller == Some(true) && it.kind != OWN_KIND);
    Some(match owner {
        Some(owner) => format!(
            "{rival}; the object is controlled by {} {}",
            owner.kind, owner.name
        ),
        None => rival.to_string(),
    })
}

/// When the newest other owner of the field at `path` last wrote; `None`: nobody but us owns it.
pub fn written_at(entries: &[ManagedFieldsEntry], path: &[Segment]) -> Option<Timestamp> {
    let others = entries.iter();
    let others = others.filter(|entry| !manager(entry).starts_with(OURS));
    let owners = others.filter(|entry| reach(entry, path) == Reach::Field);
    owners
        .filter_map(|entry| Some(entry.time.as_ref()?.0))
        .max()
}

/// When `manager` last applied an object.
pub fn applied_at(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Timestamp> {
    let ours = entries.iter().find(|entry| is_applied_by(entry, manager))?;
    Some(ours.time.as_ref()?.0)
}

fn is_applied_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
}

/// The first field of `wanted`, which `manager` applied, that it no longer owns. Fields within lists are not
/// distinguished.
pub fn missing(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    wanted: &Value,
) -> Option<Vec<Segment>> {
    first_missing(entries, manager, leaves(wanted))
}

/// The first of `paths`, which `manager` applied, that it no longer owns.
pub fn first_missing(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    paths: Vec<Vec<Segment>>,
) -> Option<Vec<Segment>> {
    let ours = entries.iter().find(|entry| is_applied_by(entry, manager));
    let owned = |path: &[Segment]| ours.is_some_and(|it| reach(it, path) == Reach::Field);
    paths.into_iter().find(|path| !owned(path))
}

/// The paths of an object's fields, except those that nobody owns.
fn leaves(object: &Value) -> Vec<Vec<Segment>> {
    let mut open = vec![(Vec::new(), object)];
    let mut leaves = Vec::new();
    while let Some((path, value)) = open.pop() {
        match value.as_object().filter(|fields| !fields.is_empty()) {
            Some(fields) => open.extend(fields.iter().map(|(name, value)| {
                let step = Segment::Field(name.clone());
                (path.iter().cloned().chain([step]).collect(), value)
            })),
            None => leaves.push(path),
        }
    }
    let nobodys = ["apiVersion", "kind", "metadata.name", "metadata.namespace"];
    leaves.retain(|path| !nobodys.contains(&&*Segment::text(path)));
    leaves.sort_by_key(|path| Segment::text(path));
    leaves
}

/// The field and the rival for which the API server rejected an unforced apply; `None`: it failed for another reason
/// (CONF-7).
pub fn taken(error: &kube::Error) -> Option<(String, String)> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let (field, rival) = of_refusal(status)?.into_iter().next()?;
    Some((field, rival.to_string()))
}

/// The rivals that the API server names when it rejects an unforced apply; `None`: it rejects for another reason.
pub fn of_refusal(status: &Status) -> Option<Vec<(String, Rival)>> {
    let causes = &status.details.as_ref()?.causes;
    let owned = causes.iter().filter(|cause| cause.reason == OWNED);
    let found: Vec<_> = owned
        .map(|cause| {
            // conflict with "kubectl-edit" using apps/v1: …; "kubectl" with subresource "scale" using …
            let name = cause.message.split('"').nth(1).unwrap_or("unknown");
            let rival = Rival {
                manager: name.to_owned(),
                operation: None,
                has_it: true,
            };
            // Format list items as [`Segment::text`] does.
            let field = cause.field.replace("[name=\"", "[").replace("\"]", "]");
            (field.trim_start_matches('.').to_owned(), rival)
        })
        .collect();
    (!found.is_empty()).then_some(found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It owns the field, or a parent of it as a whole.
    Field,
    /// It owns something below this many steps of the path.
    Parent(usize),
}

fn reach(entry: &ManagedFieldsEntry, path: &[Segment]) -> Reach {
    let Some(mut set) = entry.fields_v1.as_ref().and_then(|it| it.0.as_object()) else {
        return Reach::Parent(0);
    };
    for (depth, segment) in path.iter().enumerate() {
        // An atomic list or map covers everything in it.
        if depth > 0 && set.is_empty() {
            return Reach::Field;
        }
        match segment.below(set) {
            Some(below) => set = below,
            None => return Reach::Parent(depth),
        }
    }
    Reach::Field
}

fn manager(entry: &ManagedFieldsEntry) -> &str {
    entry.manager.as_deref().unwrap_or_default()
}

fn rival(entry: &ManagedFieldsEntry, has_it: bool) -> Rival {
    Rival {
        manager: manager(entry).to_owned(),
        operation: entry.operation.clone(),
        has_it,
    }
}

#[cfg(test)]
mod tests;
