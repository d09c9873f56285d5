#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::{damaged, holds};

/// INJ-8
#[test]
fn more_than_we_made_holds_and_less_does_not() {
    for (made, found) in [
        (json!({"a": 1}), json!({"a": 1, "b": 2})),
        (json!({"a": ""}), json!({})),
        (json!({"a": {}, "b": [], "c": false, "d": null}), json!({})),
        (json!({"a": {"b": ""}}), json!({"a": null})),
        (json!(["x", {"a": 1}]), json!(["x", {"a": 1, "b": 2}])),
    ] {
        assert!(holds(&made, &found), "{made} {found}");
    }
    for (made, found) in [
        (json!({"a": 1}), json!({"a": 2})),
        (json!({"a": 0}), json!({})),
        (json!({"a": "x"}), json!({})),
        (json!({"a": ""}), json!({"a": "x"})),
        (json!(["x"]), json!(["x", "y"])),
        (json!({}), json!([])),
    ] {
        assert!(!holds(&made, &found), "{made} {found}");
    }
}

/// INJ-8
#[test]
fn amounts_are_compared_as_amounts_and_restored_beside_others() {
    let resources = |it: Value| json!({"resources": it});
    let made =
        resources(json!({"requests": {"cpu": 0.5, "memory": null}, "claims": [{"name": "c"}]}));
    let same = resources(
        json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}, "claims": [{"name": "c"}]}),
    );
    assert_eq!(damaged(&made, &same), []);
    let other =
        resources(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}));
    let expected = json!({"requests": {"cpu": 0.5, "memory": "1Gi"}, "limits": {"cpu": "1"}, "claims": [{"name": "c"}]});
    assert_eq!(damaged(&made, &other), [("resources", expected)]);
}

/// INJ-8
#[test]
fn image_of_a_mirror_stays_and_another_image_is_ours_again() {
    let with = |image: &str| json!({"image": image});
    let made = with("ghcr.io/asya/sidecar:1");
    assert_eq!(damaged(&made, &with("mirror.local/asya/sidecar:1")), []);
    let restored = [("image", json!("ghcr.io/asya/sidecar:1"))];
    assert_eq!(damaged(&made, &with("ghcr.io/asya/sidecar:2")), restored);
}
