//! Server-side apply, and who owns which field after a write.

use serde_json::{Map, Value, json};

use super::fields::{Fields, ListType, Path, element, list_type};
use crate::clock;

/// Who writes, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Field manager.
    pub manager: String,
    /// Whether it writes the subresource `status`.
    pub status: bool,
}

/// What one manager owns.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    writer: Writer,
    applies: bool,
    time: Value,
    fields: Fields,
}

fn entries(object: &Value) -> Vec<Entry> {
    let entries = object["metadata"]["managedFields"].as_array();
    let read = |entry: &Value| Entry {
        writer: Writer {
            manager: entry["manager"].as_str().unwrap_or_default().to_owned(),
            status: entry["subresource"] == "status",
        },
        applies: entry["operation"] == "Apply",
        time: entry["time"].clone(),
        fields: Fields::from_json(&entry["fieldsV1"]),
    };
    entries.into_iter().flatten().map(read).collect()
}

fn set_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.0.is_empty());
    let api_version = object["apiVersion"].clone();
    let write = |entry: &Entry| {
        let mut json = json!({
            "manager": entry.writer.manager,
            "operation": if entry.applies { "Apply" } else { "Update" },
            "apiVersion": api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": entry.fields.to_json(),
        });
        if entry.writer.status {
            json["subresource"] = "status".into();
        }
        json
    };
    let json: Vec<Value> = entries.iter().map(write).collect();
    object["metadata"]["managedFields"] = json.into();
}

/// Fields that another manager owns with other values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub Vec<(String, String)>);

/// The object after `config` was applied to it.
///
/// # Errors
/// If another manager owns a field that would change, unless `force`.
pub fn apply(
    live: &Value,
    config: &Value,
    writer: &Writer,
    force: bool,
) -> Result<Value, Conflicts> {
    let applied = Fields::of(config);
    let mut entries = entries(live);
    let is_own = |entry: &Entry| entry.applies && entry.writer == *writer;
    let changed: Vec<&Path> = applied
        .0
        .iter()
        .filter(|path| value_at(live, path) != value_at(config, path) && is_leaf(config, path))
        .collect();
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !is_own(entry)) {
        for path in changed.iter().filter(|path| value_at(live, path).is_some()) {
            if entry.fields.0.remove(*path) {
                conflicts.push((entry.writer.manager.clone(), path.join(".")));
            }
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(Conflicts(conflicts));
    }
    let before = entries.iter().find(|entry| is_own(entry)).cloned();
    entries.retain(|entry| !is_own(entry));
    let mut merged = live.clone();
    merge(&mut merged, config);
    let dropped = before.iter().flat_map(|entry| &entry.fields.0);
    // The longest first: an element of a list goes after its fields.
    let mut dropped: Vec<&Path> = dropped.filter(|path| !applied.covers(path)).collect();
    dropped.sort_by_key(|path| std::cmp::Reverse(path.len()));
    for path in dropped {
        if !entries.iter().any(|entry| entry.fields.covers(path)) {
            remove_at(&mut merged, path);
        }
    }
    let unchanged = before
        .filter(|entry| entry.fields == applied && without_fields(&merged) == without_fields(live));
    entries.push(Entry {
        writer: writer.clone(),
        applies: true,
        time: unchanged.map_or_else(|| clock::now_text().into(), |entry| entry.time),
        fields: applied,
    });
    sort(&mut entries);
    set_entries(&mut merged, entries);
    Ok(merged)
}

/// Records in `object` that `writer` made it out of `live` without applying.
pub fn record_update(live: &Value, object: &mut Value, writer: &Writer) {
    let (before, after) = (Fields::of(live), Fields::of(object));
    let changed: Vec<&Path> = after
        .0
        .iter()
        .filter(|path| !before.0.contains(*path) || value_at(live, path) != value_at(object, path))
        .filter(|path| is_leaf(object, path) || !before.0.contains(*path))
        .collect();
    // What a patch wrote into the entries themselves stays.
    let mut entries = entries(object);
    for entry in &mut entries {
        let is_own = !entry.applies && entry.writer == *writer;
        entry.fields.0.retain(|path| {
            let exists = after.0.contains(path) || value_at(object, path).is_some();
            exists && (is_own || !changed.contains(&path))
        });
    }
    if !changed.is_empty() {
        let changed = changed.into_iter().cloned();
        let own = entries
            .iter_mut()
            .find(|entry| !entry.applies && entry.writer == *writer);
        match own {
            Some(own) => {
                own.fields.0.extend(changed);
                own.time = clock::now_text().into();
            }
            None => entries.push(Entry {
                writer: writer.clone(),
                applies: false,
                time: clock::now_text().into(),
                fields: Fields(changed.collect()),
            }),
        }
    }
    sort(&mut entries);
    set_entries(object, entries);
}

fn sort(entries: &mut [Entry]) {
    entries.sort_by_key(|entry| {
        let status = entry.writer.status;
        (
            !entry.applies,
            entry.time.to_string(),
            entry.writer.manager.clone(),
            status,
        )
    });
}

/// An object without its `managedFields`, which change with every write.
#[must_use]
pub fn without_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Whether nothing below the path has an owner of its own.
fn is_leaf(object: &Value, path: &[String]) -> bool {
    !path.last().is_some_and(|step| step.starts_with("k:"))
        || value_at(object, path).is_none_or(|item| !item.is_object())
}

fn value_at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    let (mut at, mut list) = (object, ListType::Atomic);
    for step in path {
        at = match step.strip_prefix("f:") {
            Some(name) => {
                list = list_type(name);
                at.get(name)?
            }
            None => at
                .as_array()?
                .iter()
                .find(|item| element(list, item) == *step)?,
        };
    }
    Some(at)
}

fn remove_at(object: &mut Value, path: &[String]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let field = parents.last().and_then(|step| step.strip_prefix("f:"));
    let kind = field.map_or(ListType::Atomic, list_type);
    let Some(parent) = value_at_mut(object, parents) else {
        return;
    };
    match (last.strip_prefix("f:"), &mut *parent) {
        (Some(name), Value::Object(map)) => {
            map.remove(name);
        }
        (None, Value::Array(items)) => items.retain(|item| element(kind, item) != *last),
        _ => {}
    }
    let is_empty = match parent {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if is_empty && parents.len() > 1 {
        remove_at(object, parents);
    }
}

fn value_at_mut<'a>(object: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    let (mut at, mut list) = (object, ListType::Atomic);
    for step in path {
        at = if let Some(name) = step.strip_prefix("f:") {
            list = list_type(name);
            at.get_mut(name)?
        } else {
            let items = at.as_array_mut()?;
            items.iter_mut().find(|item| element(list, item) == *step)?
        };
    }
    Some(at)
}

/// Sets in `live` what `config` has.
fn merge(live: &mut Value, config: &Value) {
    merge_named(live, config, "");
}

fn merge_named(live: &mut Value, config: &Value, name: &str) {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if name != "selector" => {
            for (name, value) in config {
                merge_named(live.entry(name.clone()).or_insert(Value::Null), value, name);
            }
        }
        (Value::Array(live), Value::Array(config)) if list_type(name) != ListType::Atomic => {
            let list = list_type(name);
            for item in config {
                let key = element(list, item);
                match live.iter_mut().find(|live| element(list, live) == key) {
                    Some(live) => merge_named(live, item, ""),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, config) => *live = config.clone(),
    }
}

/// Drops what the API server does not store: `null`s, and empty lists and maps in the metadata.
pub fn normalize(object: &mut Value) {
    drop_nulls(object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let is_empty = |value: &Value| {
            value.as_object().is_some_and(Map::is_empty)
                || value.as_array().is_some_and(Vec::is_empty)
        };
        metadata.retain(|_, value| !is_empty(value));
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Applies a JSON merge patch (RFC 7386).
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge_patch(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
