//! Whether our containers are as we made them, apart from what others have added (INJ-8).

use serde_json::{Map, Value};

use super::image;
use crate::inject::keyed::{BY_MOUNT_PATH, BY_NAME, Key, put};
use crate::inject::object_at;
use crate::quantity::Quantity;

/// The fields that must be as we made them. Others, such as the pull policy, may be changed: the API server's own
/// admission plugins do so and would reject the pod if we changed them back.
const FIELDS: [&str; 6] = [
    "image",
    "command",
    "env",
    "volumeMounts",
    "resources",
    "restartPolicy",
];

/// The fields of a container that differ from `made`, with the value to restore: ours, merged with what others added.
pub(super) fn damaged(made: &Value, found: &Value) -> Vec<(&'static str, Value)> {
    let of = |container: &Value, field: &str| container.get(field).cloned().unwrap_or_default();
    FIELDS
        .into_iter()
        .filter_map(|field| {
            let (made, found) = (of(made, field), of(found, field));
            let restored = match field {
                "image" if is_same_image(&made, &found) => None,
                "env" => keyed(&made, &found, BY_NAME),
                "volumeMounts" => keyed(&made, &found, BY_MOUNT_PATH),
                "resources" => amounts(&made, &found),
                _ => (!holds(&made, &found)).then_some(made),
            };
            restored.map(|value| (field, value))
        })
        .collect()
}

/// Whether `found` contains `made`. Empty values may be missing, because Kubernetes omits them.
pub(super) fn holds(made: &Value, found: &Value) -> bool {
    match (made, found) {
        (Value::Object(made), Value::Object(found)) => made
            .iter()
            .all(|(key, made)| holds(made, found.get(key).unwrap_or(&Value::Null))),
        (Value::Array(made), Value::Array(found)) => {
            made.len() == found.len()
                && made
                    .iter()
                    .zip(found)
                    .all(|(made, found)| holds(made, found))
        }
        (made, Value::Null) => is_empty(made),
        (made, found) => made == found,
    }
}

/// Whether `found` is the volume `made`. Only the key tells the volume type, and its value may be empty.
pub(super) fn is_volume(made: &Value, found: &Value) -> bool {
    let kinds = made.as_object().into_iter().flat_map(Map::keys);
    let has = |kind: &String| found.get(kind).is_some_and(|it| !it.is_null());
    kinds.into_iter().all(has) && holds(made, found)
}

fn is_same_image(made: &Value, found: &Value) -> bool {
    let images = made.as_str().zip(found.as_str());
    images.is_some_and(|(made, found)| image::is_same(made, found))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
        Value::Number(_) => false,
    }
}

/// The list with our items merged in, or `None` if it already has all of them.
fn keyed(made: &Value, found: &Value, by: Key) -> Option<Value> {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let (made, found) = (items(made), items(found));
    // the last item of a key wins
    let stands = |item: &Value| {
        let same = found.iter().rfind(|other| by.of(other) == by.of(item));
        same.is_some_and(|other| holds(item, other) && has_source(item) == has_source(other))
    };
    if made.iter().all(stands) {
        return None;
    }
    let mut restored = Vec::with_capacity(found.len() + made.len());
    for item in found.into_iter().chain(made) {
        put(&mut restored, item, by);
    }
    Some(Value::Array(restored))
}

/// Tells an empty value from one with a `valueFrom`, which are otherwise alike.
fn has_source(item: &Value) -> bool {
    item.get("valueFrom").is_some_and(|it| !it.is_null())
}

/// The amounts with ours merged in, or `None` if none differs. The API server may have normalised them.
fn amounts(made: &Value, found: &Value) -> Option<Value> {
    let mut restored = found.as_object().cloned().unwrap_or_default();
    let mut differs = false;
    for (list, made) in made.as_object().into_iter().flatten() {
        let Some(made) = made.as_object() else {
            // resource claims are a list
            if !holds(made, found.get(list).unwrap_or(&Value::Null)) {
                restored.insert(list.clone(), made.clone());
                differs = true;
            }
            continue;
        };
        for (name, made) in made {
            if made.is_null() || is_same_amount(made, found.get(list).and_then(|it| it.get(name))) {
                continue;
            }
            differs = true;
            let amounts: Option<&mut Map<String, Value>> = object_at(&mut restored, list);
            if let Some(amounts) = amounts {
                amounts.insert(name.clone(), made.clone());
            }
        }
    }
    differs.then_some(Value::Object(restored))
}

fn is_same_amount(made: &Value, found: Option<&Value>) -> bool {
    let Some(found) = found else {
        return false;
    };
    made == found
        || Quantity::of(made)
            .zip(Quantity::of(found))
            .is_some_and(|(made, found)| made == found)
}

#[cfg(test)]
mod tests;
