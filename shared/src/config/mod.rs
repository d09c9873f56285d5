//! The operator's configuration: the transports (`ASYA_TRANSPORT_CONFIG`) and the settings of the installation that
//! reach pods. Parsing is strict: an unknown key or invalid value fails startup, and the error names its path (OPS-3).
//! Only for `kubectl asya`, which may be older than the operator, unknown keys are no error.

mod queues;
mod rabbitmq;
mod settings;
mod sqs;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod unknown_keys;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

pub use queues::{DlqConfig, QueueNames, QueueType, QueuesConfig, RouteNames};
pub use rabbitmq::{KedaProtocol, Management, RabbitmqConfig, Scheme};
pub use settings::{BindingSettings, Settings};
pub use sqs::{IdentityOwner, SqsConfig, SqsCredentials, SqsKeda};
use unknown_keys::{UnknownKeys, decode_known};

/// Environment variable with the transports.
const TRANSPORT_CONFIG: &str = "ASYA_TRANSPORT_CONFIG";

/// An invalid setting, which fails startup.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting}: {}{message}", if .path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct ConfigError {
    /// Environment variable that holds the setting.
    pub setting: &'static str,
    /// Path of the offending key inside it; empty for the whole setting.
    pub path: String,
    /// What is wrong, and how to fix it.
    pub message: String,
}

/// The configured transports, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransportsConfig {
    transports: BTreeMap<String, Transport>,
    /// Warnings about settings that have no effect, to be logged once.
    pub warnings: Vec<String>,
}

/// A configured broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    /// Name that actors use in `spec.transport`; independent of the type.
    pub name: String,
    /// Whether actors may use it.
    pub enabled: bool,
    /// Type, with its settings.
    pub kind: TransportKind,
}

/// The supported types of transports.
#[derive(Clone, Debug, PartialEq)]
pub enum TransportKind {
    /// `type: rabbitmq`
    Rabbitmq(RabbitmqConfig),
    /// `type: sqs`
    Sqs(SqsConfig),
}

/// Why an actor cannot use the transport that it names (VAL-20).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransportUnusable {
    /// No transport has that name.
    #[error("transport \"{0}\" is not configured")]
    NotConfigured(String),
    /// The transport is configured, but disabled.
    #[error("transport \"{0}\" is disabled")]
    Disabled(String),
}

/// Key of a Secret. The namespace depends on where the reference is used (SEC-1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Key inside the Secret.
    pub key: String,
    /// Whether pods start without the Secret.
    #[serde(default)]
    pub optional: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoot {
    transports: Option<BTreeMap<String, Option<RawTransport>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTransport {
    #[serde(rename = "type")]
    kind: String,
    enabled: Option<bool>,
    config: Option<Value>,
}

impl TransportsConfig {
    /// Parses `ASYA_TRANSPORT_CONFIG`. An empty string or null means no transports; a null entry counts as absent.
    ///
    /// # Errors
    /// If the text is not JSON, or contains an unknown key, an unknown type or an invalid value, even in
    /// a disabled transport.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let root = KeyPath::root();
        let mut json = serde_json::Deserializer::from_str(text);
        let raw = decode(TRANSPORT_CONFIG, &root, &mut json)?;
        json.end().map_err(|error| root.error(error.to_string()))?;
        Self::build(raw, &root)
    }

    /// Parses what is known of the configuration of another release's operator, which has accepted it: like
    /// [`TransportsConfig::parse`], but unknown keys are ignored.
    ///
    /// # Errors
    /// If the text is not JSON, or contains an unknown type or an invalid value.
    pub fn parse_known(text: &str) -> Result<Self, ConfigError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let root = KeyPath {
            unknown_keys: UnknownKeys::Ignore,
            ..KeyPath::root()
        };
        let json = serde_json::from_str(text).map_err(|error| root.error(error.to_string()))?;
        Self::build(root.decode(json)?, &root)
    }

    fn build(raw: Option<RawRoot>, root: &KeyPath) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for (name, raw) in raw.and_then(|raw| raw.transports).unwrap_or_default() {
            let Some(raw) = raw else { continue };
            let at = root.key("transports").key(&name);
            let enabled = raw.enabled.unwrap_or(false);
            let settings = raw
                .config
                .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            let within = at.key("config");
            let kind = match raw.kind.as_str() {
                "rabbitmq" => {
                    TransportKind::Rabbitmq(RabbitmqConfig::read(settings, enabled, &within)?)
                }
                "sqs" => TransportKind::Sqs(SqsConfig::read(settings, &within)?),
                other => {
                    return Err(at.key("type").error(format!(
                        "\"{other}\" is not a transport type; use rabbitmq or sqs"
                    )));
                }
            };
            let transport = Transport {
                name: name.clone(),
                enabled,
                kind,
            };
            if transport.queues().force_recreate {
                config.warnings.push(format!(
                    "{}: queues are never deleted and recreated; forceRecreate has no effect",
                    within.key("queues").key("forceRecreate").path
                ));
            }
            config.transports.insert(name, transport);
        }
        Ok(config)
    }

    /// Returns the transport that an actor names.
    ///
    /// # Errors
    /// If there is none of that name, or it is disabled.
    pub fn usable(&self, name: &str) -> Result<&Transport, TransportUnusable> {
        match self.transports.get(name) {
            None => Err(TransportUnusable::NotConfigured(name.to_owned())),
            Some(transport) if !transport.enabled => {
                Err(TransportUnusable::Disabled(name.to_owned()))
            }
            Some(transport) => Ok(transport),
        }
    }

    /// Returns all transports in order of name, disabled ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Transport> {
        self.transports.values()
    }
}

/// Path of a key inside a setting, for error messages.
struct KeyPath {
    path: String,
    unknown_keys: UnknownKeys,
}

impl KeyPath {
    fn root() -> Self {
        Self {
            path: String::new(),
            unknown_keys: UnknownKeys::Reject,
        }
    }

    fn key(&self, key: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{dot}{key}", self.path),
            unknown_keys: self.unknown_keys,
        }
    }

    fn error(&self, message: impl Into<String>) -> ConfigError {
        ConfigError {
            setting: TRANSPORT_CONFIG,
            path: self.path.clone(),
            message: message.into(),
        }
    }

    /// Decodes the settings of one transport; an error contains the full path.
    fn decode<T: DeserializeOwned>(&self, value: Value) -> Result<T, ConfigError> {
        match self.unknown_keys {
            UnknownKeys::Reject => decode(TRANSPORT_CONFIG, self, value),
            UnknownKeys::Ignore => {
                decode_known(value).map_err(|error| invalid(TRANSPORT_CONFIG, self, error))
            }
        }
    }

    /// Checks that a reference names a Secret and a key.
    fn secret(
        &self,
        key: &str,
        reference: Option<SecretKeyRef>,
    ) -> Result<Option<SecretKeyRef>, ConfigError> {
        match &reference {
            Some(found) if found.name.is_empty() => {
                Err(self.key(key).key("name").error("must name a Secret"))
            }
            Some(found) if found.key.is_empty() => Err(self
                .key(key)
                .key("key")
                .error("must name a key of the Secret")),
            _ => Ok(reference),
        }
    }
}

fn decode<'de, T, D>(setting: &'static str, at: &KeyPath, json: D) -> Result<T, ConfigError>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de, Error = serde_json::Error>,
{
    serde_path_to_error::deserialize(json).map_err(|error| invalid(setting, at, error))
}

fn invalid(
    setting: &'static str,
    at: &KeyPath,
    error: serde_path_to_error::Error<serde_json::Error>,
) -> ConfigError {
    let inner = error.path().to_string();
    let path = if inner == "." {
        at.path.clone()
    } else {
        at.key(&inner).path
    };
    ConfigError {
        setting,
        path,
        message: error.into_inner().to_string(),
    }
}

/// An empty string means "not set": charts render an unset value that way.
fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}
