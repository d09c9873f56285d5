//! Strategic merge patches between objects, as clients compute them.

use serde_json::{Map, Value, json};

/// The merge keys of a pod's keyed lists, by list name.
const KEYED: [(&str, &str); 11] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("imagePullSecrets", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("ports", "containerPort"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
];

/// Returns the patch after which `live` contains all of `wanted`, and nothing that only `last` contains; everything
/// else is kept. `None` if nothing has to change.
pub(super) fn three_way(last: &Value, wanted: &Value, live: &Value) -> Option<Value> {
    let (last, wanted, live) = (as_map(last), as_map(wanted), as_map(live));
    let patch = of_maps(&last, &wanted, &live);
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns the patch that makes `live` equal to `wanted`; `None` if they are equal.
pub(super) fn two_way(live: &Value, wanted: &Value) -> Option<Value> {
    three_way(live, wanted, live)
}

fn of_maps(
    last: &Map<String, Value>,
    wanted: &Map<String, Value>,
    live: &Map<String, Value>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, wanted) in wanted {
        let last = last.get(name).unwrap_or(&Value::Null);
        let Some(live) = live.get(name) else {
            patch.insert(name.clone(), wanted.clone());
            continue;
        };
        let key = KEYED.iter().find(|(list, _)| list == name);
        let changed = match (wanted, live, key) {
            (Value::Object(_), Value::Object(_), _) => three_way(last, wanted, live),
            (Value::Array(wanted), Value::Array(live), Some((_, key))) => {
                of_lists(key, as_list(last), wanted, live)
            }
            _ => (wanted != live).then(|| wanted.clone()),
        };
        if let Some(changed) = changed {
            patch.insert(name.clone(), changed);
        }
    }
    for name in last.keys() {
        if !wanted.contains_key(name) && live.contains_key(name) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    patch
}

fn of_lists(key: &str, last: &[Value], wanted: &[Value], live: &[Value]) -> Option<Value> {
    let find = |list: &[Value], item: &Value| list.iter().find(|it| it[key] == item[key]).cloned();
    let mut patch = Vec::new();
    for item in wanted {
        let Some(live) = find(live, item) else {
            patch.push(item.clone());
            continue;
        };
        let last = find(last, item).unwrap_or(Value::Null);
        if let Some(mut changed) = three_way(&last, item, &live) {
            changed[key] = item[key].clone();
            patch.push(changed);
        }
    }
    for item in last {
        if find(wanted, item).is_none() && find(live, item).is_some() {
            patch.push(json!({"$patch": "delete", key: item[key]}));
        }
    }
    (!patch.is_empty()).then_some(Value::Array(patch))
}

fn as_map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn as_list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
