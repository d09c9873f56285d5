//! Detects and repairs drift of injected containers; what other injectors have added to them is kept (INJ-8).

use serde_json::{Map, Value};

use super::image;
use crate::inject::keyed::{BY_MOUNT_PATH, BY_NAME, MergeKey, upsert};
use crate::inject::object_at;
use crate::json::is_subset;
use crate::quantity::Quantity;

/// The fields that must be as injected, except that quantities of resources only have to be present. Other fields, such
/// as the pull policy, may be changed: the API server's own admission plugins do so and would reject the pod if we
/// changed them back.
const FIELDS: [&str; 6] = [
    "image",
    "command",
    "env",
    "volumeMounts",
    "resources",
    "restartPolicy",
];

/// The fields of a container that differ from `desired`, with the value to restore: the desired one, merged with
/// what others have added.
pub(super) fn drifted_fields(desired: &Value, found: &Value) -> Vec<(&'static str, Value)> {
    let of = |container: &Value, field: &str| container.get(field).cloned().unwrap_or_default();
    FIELDS
        .into_iter()
        .filter_map(|field| {
            let (desired, found) = (of(desired, field), of(found, field));
            let restored = match field {
                "image" if is_same_image(&desired, &found) => None,
                "env" => merge_by_key(&desired, &found, BY_NAME),
                "volumeMounts" => merge_by_key(&desired, &found, BY_MOUNT_PATH),
                "resources" => add_missing_quantities(&desired, &found),
                _ => (!contains(&desired, &found)).then_some(desired),
            };
            restored.map(|value| (field, value))
        })
        .collect()
}

/// Whether `found` contains `desired`. Empty values may be missing, because Kubernetes omits them.
pub(super) fn contains(desired: &Value, found: &Value) -> bool {
    is_subset(desired, found, &|_, desired, found| match found {
        None | Some(Value::Null) => Some(is_empty(desired)),
        Some(_) => None,
    })
}

/// Whether `found` is the volume `desired`. Only the key shows the type of volume; its value may be empty.
pub(super) fn is_volume(desired: &Value, found: &Value) -> bool {
    let kinds = desired.as_object().into_iter().flat_map(Map::keys);
    let has = |kind: &String| found.get(kind).is_some_and(|it| !it.is_null());
    kinds.into_iter().all(has) && contains(desired, found)
}

fn is_same_image(desired: &Value, found: &Value) -> bool {
    let images = desired.as_str().zip(found.as_str());
    images.is_some_and(|(desired, found)| image::is_same(desired, found))
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

/// The list with the desired items merged in, or `None` if it already has all of them.
fn merge_by_key(desired: &Value, found: &Value, by: MergeKey) -> Option<Value> {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let (desired, found) = (items(desired), items(found));
    // the last item of a key wins
    let is_intact = |item: &Value| {
        let same = found.iter().rfind(|other| by.of(other) == by.of(item));
        same.is_some_and(|other| contains(item, other) && has_source(item) == has_source(other))
    };
    if desired.iter().all(is_intact) {
        return None;
    }
    let mut restored = Vec::with_capacity(found.len() + desired.len());
    for item in found.into_iter().chain(desired) {
        upsert(&mut restored, item, by);
    }
    Some(Value::Array(restored))
}

/// Distinguishes an empty value from one with a `valueFrom`, which otherwise look the same.
fn has_source(item: &Value) -> bool {
    item.get("valueFrom").is_some_and(|it| !it.is_null())
}

/// The quantities with the missing ones added, or `None` if none is missing. Present ones are kept whatever their
/// value: if we reverted what another webhook has set, such as that of the VPA, its controller would evict the pod
/// again and again.
fn add_missing_quantities(desired: &Value, found: &Value) -> Option<Value> {
    let mut restored = found.as_object().cloned().unwrap_or_default();
    let mut differs = false;
    for (list, desired) in desired.as_object().into_iter().flatten() {
        let Some(desired) = desired.as_object() else {
            // resource claims are a list
            if !contains(desired, found.get(list).unwrap_or(&Value::Null)) {
                restored.insert(list.clone(), desired.clone());
                differs = true;
            }
            continue;
        };
        for (name, desired) in desired {
            if desired.is_null() || quantity_at(found, list, name).is_some() {
                continue;
            }
            differs = true;
            let quantities: Option<&mut Map<String, Value>> = object_at(&mut restored, list);
            if let Some(quantities) = quantities {
                quantities.insert(name.clone(), fitting(desired, found, list, name));
            }
        }
    }
    differs.then_some(Value::Object(restored))
}

fn quantity_at<'a>(resources: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    let quantity = resources.get(list)?.get(name)?;
    (!quantity.is_null()).then_some(quantity)
}

/// The desired quantity, unless the request would then exceed the limit: the API server rejects such a pod.
fn fitting(desired: &Value, found: &Value, list: &str, name: &str) -> Value {
    let other = |list| quantity_at(found, list, name);
    let exceeds = |request, limit| Quantity::of(request) > Quantity::of(limit);
    let given = match list {
        "requests" => other("limits").filter(|limit| exceeds(desired, limit)),
        "limits" => other("requests").filter(|request| exceeds(request, desired)),
        _ => None,
    };
    given.unwrap_or(desired).clone()
}

#[cfg(test)]
mod tests;
