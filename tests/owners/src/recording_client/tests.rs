use serde_json::json;

use super::includes;

#[test]
fn includes_ignores_additional_fields() {
    let whole = json!({"a": 1, "list": [{"x": 1, "y": 2}], "more": true});
    assert!(includes(&whole, &json!({"list": [{"x": 1}], "gone": null})));
    for other in [
        json!({"a": 2}),
        json!({"b": 1}),
        json!({"list": []}),
        json!({"list": [{"x": 1}, {}]}),
        json!({"a": null}),
    ] {
        assert!(!includes(&whole, &other), "{other}");
    }
}
