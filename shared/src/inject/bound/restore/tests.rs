#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::{contains, drifted_fields};

/// INJ-8
#[test]
fn additions_by_others_are_accepted_and_removals_are_not() {
    for (made, found) in [
        (json!({"a": 1}), json!({"a": 1, "b": 2})),
        (json!({"a": ""}), json!({})),
        (json!({"a": {}, "b": [], "c": false, "d": null}), json!({})),
        (json!({"a": {"b": ""}}), json!({"a": null})),
        (json!(["x", {"a": 1}]), json!(["x", {"a": 1, "b": 2}])),
    ] {
        assert!(contains(&made, &found), "{made} {found}");
    }
    for (made, found) in [
        (json!({"a": 1}), json!({"a": 2})),
        (json!({"a": 0}), json!({})),
        (json!({"a": "x"}), json!({})),
        (json!({"a": ""}), json!({"a": "x"})),
        (json!(["x"]), json!(["x", "y"])),
        (json!({}), json!([])),
    ] {
        assert!(!contains(&made, &found), "{made} {found}");
    }
}

/// INJ-8
#[test]
fn amounts_are_compared_by_value_and_restored_next_to_others() {
    let resources = |it: Value| json!({"resources": it});
    let made =
        resources(json!({"requests": {"cpu": 0.5, "memory": null}, "claims": [{"name": "c"}]}));
    let same = resources(
        json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}, "claims": [{"name": "c"}]}),
    );
    assert_eq!(drifted_fields(&made, &same), []);
    let other =
        resources(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}));
    let expected = json!({"requests": {"cpu": 0.5, "memory": "1Gi"}, "limits": {"cpu": "1"}, "claims": [{"name": "c"}]});
    assert_eq!(drifted_fields(&made, &other), [("resources", expected)]);
}

/// INJ-8
#[test]
fn mirrored_image_is_kept_and_another_image_is_restored() {
    let with = |image: &str| json!({"image": image});
    let made = with("ghcr.io/asya/sidecar:1");
    assert_eq!(
        drifted_fields(&made, &with("mirror.local/asya/sidecar:1")),
        []
    );
    let restored = [("image", json!("ghcr.io/asya/sidecar:1"))];
    assert_eq!(
        drifted_fields(&made, &with("ghcr.io/asya/sidecar:2")),
        restored
    );
}
