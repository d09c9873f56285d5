//! Values of the operator's chart, as the settings that the chart makes of them.

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

/// Transports of both places; of two with the same name, the latter counts as a whole.
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
    use super::*;

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
