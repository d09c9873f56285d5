//! Who took a field back, as far as `managedFields` tell (CONF-7, CONF-8).

use std::cmp::Reverse;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use serde_json::{Map, Value};

/// What the names of all our field managers begin with.
const OURS: &str = "asya-operator/";
/// Whoever owns no more than `spec` or `metadata` around a field is anybody.
const NEAREST: usize = 2;
/// What the API server calls a field that an unforced apply may not have.
const OWNED: &str = "FieldManagerConflict";

/// One step of the path of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Segment {
    /// A field of an object, or a key of a map.
    Field(String),
    /// An item of a list, by the fields that tell it from others.
    Item(Value),
}

impl Segment {
    /// The path of a field below others.
    pub fn path(fields: &[&str]) -> Vec<Self> {
        let fields = fields.iter();
        fields.map(|it| Self::Field((*it).to_owned())).collect()
    }

    /// A path as users name it.
    pub fn text(path: &[Self]) -> String {
        let steps = path.iter().map(|segment| match segment {
            // Keys of labels and annotations have dots of their own.
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

    /// What stands below this step in a set of fields.
    fn below<'a>(&self, set: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
        let found = match self {
            Self::Field(name) => set.get(&format!("f:{name}")),
            // The keys of an item are JSON in a key: their order is not ours.
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
    /// Its name.
    pub manager: String,
    /// Update or Apply, where that is known.
    pub operation: Option<String>,
    /// Whether it has the field now; else it only wrote what is around it.
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

/// The rival for the field at `path`. Of those that own it the newest; where nobody does, because it was removed, the
/// newest that owns its nearest parent: whoever only removes fields leaves no trace of its own.
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
    // A controller's status carries fields that it does not decide.
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

/// When the newest of those that own the field at `path` wrote last; `None`: nobody but us owns it.
pub fn written_at(entries: &[ManagedFieldsEntry], path: &[Segment]) -> Option<Timestamp> {
    let others = entries.iter();
    let others = others.filter(|entry| !manager(entry).starts_with(OURS));
    let owners = others.filter(|entry| reach(entry, path) == Reach::Field);
    owners
        .filter_map(|entry| Some(entry.time.as_ref()?.0))
        .max()
}

/// When `manager` applied an object last.
pub fn applied_at(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Timestamp> {
    let ours = entries.iter().find(|entry| is_applied_by(entry, manager))?;
    Some(ours.time.as_ref()?.0)
}

fn is_applied_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
}

/// The first field of an object as we apply it that `manager`, who applied it, does not own any more. What is in lists
/// is not told apart.
pub fn missing(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    wanted: &Value,
) -> Option<Vec<Segment>> {
    first_missing(entries, manager, leaves(wanted))
}

/// The first of these fields that `manager`, who applied them, does not own any more.
pub fn first_missing(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    paths: Vec<Vec<Segment>>,
) -> Option<Vec<Segment>> {
    let ours = entries.iter().find(|entry| is_applied_by(entry, manager));
    let owned = |path: &[Segment]| ours.is_some_and(|it| reach(it, path) == Reach::Field);
    paths.into_iter().find(|path| !owned(path))
}

/// The paths of an object's fields, those left out that nobody owns.
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

/// The rivals that an API server names when it refuses an unforced apply; `None`: it refuses for another reason.
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
            // An item of a list is named as by [`Segment::text`].
            let field = cause.field.replace("[name=\"", "[").replace("\"]", "]");
            (field.trim_start_matches('.').to_owned(), rival)
        })
        .collect();
    (!found.is_empty()).then_some(found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It owns the field, or what the field is a part of as a whole.
    Field,
    /// It owns something below so many steps of the path.
    Parent(usize),
}

fn reach(entry: &ManagedFieldsEntry, path: &[Segment]) -> Reach {
    let Some(mut set) = entry.fields_v1.as_ref().and_then(|it| it.0.as_object()) else {
        return Reach::Parent(0);
    };
    for (depth, segment) in path.iter().enumerate() {
        // An atomic list or map stands for all that is in it.
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
