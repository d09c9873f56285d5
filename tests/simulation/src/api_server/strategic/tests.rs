use serde_json::{Value, json};

use super::patch;
use crate::api_server::resources;
use crate::api_server::schema::Schema;

fn pod(containers: &Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

#[test]
fn elements_are_merged_added_and_deleted_by_their_key() {
    let mut live = pod(&json!([
        {"name": "a", "image": "a:1", "env": [{"name": "OLD"}, {"name": "KEPT"}]},
        {"name": "b"},
    ]));
    let changed = pod(&json!([
        {"name": "a", "image": "a:2", "env": [{"name": "OLD", "$patch": "delete"}]},
        {"name": "b", "$patch": "delete"},
        {"name": "gone", "$patch": "delete"},
        {"name": "c"},
    ]));
    patch(&mut live, &changed, Schema::of(&resources::DEPLOYMENTS));
    let expected = json!([{"name": "a", "image": "a:2", "env": [{"name": "KEPT"}]}, {"name": "c"}]);
    assert_eq!(live, pod(&expected));
}

#[test]
fn null_removes_a_field_and_lists_without_key_are_replaced() {
    let mut live =
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"args": ["a", "b"]}});
    let changed = json!({"metadata": {"labels": {"a": null}}, "spec": {"args": ["c"]}});
    patch(&mut live, &changed, Schema::of(&resources::DEPLOYMENTS));
    let expected = json!({"metadata": {"labels": {"b": "2"}}, "spec": {"args": ["c"]}});
    assert_eq!(live, expected);
}
