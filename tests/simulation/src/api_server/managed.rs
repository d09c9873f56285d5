//! Server-side apply, and field ownership after each write.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::fields::{Comparison, Fields, Path, Step, element, shown};
use super::schema::{ListType, Schema};
use crate::clock;

/// Who writes, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Field manager.
    pub manager: String,
    /// Whether it writes the `status` subresource.
    pub status: bool,
}

/// The fields that one manager owns.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    writer: Writer,
    applies: bool,
    time: Value,
    fields: Fields,
    /// The fields as read, valid while they are unchanged: most entries outlive a write.
    json: Option<Value>,
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
        json: Some(entry["fieldsV1"].clone()),
    };
    let mut known: Vec<Entry> = Vec::new();
    for entry in entries.into_iter().flatten().map(read) {
        // Of two entries of the same manager, the server uses the second.
        known.retain(|it| it.applies != entry.applies || it.writer != entry.writer);
        known.push(entry);
    }
    known
}

fn set_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.0.is_empty());
    let api_version = object["apiVersion"].clone();
    let write = |entry: Entry| {
        let fields = entry.json.unwrap_or_else(|| entry.fields.to_json());
        let mut json = json!({
            "manager": entry.writer.manager,
            "operation": if entry.applies { "Apply" } else { "Update" },
            "apiVersion": api_version,
            "fieldsType": "FieldsV1",
        });
        json["time"] = entry.time;
        json["fieldsV1"] = fields;
        if entry.writer.status {
            json["subresource"] = "status".into();
        }
        json
    };
    let json: Vec<Value> = entries.into_iter().map(write).collect();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if !json.is_empty() {
            metadata.insert("managedFields".to_owned(), Value::Array(json));
        }
    }
}

/// Fields that other managers own with other values: for each, the manager and the path as shown in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub Vec<(String, String)>);

/// The object after `config` is applied to it.
///
/// # Errors
/// If a field that would change belongs to another manager, unless `force`.
pub fn apply(
    live: &Value,
    config: &Value,
    (writer, schema): (&Writer, Schema),
    force: bool,
) -> Result<Value, Conflicts> {
    let applied = Fields::of(config, schema);
    let mut entries = entries(live);
    if entries.is_empty() {
        entries.extend(unknown(live, schema));
    }
    let is_own = |entry: &Entry| entry.applies && entry.writer == *writer;
    let before = entries.iter().find(|entry| is_own(entry)).cloned();
    entries.retain(|entry| !is_own(entry));
    let mut merged = live.clone();
    merge(&mut merged, config, schema);
    // Nothing is removed while the manager still applies everything that it applied before.
    let dropping = before.as_ref();
    if let Some(before) = dropping.filter(|it| !it.fields.0.is_subset(&applied.0)) {
        let others = entries.iter().flat_map(|entry| &entry.fields.0);
        let name = ["f:metadata", "f:name"].map(Step::from).to_vec();
        let owned = others.chain(&applied.0).chain([&name]);
        let owned = Fields(owned.cloned().collect());
        merged = prune(&merged, &before.fields, &owned, schema);
    }
    let comparison = Comparison::of(live, &merged, schema);
    let mut conflicts = Vec::new();
    for entry in &mut entries {
        for path in entry.fields.both(&comparison.changed).0 {
            conflicts.push((entry.shown(&live["apiVersion"]), shown(&path)));
        }
        entry.give_up(&comparison);
    }
    if !force && !conflicts.is_empty() {
        return Err(Conflicts(conflicts));
    }
    let unchanged =
        before.filter(|entry| entry.fields == applied && equal_without_fields(&merged, live));
    entries.push(Entry {
        writer: writer.clone(),
        applies: true,
        time: unchanged.map_or_else(|| clock::now_text().into(), |entry| entry.time),
        fields: applied,
        json: None,
    });
    sort(&mut entries);
    set_entries(&mut merged, entries);
    Ok(merged)
}

/// The entry that owns everything in an object without known owners.
fn unknown(live: &Value, schema: Schema) -> Option<Entry> {
    let fields = Comparison::of(&json!({"metadata": {}}), live, schema).changed;
    let writer = Writer {
        manager: "before-first-apply".to_owned(),
        status: false,
    };
    let entry = Entry {
        writer,
        applies: false,
        time: clock::now_text().into(),
        fields,
        json: None,
    };
    live["metadata"]["uid"].is_string().then_some(entry)
}

/// Removes what a manager applied before and nobody owns any more: first everything that it applied; then puts back
/// whatever contains an owned field, and whatever the manager had not applied.
fn prune(merged: &Value, before: &Fields, owned: &Fields, schema: Schema) -> Value {
    let remove = |fields: &Fields| fields.removed_from(merged, schema).unwrap_or_default();
    let named = |object: &Value| Fields::all_of(object, schema).with_named(schema);
    let before = before.with_named(schema);
    let all = named(merged);
    let pruned = remove(&before);
    let kept = Fields(
        named(&pruned)
            .0
            .union(&owned.with_named(schema).0)
            .cloned()
            .collect(),
    );
    let pruned = remove(&all.without(&kept));
    let gone = all.without(&named(&pruned));
    remove(&gone.both(&before))
}

/// Records in `object` that `writer` changed it from `live` without an apply.
pub fn record_update(live: &Value, object: &mut Value, (writer, schema): (&Writer, Schema)) {
    let comparison = Comparison::of(live, object, schema);
    // Keep what a patch wrote into the entries themselves.
    let mut entries = entries(object);
    if entries.is_empty() {
        entries = self::entries(live);
    } else if object["metadata"]["managedFields"] != live["metadata"]["managedFields"] {
        // A patch need not use the server's own encoding.
        for entry in &mut entries {
            entry.json = None;
        }
    }
    // Once nobody owns anything, ownership is recorded only from the next apply on.
    if entries.is_empty() && live["metadata"]["uid"].is_string() {
        return;
    }
    for entry in &mut entries {
        entry.give_up(&comparison);
    }
    if !comparison.changed.0.is_empty() {
        let now = Value::from(clock::now_text());
        let own = entries
            .iter()
            .position(|entry| !entry.applies && entry.writer == *writer);
        let index = own.unwrap_or_else(|| {
            entries.push(Entry {
                writer: writer.clone(),
                applies: false,
                time: Value::Null,
                fields: Fields::default(),
                json: None,
            });
            entries.len() - 1
        });
        let own = &mut entries[index];
        own.fields.0.extend(comparison.changed.0);
        own.json = None;
        own.time = now;
    }
    sort(&mut entries);
    set_entries(object, entries);
}

impl Entry {
    /// Removes fields that another manager has changed or removed.
    fn give_up(&mut self, comparison: &Comparison) {
        let is_lost = |path: &Path| {
            comparison.changed.0.contains(path) || comparison.removed.0.contains(path)
        };
        let before = self.fields.0.len();
        self.fields.0.retain(|path| !is_lost(path));
        if self.fields.0.len() < before {
            self.json = None;
        }
    }

    /// The manager as shown in messages.
    fn shown(&self, api_version: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subresource = if self.writer.status {
            " with subresource \"status\""
        } else {
            ""
        };
        let manager = format!("{:?}{subresource}", self.writer.manager);
        if self.applies {
            return manager;
        }
        format!(
            "{manager} using {} at {}",
            text(api_version),
            text(&self.time)
        )
    }
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

/// Whether two objects are equal except for `managedFields`, which change with every write.
#[must_use]
pub fn equal_without_fields(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    one.len() == other.len()
        && one.iter().all(|(field, value)| match other.get(field) {
            Some(also) if field == "metadata" => {
                compared_metadata(value).eq(compared_metadata(also))
            }
            also => also == Some(value),
        })
}

fn compared_metadata(metadata: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = metadata.as_object().into_iter().flatten();
    fields.filter(|(field, _)| *field != "managedFields")
}

/// Merges the fields of `config` into `live`.
fn merge(live: &mut Value, config: &Value, schema: Schema) {
    match (live, config, schema.list()) {
        (Value::Object(live), Value::Object(config), _) if schema != Schema::Atomic => {
            for (name, value) in config {
                let live = live.entry(name.clone()).or_insert(Value::Null);
                merge(live, value, schema.field(name));
            }
        }
        (Value::Array(live), Value::Array(config), Some(list)) => {
            *live = merge_lists(live, config, list, schema);
        }
        (live, config, _) => *live = config.clone(),
    }
}

/// Common elements follow the order of `config`; those that only `live` has stay before the elements that they
/// preceded.
fn merge_lists(live: &[Value], config: &[Value], list: ListType, schema: Schema) -> Vec<Value> {
    let is = |item: &Value, other: &Value| element(list, item) == element(list, other);
    let merged = |item: &Value| {
        let mut merged = live
            .iter()
            .find(|it| is(it, item))
            .cloned()
            .unwrap_or_default();
        merge(&mut merged, item, schema.below(&element(list, item)));
        merged
    };
    let is_shared = |item: &&Value| live.iter().any(|it| is(it, item));
    let mut shared = config.iter().filter(is_shared).peekable();
    let mut rest = config.iter().peekable();
    let mut all: Vec<Value> = Vec::new();
    let mut left = live.iter().peekable();
    while left.peek().is_some() || rest.peek().is_some() {
        if let (Some(item), Some(next)) = (left.peek(), rest.peek()) {
            if is(item, next) {
                all.push(merged(next));
                left.next();
                rest.next();
                shared.next();
                continue;
            }
            let is_common = config.iter().any(|it| is(it, item));
            if is_common && shared.peek().is_some_and(|next| !is(next, item)) {
                left.next();
                continue;
            }
        }
        if let Some(item) = left.peek() {
            if !config.iter().any(|it| is(it, item)) {
                all.push((*item).clone());
                left.next();
                continue;
            }
            if all.iter().any(|it| is(it, item)) {
                left.next();
            }
        }
        if let Some(next) = rest.next() {
            all.push(merged(next));
            if shared.peek().is_some_and(|it| is(it, next)) {
                shared.next();
            }
        }
    }
    all
}

/// The object after [`normalize`], which usually drops nothing.
#[must_use]
pub fn normal(object: &Value, is_custom: bool) -> Cow<'_, Value> {
    let has_null = |value: &Value| {
        value
            .as_object()
            .is_some_and(|it| it.values().any(Value::is_null))
    };
    let metadata = &object["metadata"];
    let is_normal = if is_custom {
        !has_null(object) && !has_nulls(metadata)
    } else {
        !has_nulls(object)
    };
    if is_normal
        && !metadata
            .as_object()
            .is_some_and(|it| it.values().any(is_empty))
    {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    normalize(&mut object, is_custom);
    Cow::Owned(object)
}

/// Whether a value contains a `null` in an object.
fn has_nulls(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().any(|it| it.is_null() || has_nulls(it)),
        Value::Array(items) => items.iter().any(has_nulls),
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Drops what the API server does not store: `null`s, except in custom resources, and empty lists and maps in the
/// metadata.
pub fn normalize(object: &mut Value, is_custom: bool) {
    if is_custom {
        drop_nulls(&mut object["metadata"]);
        if let Some(fields) = object.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
    } else {
        drop_nulls(object);
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
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
