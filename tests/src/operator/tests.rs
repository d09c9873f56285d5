use serde_json::json;

use super::{merge, token_id};

#[test]
fn a_token_has_its_id_in_its_claims() {
    // {"jti":"a?b>c"}, so that both letters of the URL alphabet occur
    assert_eq!(token_id("e30.eyJqdGkiOiJhP2I-YyJ9.x").unwrap(), "a?b>c");
}

#[test]
fn values_are_laid_over_key_by_key() {
    let mut base = json!({"a": {"b": 1, "c": 2}, "d": [1]});
    merge(&mut base, json!({"a": {"c": 3}, "d": [], "e": null}));
    assert_eq!(base, json!({"a": {"b": 1, "c": 3}, "d": [], "e": null}));
}
