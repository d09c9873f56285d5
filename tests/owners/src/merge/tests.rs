use serde_json::{Value, json};

use super::{three_way, two_way};

fn pod(containers: &Value) -> Value {
    json!({"spec": {"containers": containers}})
}

#[test]
fn three_way_patch_keeps_additions_of_others_and_removes_dropped_fields() {
    let last = pod(&json!([{"name": "a", "image": "a:1", "env": [{"name": "OLD", "value": "1"}]}]));
    let wanted = pod(&json!([{"name": "a", "image": "a:2"}]));
    let live = pod(&json!([
        {"name": "a", "image": "a:1", "env": [{"name": "OLD", "value": "1"}, {"name": "THEIRS"}]},
        {"name": "b", "image": "b:1"},
    ]));
    let patch = three_way(&last, &wanted, &live);
    let changed = json!([{"name": "a", "image": "a:2", "env": null}]);
    assert_eq!(patch, Some(pod(&changed)));
    let defaulted = pod(&json!([{"name": "a", "image": "a:2", "imagePullPolicy": "Always"}]));
    assert_eq!(three_way(&wanted, &wanted, &defaulted), None);
}

#[test]
fn two_way_patch_deletes_foreign_list_items_by_key() {
    let live = pod(&json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]));
    let wanted = pod(&json!([{"name": "a", "image": "a:1"}]));
    let deleted = json!([{"$patch": "delete", "name": "b"}]);
    assert_eq!(two_way(&live, &wanted), Some(pod(&deleted)));
    assert_eq!(two_way(&wanted, &wanted), None);
    // Lists without a merge key are replaced as a whole.
    let (live, wanted) = (json!({"args": ["a", "b"]}), json!({"args": ["a"]}));
    assert_eq!(two_way(&live, &wanted), Some(wanted));
}
