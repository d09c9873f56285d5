//! Lists that server-side apply merges by key. It rejects two items with the same key, so we must never send any
//! (POD-7).

use serde_json::{Map, Value};

/// The key of a list's items: fields, each with the value that the API server assumes if the field is missing.
#[derive(Clone, Copy)]
pub(super) struct MergeKey(&'static [(&'static str, Option<&'static str>)]);

pub(super) const BY_NAME: MergeKey = MergeKey(&[("name", None)]);
const BY_PORT: MergeKey = MergeKey(&[("containerPort", None), ("protocol", Some("TCP"))]);
pub(super) const BY_MOUNT_PATH: MergeKey = MergeKey(&[("mountPath", None)]);
const BY_DEVICE_PATH: MergeKey = MergeKey(&[("devicePath", None)]);
const BY_IP: MergeKey = MergeKey(&[("ip", None)]);
const BY_TOPOLOGY: MergeKey = MergeKey(&[("topologyKey", None), ("whenUnsatisfiable", None)]);

const OF_CONTAINER: [(&str, MergeKey); 4] = [
    ("env", BY_NAME),
    ("ports", BY_PORT),
    ("volumeMounts", BY_MOUNT_PATH),
    ("volumeDevices", BY_DEVICE_PATH),
];

// Excludes containers: two with one name are a user error (VAL-6), which must not be hidden by dropping one.
const OF_POD: [(&str, MergeKey); 6] = [
    ("volumes", BY_NAME),
    ("imagePullSecrets", BY_NAME),
    ("hostAliases", BY_IP),
    ("topologySpreadConstraints", BY_TOPOLOGY),
    ("resourceClaims", BY_NAME),
    ("schedulingGates", BY_NAME),
];

impl MergeKey {
    /// The item's key, if it has all key fields.
    pub(super) fn of(self, item: &Value) -> Option<Vec<Value>> {
        let field = |&(name, default): &(&str, Option<&str>)| match item.get(name) {
            None | Some(Value::Null) => default.map(Value::from),
            given => given.cloned(),
        };
        item.as_object()?;
        self.0.iter().map(field).collect()
    }
}

/// Adds an item in place of the one with the same key. A variable whose value refers to others, as `$(NAME)`, moves to
/// the end instead, because those must come first.
pub(super) fn upsert(list: &mut Vec<Value>, item: Value, by: MergeKey) {
    let key = by.of(&item);
    let same = key.and_then(|key| {
        list.iter()
            .position(|other| by.of(other).as_ref() == Some(&key))
    });
    match same {
        Some(at) if refers(&item) => {
            list.remove(at);
            list.push(item);
        }
        Some(at) => list[at] = item,
        None => list.push(item),
    }
}

/// Keeps the last item of each key in a container's lists.
pub(super) fn last_wins_in_container(container: &mut Map<String, Value>) {
    last_wins(container, &OF_CONTAINER);
}

/// Keeps the last item of each key in a pod's lists.
pub(super) fn last_wins_in_pod(spec: &mut Map<String, Value>) {
    last_wins(spec, &OF_POD);
}

fn last_wins(parent: &mut Map<String, Value>, lists: &[(&str, MergeKey)]) {
    for &(name, by) in lists {
        let Some(Value::Array(list)) = parent.get_mut(name) else {
            continue;
        };
        for item in std::mem::take(list) {
            upsert(list, item, by);
        }
    }
}

fn refers(item: &Value) -> bool {
    item.get("value")
        .and_then(Value::as_str)
        .is_some_and(|text| text.contains("$("))
}

#[cfg(test)]
mod tests;
