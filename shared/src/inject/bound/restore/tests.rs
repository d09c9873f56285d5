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

fn resources(it: &Value) -> Value {
    json!({"resources": it})
}

/// INJ-8: other webhooks, such as those of the VPA and of GKE Autopilot, set quantities after the first call. If we set
/// them back, the VPA would evict the pod, again and again.
#[test]
fn quantities_that_others_have_set_are_kept() {
    let desired = resources(&json!({
        "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "100m"}, "claims": [{"name": "c"}],
    }));
    for (cpu, memory, limit) in [
        ("10m", "32Mi", "100m"),
        ("2", "4Gi", "4"),
        ("1m", "1Mi", "2m"),
    ] {
        let found = resources(&json!({
            "requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": limit, "memory": "8Gi"},
            "claims": [{"name": "c"}],
        }));
        assert_eq!(drifted_fields(&desired, &found), [], "{found}");
    }
}

/// INJ-8
#[test]
fn missing_quantities_are_added_next_to_those_of_others() {
    let desired =
        resources(&json!({"requests": {"cpu": 0.5, "memory": null}, "claims": [{"name": "c"}]}));
    let found = resources(&json!({"requests": {"memory": "1Gi"}, "limits": {"cpu": "1"}}));
    let expected = json!({"requests": {"cpu": 0.5, "memory": "1Gi"}, "limits": {"cpu": "1"}, "claims": [{"name": "c"}]});
    assert_eq!(drifted_fields(&desired, &found), [("resources", expected)]);
}

/// INJ-8: the API server rejects a pod whose request exceeds its limit.
#[test]
fn added_quantity_fits_the_one_that_others_have_set() {
    let desired = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}});
    for (found, expected) in [
        (
            json!({"requests": {"cpu": "0.2"}}),
            json!({"requests": {"cpu": "0.2"}, "limits": {"cpu": "0.2"}}),
        ),
        (
            json!({"limits": {"cpu": "50m"}}),
            json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "50m"}}),
        ),
        (
            json!({"requests": {"cpu": "50m"}}),
            json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}}),
        ),
        (json!({}), desired.clone()),
        (json!({"requests": null}), desired.clone()),
    ] {
        let restored = drifted_fields(&resources(&desired), &resources(&found));
        assert_eq!(restored, [("resources", expected)], "{found}");
    }
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
