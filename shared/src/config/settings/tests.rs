#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::Settings;

/// OPS-2
#[test]
fn settings_have_defaults_for_what_is_unset_or_empty() {
    let unset = Settings::parse(None, None, None).unwrap();
    assert_eq!(unset.gateway_url, None);
    assert_eq!(unset.sidecar_image, "asya-sidecar:latest");
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

/// OPS-2
#[test]
fn default_resources_are_taken_as_written_or_refused_by_path() {
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
