//! Server-side applies to objects that another controller owns. Each is dry-run first, and refused if it would remove
//! any field except the operator's own: where a schema declares a parent of such a field atomic, or an admission
//! webhook rebuilds the object, a patch of one annotation can replace the whole spec (SAFE-41).

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client};
use serde_json::{Map, Value};

use crate::fault::{Conflict, ConflictingField, Error, StepError};

/// Metadata that the API server changes with every write.
const SERVER_FIELDS: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// One apply to a foreign object.
#[derive(Clone, Copy)]
pub struct ForeignApply<'a> {
    pub namespace: &'a str,
    pub resource: &'a ApiResource,
    /// One of the operator's field managers.
    pub manager: &'a str,
    /// Fields that this manager owns after the apply, with the object's name and UID. Its API version is set to that of
    /// `resource`.
    pub body: &'a Value,
}

/// Why an apply to a foreign object failed.
#[derive(Debug)]
pub enum ApplyError {
    /// Another field manager owns a field (CONF-7).
    Conflict(ConflictingField),
    /// Anything else.
    Api(kube::Error),
}

impl ApplyError {
    /// The field of another manager on which the apply conflicts.
    ///
    /// # Errors
    /// If the apply of `object` failed for another reason.
    pub fn into_conflict(self, object: &str) -> Result<ConflictingField, StepError> {
        match self {
            Self::Conflict(owned) => Ok(owned),
            Self::Api(error) => Err(StepError::of_write(object, error)),
        }
    }
}

impl From<kube::Error> for ApplyError {
    fn from(error: kube::Error) -> Self {
        match Conflict::of(&error) {
            Some(Conflict::FieldManager(field)) => Self::Conflict(field),
            Some(Conflict::Stale | Conflict::AlreadyExists) | None => Self::Api(error),
        }
    }
}

/// For an apply that only gives up fields: it contains none that another manager could own.
impl From<ApplyError> for Error {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Conflict(owned) => Self::Conflict(format!(
                "{} belongs to field manager {}",
                owned.field, owned.manager
            )),
            ApplyError::Api(error) => Self::Api(error),
        }
    }
}

impl ForeignApply<'_> {
    /// Dry-runs the apply and returns the object as it would become.
    ///
    /// # Errors
    /// `Conflict` if another manager owns a field of the body; 422 if the apply would remove a field of `existing`, the
    /// object as it is, that `manager` does not own; 409 if the object has changed since it was read; otherwise if the
    /// API server rejects the apply or fails.
    pub async fn dry_run(
        &self,
        writer: &Client,
        existing: &Value,
    ) -> Result<DynamicObject, ApplyError> {
        let dry_run = self.send(writer, true).await?;
        let after = serde_json::to_value(&dry_run).map_err(kube::Error::SerdeError)?;
        let Some(field) = first_removed(existing, &after, self.manager) else {
            return Ok(dry_run);
        };
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let refusal = if version(existing) == version(&after) {
            let text = format!(
                "a dry run shows that our change would also remove {field}, so nothing was written; API version {} or an \
                 admission webhook drops that field",
                self.resource.api_version
            );
            Status::failure(&text, "Invalid").with_code(422)
        } else {
            Status::failure("the object was changed after it was read", "Conflict").with_code(409)
        };
        Err(kube::Error::Api(refusal.boxed()).into())
    }

    /// Writes the object. Must follow a dry run of the same apply.
    ///
    /// # Errors
    /// `Conflict` if another manager owns a field of the body; otherwise if the API server rejects the apply or fails.
    pub async fn write(&self, writer: &Client) -> Result<DynamicObject, ApplyError> {
        Ok(self.send(writer, false).await?)
    }

    async fn send(&self, writer: &Client, dry_run: bool) -> Result<DynamicObject, kube::Error> {
        let mut body = self.body.clone();
        // The body may have the API version of an older status, which is no longer the current one.
        body["apiVersion"] = self.resource.api_version.clone().into();
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(writer.clone(), self.namespace, self.resource);
        let mut params = PatchParams::apply(self.manager);
        params.dry_run = dry_run;
        api.patch(name, &params, &Patch::Apply(&body)).await
    }
}

/// Returns the path of the first field of `previous` that is missing in `after`, unless `manager` applied it.
fn first_removed(previous: &Value, after: &Value, manager: &str) -> Option<String> {
    let entries = previous["metadata"]["managedFields"].as_array();
    let owned = entries
        .into_iter()
        .flatten()
        .find(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
    let mut previous = previous.clone();
    let mut after = after.clone();
    for object in [&mut previous, &mut after] {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| !SERVER_FIELDS.contains(&&**key));
        }
    }
    first_missing(&previous, &after, owned.map(|entry| &entry["fieldsV1"]))
        .map(|path| path.trim_start_matches('.').to_owned())
}

/// `owned` is the operator's field set below this path; `None` if it owns nothing there.
fn first_missing(previous: &Value, after: &Value, owned: Option<&Value>) -> Option<String> {
    match (previous, after) {
        (Value::Object(previous), Value::Object(after)) => {
            previous.iter().find_map(|(key, value)| {
                let owned = owned.and_then(|owned| owned.get(format!("f:{key}")));
                let path = || path_element(key);
                missing_field(value, after.get(key), owned, &path)
            })
        }
        (Value::Array(previous), Value::Array(after)) => missing_item(previous, after, owned),
        (Value::Object(_) | Value::Array(_), _) => Some(String::new()),
        _ => None,
    }
}

fn missing_field(
    previous: &Value,
    after: Option<&Value>,
    owned: Option<&Value>,
    path: &dyn Fn() -> String,
) -> Option<String> {
    match after {
        _ if owned.is_some_and(is_leaf) => None,
        Some(after) => first_missing(previous, after, owned).map(|rest| path() + &rest),
        None if previous.is_null() => None,
        // All of its fields are the operator's.
        None if owned.is_some_and(|owned| is_fully_owned(previous, owned)) => None,
        None => Some(path()),
    }
}

/// Compares named items by name. Others have no identity, and a webhook may insert items before them: an object needs a
/// counterpart with all its fields, and scalars need the same count.
fn missing_item(previous: &[Value], after: &[Value], owned: Option<&Value>) -> Option<String> {
    let is_owned = |item: &(usize, &Value, Option<&Value>)| item.2.is_some_and(is_owned_item);
    let items = previous.iter().enumerate();
    let items =
        items.map(|(index, item)| (index, item, owned.and_then(|list| item_of(list, item))));
    let (owned_items, foreign_items): (Vec<_>, Vec<_>) = items.partition(is_owned);
    let remaining = after
        .iter()
        .filter(|other| owned_items.iter().all(|(_, item, _)| item != other));
    let has_fewer = remaining.count() < foreign_items.len();
    foreign_items.into_iter().find_map(|(index, item, owned)| {
        if let Some(name) = item["name"].as_str() {
            let same = after.iter().find(|other| other["name"] == name);
            return missing_field(item, same, owned, &|| format!("[{name}]"));
        }
        let is_kept = match item {
            Value::Object(_) | Value::Array(_) => after
                .iter()
                .any(|other| first_missing(item, other, owned).is_none()),
            _ => !has_fewer || after.contains(item),
        };
        (!is_kept).then(|| format!("[{index}]"))
    })
}

/// Whether the operator's field set covers the whole value.
fn is_fully_owned(value: &Value, owned: &Value) -> bool {
    match value {
        _ if is_leaf(owned) => true,
        Value::Object(fields) => fields.iter().all(|(key, value)| {
            let owned = owned.get(format!("f:{key}"));
            owned.is_some_and(|owned| is_fully_owned(value, owned))
        }),
        Value::Array(items) => items
            .iter()
            .all(|item| item_of(owned, item).is_some_and(is_owned_item)),
        _ => true,
    }
}

fn is_leaf(owned: &Value) -> bool {
    owned.as_object().is_none_or(Map::is_empty)
}

/// Whether the operator added a list item. Its other fields are defaults, or the API server keeps them for the manager
/// that owns them.
fn is_owned_item(owned: &Value) -> bool {
    is_leaf(owned) || owned.get(".").is_some()
}

/// Returns the field set of `item` within that of its list. Items are identified by their key fields or, in a set, by
/// their value.
fn item_of<'a>(list: &'a Value, item: &Value) -> Option<&'a Value> {
    let matches = |key: &str| {
        if let Some(keys) = key.strip_prefix("k:") {
            let keys: Option<Map<String, Value>> = serde_json::from_str(keys).ok();
            return keys.is_some_and(|keys| keys.iter().all(|(key, value)| item[key] == *value));
        }
        let value = key
            .strip_prefix("v:")
            .and_then(|text| serde_json::from_str::<Value>(text).ok());
        value.as_ref() == Some(item)
    };
    list.as_object()?
        .iter()
        .find(|(key, _)| matches(key))
        .map(|(_, owned)| owned)
}

fn path_element(key: &str) -> String {
    if key.contains(['.', '/']) {
        format!("[{key}]")
    } else {
        format!(".{key}")
    }
}

#[cfg(test)]
mod tests;
