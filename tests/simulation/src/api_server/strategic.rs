//! Strategic merge patches, as far as the simulated owners use them.

use serde_json::{Value, json};

use super::schema::{ListType, Schema};

/// Applies a strategic merge patch: list elements are identified by their merge key.
pub fn patch(target: &mut Value, patch: &Value, schema: Schema) {
    match (patch, schema.list()) {
        (Value::Object(fields), _) => {
            if !target.is_object() {
                *target = json!({});
            }
            for (name, value) in fields {
                if value.is_null() {
                    if let Some(target) = target.as_object_mut() {
                        target.remove(name);
                    }
                } else {
                    self::patch(&mut target[name], value, schema.field(name));
                }
            }
        }
        (Value::Array(items), Some(ListType::Map([key, ..]))) => {
            if !target.is_array() {
                *target = json!([]);
            }
            for item in items {
                patch_item(target, item, (key, schema));
            }
        }
        _ => target.clone_from(patch),
    }
}

fn patch_item(list: &mut Value, item: &Value, (key, schema): (&str, Schema)) {
    let Some(list) = list.as_array_mut() else {
        return;
    };
    let found = list.iter().position(|it| it[key] == item[key]);
    match (found, item["$patch"] == "delete") {
        (Some(index), true) => {
            list.remove(index);
        }
        (Some(index), false) => match schema {
            Schema::List(_, of_item) => patch(&mut list[index], item, *of_item),
            _ => list[index] = item.clone(),
        },
        (None, false) => list.push(item.clone()),
        (None, true) => {}
    }
}

#[cfg(test)]
mod tests;
