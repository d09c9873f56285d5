//! Settings of the installation that reach pods.

use serde_json::{Map, Value, json};

use super::{ConfigError, KeyPath, non_empty};
use crate::api::Resources;
use crate::quantity::Quantity;

const DEFAULT_RESOURCES: &str = "ASYA_SIDECAR_DEFAULT_RESOURCES";

/// Settings of the operator that reach pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `ASYA_GATEWAY_URL`: URL to which sidecars report progress.
    pub gateway_url: Option<String>,
    /// `ASYA_SIDECAR_IMAGE`: default image of sidecars.
    pub sidecar_image: String,
    /// `ASYA_OWN_SIDECAR_IMAGE`: the image of `asya-sidecar` of this version, the default if no other is set.
    pub own_sidecar_image: String,
    /// `ASYA_SIDECAR_DEFAULT_RESOURCES`: default resources of sidecars.
    pub sidecar_resources: Resources,
    /// Whether an actor may request a privileged sidecar (SEC-15).
    pub privileged_sidecars: bool,
    /// Settings for pods of other controllers only.
    pub binding: BindingSettings,
}

/// Settings of the operator that reach pods of other controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingSettings {
    /// Default image of the runtime container; it needs Python only.
    pub runtime_image: String,
    /// Whether `OpenShift` assigns a range of user ids to each namespace, so that pods must not request one (BIND-26).
    pub openshift: bool,
}

impl Default for BindingSettings {
    fn default() -> Self {
        Self {
            runtime_image: "python:3.13-slim".to_owned(),
            openshift: false,
        }
    }
}

/// Image of `asya-sidecar` of this version.
const OWN_SIDECAR_IMAGE: &str = concat!("asya-sidecar:", env!("CARGO_PKG_VERSION"));

impl Settings {
    /// Parses the values of the three environment variables; an empty string counts as not set.
    ///
    /// # Errors
    /// When the default resources are not what a container's `resources` may be.
    pub fn parse(
        gateway_url: Option<String>,
        sidecar_image: Option<String>,
        default_resources: Option<&str>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            gateway_url: non_empty(gateway_url),
            sidecar_image: non_empty(sidecar_image).unwrap_or_else(|| OWN_SIDECAR_IMAGE.to_owned()),
            own_sidecar_image: OWN_SIDECAR_IMAGE.to_owned(),
            sidecar_resources: parse_resources(default_resources.unwrap_or_default())?,
            privileged_sidecars: false,
            binding: BindingSettings::default(),
        })
    }

    /// Sets where the image of this version's `asya-sidecar` is; an empty image counts as not set.
    #[must_use]
    pub fn with_own_sidecar(mut self, image: Option<String>) -> Self {
        if let Some(image) = non_empty(image) {
            if self.sidecar_image == self.own_sidecar_image {
                self.sidecar_image.clone_from(&image);
            }
            self.own_sidecar_image = image;
        }
        self
    }

    /// Sets whether sidecars may be privileged.
    #[must_use]
    pub fn with_privileged_sidecars(mut self, allowed: bool) -> Self {
        self.privileged_sidecars = allowed;
        self
    }

    /// Sets what pods of other controllers need; an empty image counts as not set.
    #[must_use]
    pub fn with_binding(mut self, runtime_image: Option<String>, openshift: bool) -> Self {
        if let Some(image) = non_empty(runtime_image) {
            self.binding.runtime_image = image;
        }
        self.binding.openshift = openshift;
        self
    }
}

fn parse_resources(text: &str) -> Result<Resources, ConfigError> {
    let resources: Option<Map<String, Value>> = if text.trim().is_empty() {
        None
    } else {
        serde_json::from_str(text).map_err(|error| refuse(&KeyPath::root(), error.to_string()))?
    };
    // Charts render {} for an unset value.
    let resources = resources
        .filter(|found| !found.is_empty())
        .unwrap_or_else(built_in_resources);
    for (key, value) in &resources {
        let at = KeyPath::root().key(key);
        match (key.as_str(), value) {
            ("requests" | "limits", Value::Object(quantities)) => {
                check_quantities(quantities, &at)?;
            }
            ("claims", Value::Array(_)) | (_, Value::Null) => {}
            ("requests" | "limits" | "claims", _) => return Err(refuse(&at, "has the wrong type")),
            _ => return Err(refuse(&at, "unknown key; use requests, limits or claims")),
        }
    }
    Ok(Resources(resources))
}

fn built_in_resources() -> Map<String, Value> {
    let mut resources = Map::new();
    resources.insert(
        "requests".to_owned(),
        json!({"cpu": "100m", "memory": "64Mi"}),
    );
    resources.insert(
        "limits".to_owned(),
        json!({"cpu": "500m", "memory": "256Mi"}),
    );
    resources
}

fn check_quantities(quantities: &Map<String, Value>, at: &KeyPath) -> Result<(), ConfigError> {
    for (name, quantity) in quantities {
        let legal = match quantity {
            Value::Number(_) => true,
            Value::String(text) => Quantity::parse(text).is_some(),
            _ => false,
        };
        if !legal {
            return Err(refuse(
                &at.key(name),
                format!("{quantity} is not a quantity; use a value such as 100m or 64Mi"),
            ));
        }
    }
    Ok(())
}

fn refuse(at: &KeyPath, message: impl Into<String>) -> ConfigError {
    ConfigError {
        setting: DEFAULT_RESOURCES,
        ..at.error(message)
    }
}

#[cfg(test)]
mod tests;
