//! Applies to objects that another controller owns. Each is dry-run first, and refused if it would remove any field but
//! our own (SAFE-41): where a schema declares a parent of our field atomic, or an admission webhook rebuilds the object,
//! a patch of one annotation can replace the whole spec.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client, Error};
use serde_json::{Map, Value};

/// Metadata that the API server itself changes with every write.
const SERVERS: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// One apply to a foreign object.
#[derive(Clone, Copy)]
pub struct Apply<'a> {
    pub namespace: &'a str,
    pub resource: &'a ApiResource,
    /// One of our field managers.
    pub manager: &'a str,
    /// What this manager owns after the apply, with the object's name and UID. Its API version is set to that of
    /// `resource`.
    pub body: &'a Value,
}

impl Apply<'_> {
    /// Dry-runs the apply and returns the object as it would become.
    ///
    /// # Errors
    /// 422 if it would remove a field of `live`, the object as it is, that `manager` does not own; 409 if another
    /// manager owns a field of the body, or if the object has changed since it was read; otherwise when the API server
    /// refuses or fails.
    pub async fn dry_run(&self, writer: &Client, live: &Value) -> Result<DynamicObject, Error> {
        let tried = self.send(writer, true).await?;
        let after = serde_json::to_value(&tried).map_err(Error::SerdeError)?;
        let Some(field) = removed(live, &after, self.manager) else {
            return Ok(tried);
        };
        let version = |it: &Value| it["metadata"]["resourceVersion"].clone();
        let refusal = if version(live) == version(&after) {
            let text = format!(
                "a dry run shows that our change would also remove {field}, so nothing was written; API version {} or an \
                 admission webhook drops that field",
                self.resource.api_version
            );
            Status::failure(&text, "Invalid").with_code(422)
        } else {
            Status::failure("the object was changed after it was read", "Conflict").with_code(409)
        };
        Err(Error::Api(refusal.boxed()))
    }

    /// Writes. Only after a dry run of the same apply.
    ///
    /// # Errors
    /// When the API server refuses or fails.
    pub async fn write(&self, writer: &Client) -> Result<DynamicObject, Error> {
        self.send(writer, false).await
    }

    async fn send(&self, writer: &Client, dry_run: bool) -> Result<DynamicObject, Error> {
        let mut body = self.body.clone();
        // The version that an older status names may have been replaced since.
        body["apiVersion"] = self.resource.api_version.clone().into();
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(writer.clone(), self.namespace, self.resource);
        let mut params = PatchParams::apply(self.manager);
        params.dry_run = dry_run;
        api.patch(name, &params, &Patch::Apply(&body)).await
    }
}

/// Returns the path of the first field of `before` that is missing `after`, unless `manager` applied it.
fn removed(before: &Value, after: &Value, manager: &str) -> Option<String> {
    let entries = before["metadata"]["managedFields"].as_array();
    let ours = entries
        .into_iter()
        .flatten()
        .find(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
    let (mut before, mut after) = (before.clone(), after.clone());
    for object in [&mut before, &mut after] {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| !SERVERS.contains(&&**key));
        }
    }
    missing(&before, &after, ours.map(|it| &it["fieldsV1"]))
        .map(|path| path.trim_start_matches('.').to_owned())
}

/// `owned` is our part of the field set at this place; `None`: nothing below is ours.
fn missing(before: &Value, after: &Value, owned: Option<&Value>) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(key, value)| {
            let owned = owned.and_then(|it| it.get(format!("f:{key}")));
            let path = || step(key);
            field(value, after.get(key), owned, &path)
        }),
        (Value::Array(before), Value::Array(after)) => missing_item(before, after, owned),
        (Value::Object(_) | Value::Array(_), _) => Some(String::new()),
        _ => None,
    }
}

fn field(
    before: &Value,
    after: Option<&Value>,
    owned: Option<&Value>,
    path: &dyn Fn() -> String,
) -> Option<String> {
    match after {
        _ if owned.is_some_and(is_leaf) => None,
        Some(after) => missing(before, after, owned).map(|below| path() + &below),
        None if before.is_null() => None,
        // A parent of nothing but our fields.
        None if owned.is_some_and(|owned| is_ours(before, owned)) => None,
        None => Some(path()),
    }
}

/// Items with names are compared by name. Others have no identity, and a webhook may insert some before them: an object
/// needs one with all its fields, and scalars need their number.
fn missing_item(before: &[Value], after: &[Value], owned: Option<&Value>) -> Option<String> {
    let is_ours = |it: &(usize, &Value, Option<&Value>)| it.2.is_some_and(is_our_item);
    let items = before.iter().enumerate();
    let items = items.map(|(index, item)| (index, item, owned.and_then(|it| item_of(it, item))));
    let (ours, theirs): (Vec<_>, Vec<_>) = items.partition(is_ours);
    let remaining = after
        .iter()
        .filter(|it| ours.iter().all(|(_, item, _)| item != it));
    let has_fewer = remaining.count() < theirs.len();
    theirs.into_iter().find_map(|(index, item, owned)| {
        if let Some(name) = item["name"].as_str() {
            let same = after.iter().find(|it| it["name"] == name);
            return field(item, same, owned, &|| format!("[{name}]"));
        }
        let is_kept = match item {
            Value::Object(_) | Value::Array(_) => {
                after.iter().any(|it| missing(item, it, owned).is_none())
            }
            _ => !has_fewer || after.contains(item),
        };
        (!is_kept).then(|| format!("[{index}]"))
    })
}

/// Whether our field set covers everything below a field.
fn is_ours(value: &Value, owned: &Value) -> bool {
    match value {
        _ if is_leaf(owned) => true,
        Value::Object(fields) => fields.iter().all(|(key, below)| {
            let owned = owned.get(format!("f:{key}"));
            owned.is_some_and(|owned| is_ours(below, owned))
        }),
        Value::Array(items) => items
            .iter()
            .all(|item| item_of(owned, item).is_some_and(is_our_item)),
        _ => true,
    }
}

fn is_leaf(owned: &Value) -> bool {
    owned.as_object().is_none_or(Map::is_empty)
}

/// Whether we added a list item. What we do not own in it was set by defaults, or the API server keeps it for the
/// manager that owns it.
fn is_our_item(owned: &Value) -> bool {
    is_leaf(owned) || owned.get(".").is_some()
}

/// The part of a list's field set that belongs to `item`, which is identified by its key fields or, in a set, by its
/// value.
fn item_of<'a>(list: &'a Value, item: &Value) -> Option<&'a Value> {
    let is_it = |step: &str| {
        if let Some(keys) = step.strip_prefix("k:") {
            let keys: Option<Map<String, Value>> = serde_json::from_str(keys).ok();
            return keys.is_some_and(|keys| keys.iter().all(|(key, value)| item[key] == *value));
        }
        let value = step
            .strip_prefix("v:")
            .and_then(|it| serde_json::from_str::<Value>(it).ok());
        value.as_ref() == Some(item)
    };
    list.as_object()?
        .iter()
        .find(|(step, _)| is_it(step))
        .map(|(_, below)| below)
}

fn step(key: &str) -> String {
    if key.contains(['.', '/']) {
        format!("[{key}]")
    } else {
        format!(".{key}")
    }
}

#[cfg(test)]
mod tests;
