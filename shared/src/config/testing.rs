//! Helpers for the tests of several modules.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::{
    ConfigError, RabbitmqConfig, SecretKeyRef, SqsConfig, Transport, TransportKind,
    TransportsConfig,
};

/// Parses the given transports.
pub(crate) fn parse(transports: &Value) -> Result<TransportsConfig, ConfigError> {
    TransportsConfig::parse(&json!({"transports": transports}).to_string())
}

/// Returns an enabled transport of the given type.
pub(crate) fn transport(kind: &str, config: &Value) -> Transport {
    let parsed = parse(&json!({"t": {"type": kind, "enabled": true, "config": config}})).unwrap();
    parsed.usable("t").unwrap().clone()
}

/// Returns the settings of a RabbitMQ broker.
pub(crate) fn rabbitmq(config: &Value) -> RabbitmqConfig {
    match transport("rabbitmq", config).kind {
        TransportKind::Rabbitmq(config) => config,
        other @ TransportKind::Sqs(_) => panic!("{other:?}"),
    }
}

/// Returns the settings of SQS.
pub(crate) fn sqs(config: &Value) -> SqsConfig {
    match transport("sqs", config).kind {
        TransportKind::Sqs(config) => config,
        other @ TransportKind::Rabbitmq(_) => panic!("{other:?}"),
    }
}

/// Returns a reference to a Secret.
pub(crate) fn secret(name: &str, key: &str) -> SecretKeyRef {
    SecretKeyRef {
        name: name.to_owned(),
        key: key.to_owned(),
        optional: None,
    }
}
