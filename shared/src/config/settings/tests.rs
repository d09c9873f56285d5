#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::Settings;

/// OPS-2
#[test]
fn unset_and_empty_settings_have_defaults() {
    let unset = Settings::parse(None, None, None).unwrap();
    assert_eq!(unset.gateway_url, None);
    let own = concat!("asya-sidecar:", env!("CARGO_PKG_VERSION"));
    assert_eq!(unset.sidecar_image, own);
    let resources = serde_json::to_value(&unset.sidecar_resources).unwrap();
    assert_eq!(
        resources,
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}})
    );
    for nothing in ["", "null", "{}"] {
        assert_eq!(
            Settings::parse(Some(String::new()), Some(String::new()), Some(nothing)).unwrap(),
            unset
        );
    }
}

/// POD-1, SC-111
#[test]
fn own_sidecar_is_used_unless_another_image_is_set() {
    for (set, own, expected) in [
        (
            None,
            None,
            concat!("asya-sidecar:", env!("CARGO_PKG_VERSION")),
        ),
        (None, Some("mirror/asya-sidecar:1"), "mirror/asya-sidecar:1"),
        (Some("theirs:2"), Some("mirror/asya-sidecar:1"), "theirs:2"),
        (Some("theirs:2"), None, "theirs:2"),
    ] {
        let settings = Settings::parse(None, set.map(str::to_owned), None).unwrap();
        let settings = settings.with_own_sidecar(own.map(str::to_owned));
        assert_eq!(settings.sidecar_image, expected);
        let is_own = settings.sidecar_image == settings.own_sidecar_image;
        assert_eq!(is_own, set.is_none());
    }
}

/// OPS-2
#[test]
fn default_resources_are_kept_unchanged_or_rejected_with_their_path() {
    let given = r#"{"requests":{"cpu":1,"memory":"0.5Gi"},"limits":{"nvidia.com/gpu":"1e0"}}"#;
    let settings = Settings::parse(None, None, Some(given)).unwrap();
    assert_eq!(
        serde_json::to_string(&settings.sidecar_resources).unwrap(),
        {
            let sorted: Value = serde_json::from_str(given).unwrap();
            sorted.to_string()
        }
    );
    for (wrong, path) in [
        (r#"{"request":{}}"#, "request"),
        (r#"{"limits":[]}"#, "limits"),
        (r#"{"limits":{"memory":"1GB"}}"#, "limits.memory"),
        (r#"{"limits":{"memory":"1.2.3"}}"#, "limits.memory"),
        (r#"{"limits":{"memory":"Mi"}}"#, "limits.memory"),
        (r#"{"limits":{"memory":true}}"#, "limits.memory"),
        ("[]", ""),
        ("{", ""),
    ] {
        let error = Settings::parse(None, None, Some(wrong)).expect_err(wrong);
        assert_eq!(
            (error.setting, error.path.as_str()),
            ("ASYA_SIDECAR_DEFAULT_RESOURCES", path),
            "{error}"
        );
    }
}
