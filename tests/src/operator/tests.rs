use serde_json::json;

use super::{merge, token_id};

#[test]
fn token_id_is_the_jti_claim() {
    // {"jti":"a?b>c"}: contains both characters that are special to the URL-safe alphabet
    assert_eq!(token_id("e30.eyJqdGkiOiJhP2I-YyJ9.x").unwrap(), "a?b>c");
}

#[test]
fn merge_is_recursive_for_objects_only() {
    let mut base = json!({"a": {"b": 1, "c": 2}, "d": [1]});
    merge(&mut base, json!({"a": {"c": 3}, "d": [], "e": null}));
    assert_eq!(base, json!({"a": {"b": 1, "c": 3}, "d": [], "e": null}));
}
