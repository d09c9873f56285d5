//! Values of the operator's chart, turned into the settings that the chart renders from them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::answer::Failure;
use crate::installation::Installation;
use crate::manifests;

/// Reads a values file of the operator's chart.
///
/// # Errors
/// If the file cannot be read, or the operator would not start with these values.
pub fn read(file: &Path) -> Result<Installation, Failure> {
    let failed = |problem: String| Failure::new(format!("{}: {problem}", file.display()));
    let text = manifests::text_of(file)?;
    let values: Value =
        serde_saphyr::from_str(&text).map_err(|error| failed(manifests::parse_problem(&error)))?;
    if !values.is_object() && !values.is_null() {
        return Err(failed(
            "expected the values of the operator's chart".to_owned(),
        ));
    }
    Installation::parse(&variables(&values)).map_err(|error| failed(error.to_string()))
}

/// The variables that the chart sets (templates/_helpers.tpl).
fn variables(values: &Value) -> BTreeMap<String, String> {
    let operator = &values["operator"];
    let mut variables = BTreeMap::new();
    let transports =
        json!({"transports": transports(&operator["transports"], &values["transports"])});
    variables.insert("ASYA_TRANSPORT_CONFIG".to_owned(), transports.to_string());
    let gateway = text(&values["gatewayURL"]).or_else(|| text(&operator["gatewayURL"]));
    let resources = &values["sidecar"]["defaultResources"];
    let resources = resources.is_object().then(|| resources.to_string());
    let switch = |value: &Value| (value == &json!(true)).then(|| "true".to_owned());
    for (name, value) in [
        ("ASYA_GATEWAY_URL", gateway),
        (
            "ASYA_OWN_SIDECAR_IMAGE",
            Some(sidecar_image(&values["image"])),
        ),
        ("ASYA_SIDECAR_IMAGE", text(&values["sidecar"]["image"])),
        ("ASYA_SIDECAR_DEFAULT_RESOURCES", resources),
        (
            "ASYA_PRIVILEGED_SIDECARS",
            switch(&values["sidecar"]["allowPrivileged"]),
        ),
        (
            "ASYA_BINDING_RUNTIME_IMAGE",
            text(&values["binding"]["runtimeImage"]),
        ),
        ("ASYA_OPENSHIFT", switch(&values["binding"]["openshift"])),
    ] {
        if let Some(value) = value {
            variables.insert(name.to_owned(), value);
        }
    }
    variables
}

/// The `asya-sidecar` image next to the operator's. It does not have that image's digest.
fn sidecar_image(operator: &Value) -> String {
    let folder = operator["repository"].as_str();
    let folder = folder.and_then(|it| it.rsplit_once('/'));
    let folder = folder.map_or_else(String::new, |(folder, _)| format!("{folder}/"));
    let tag = text(&operator["tag"]);
    let tag = tag.and_then(|it| it.split('@').next().map(str::to_owned));
    let tag = tag.filter(|it| !it.is_empty());
    let tag = tag.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
    format!("{folder}asya-sidecar:{tag}")
}

/// Merges the transports of both places; if both have a name, the latter's definition replaces the whole transport.
fn transports(former: &Value, current: &Value) -> Map<String, Value> {
    let entries = [former, current]
        .into_iter()
        .filter_map(Value::as_object)
        .flatten();
    let entries = entries.filter(|(_, transport)| !transport.is_null());
    entries
        .map(|(name, transport)| (name.clone(), transport.clone()))
        .collect()
}

fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::installation::VARIABLES;

    /// docs/cli.md: `--values` takes the place of the operator's Deployment, so it must set all variables.
    #[test]
    fn all_variables_of_the_chart_are_set() {
        let values = json!({
            "gatewayURL": "http://gateway",
            "sidecar": {"image": "s", "defaultResources": {"limits": {"cpu": "1"}}, "allowPrivileged": true},
            "binding": {"runtimeImage": "r", "openshift": true},
        });
        let names: BTreeSet<String> = variables(&values).into_keys().collect();
        assert_eq!(names, VARIABLES.map(str::to_owned).into());
    }

    /// docs/cli.md: `preview --values` shows the pods that the operator would create.
    #[test]
    fn sidecar_image_is_beside_the_operators() {
        let own = env!("CARGO_PKG_VERSION");
        for (image, expected) in [
            (json!(null), format!("asya-sidecar:{own}")),
            (
                json!({"repository": "asya-operator", "tag": "1.2.3"}),
                "asya-sidecar:1.2.3".to_owned(),
            ),
            (
                json!({"repository": "registry.corp:5000/asya/asya-operator", "tag": ""}),
                format!("registry.corp:5000/asya/asya-sidecar:{own}"),
            ),
            (
                json!({"repository": "r/asya-operator", "tag": "1.2.3@sha256:0123"}),
                "r/asya-sidecar:1.2.3".to_owned(),
            ),
            (
                json!({"tag": "@sha256:0123"}),
                format!("asya-sidecar:{own}"),
            ),
        ] {
            let found = variables(&json!({"image": image}));
            assert_eq!(found["ASYA_OWN_SIDECAR_IMAGE"], expected, "{image}");
        }
    }

    #[test]
    fn transports_of_both_places_count() {
        let mq =
            |host: &str| json!({"type": "rabbitmq", "enabled": true, "config": {"host": host}});
        let values = json!({
            "operator": {"transports": {"old": mq("a"), "both": mq("a")}},
            "transports": {"both": mq("b"), "gone": null},
            "sidecar": {"allowPrivileged": true},
        });
        let found = variables(&values);
        let transports: Value = serde_json::from_str(&found["ASYA_TRANSPORT_CONFIG"]).unwrap();
        assert_eq!(
            transports,
            json!({"transports": {"old": mq("a"), "both": mq("b")}})
        );
        let installation = Installation::parse(&found).unwrap();
        assert!(installation.settings.privileged_sidecars);
    }
}
