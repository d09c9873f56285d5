//! Settings of a RabbitMQ broker (RMQ-1).

use std::net::Ipv6Addr;

use asya_wire::queue::Naming;
use serde::Deserialize;
use serde_json::Value;

use super::queues::{QueueConstraints, RawQueues};
use super::{ConfigError, KeyPath, QueuesConfig, SecretKeyRef, non_empty};

/// `x-message-ttl` is at most 2^32 - 1 milliseconds.
const MAX_RETENTION_DAYS: u32 = 49;

const CONSTRAINTS: QueueConstraints = QueueConstraints {
    dlq_name: "{queue}-dlq",
    dlq_retention_days: None,
    max_retention_days: Some(MAX_RETENTION_DAYS),
    has_types: true,
    naming: Naming::RabbitMq,
};

/// A RabbitMQ broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RabbitmqConfig {
    /// Host name or address, an IPv6 address in brackets.
    pub host: String,
    /// AMQP port.
    pub port: u16,
    /// User name of the sidecars and the operator.
    pub username: String,
    /// Password of that user; without one, `guest`.
    pub password_secret_ref: Option<SecretKeyRef>,
    /// Complete AMQP URL for sidecars, in place of the composed one.
    pub url_secret_ref: Option<SecretKeyRef>,
    /// Topic exchange that sidecars publish to (RMQ-4).
    pub exchange: String,
    /// Virtual host.
    pub vhost: String,
    /// Whether AMQP connections use TLS.
    pub tls: bool,
    /// Secret in the actors' namespaces with the CA of the broker, if it is not a public one.
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// Address of the management API.
    pub management: Management,
    /// Protocol by which KEDA reads the depth of queues (KEDA-6).
    pub keda_protocol: KedaProtocol,
    /// Queue settings.
    pub queues: QueuesConfig,
}

/// RabbitMQ's management API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// Scheme: http or https.
    pub scheme: Scheme,
    /// Host name or address, an IPv6 address in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Private CA of its certificate, if any.
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// Whether to skip the verification of its certificate.
    pub insecure_skip_verify: bool,
}

/// Scheme of a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Without TLS.
    #[default]
    Http,
    /// With TLS.
    Https,
}

/// Protocol by which KEDA reads the depth of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KedaProtocol {
    /// The management API, which also counts messages in flight.
    #[default]
    Http,
    /// AMQP, only if configured.
    Amqp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    host: Option<String>,
    port: Option<u16>,
    username: Option<String>,
    password_secret_ref: Option<SecretKeyRef>,
    url_secret_ref: Option<SecretKeyRef>,
    exchange: Option<String>,
    vhost: Option<String>,
    tls: Option<bool>,
    ca_secret_ref: Option<SecretKeyRef>,
    management: Option<RawManagement>,
    keda: Option<RawKeda>,
    queues: Option<RawQueues>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawManagement {
    scheme: Option<Scheme>,
    host: Option<String>,
    port: Option<u16>,
    ca_secret_ref: Option<SecretKeyRef>,
    insecure_skip_verify: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawKeda {
    protocol: Option<KedaProtocol>,
}

impl RabbitmqConfig {
    /// Reads the settings. A disabled transport may lack its host.
    pub(super) fn read(settings: Value, enabled: bool, at: &KeyPath) -> Result<Self, ConfigError> {
        let raw: Raw = at.decode(settings)?;
        let host = match non_empty(raw.host) {
            Some(host) => check_host(host, &at.key("host"))?,
            None if enabled => return Err(at.key("host").error("must be set")),
            None => String::new(),
        };
        let tls = raw.tls.unwrap_or(false);
        let within = at.key("management");
        let management = raw.management.unwrap_or_default();
        let management_host = match non_empty(management.host) {
            Some(host) => check_host(host, &within.key("host"))?,
            None => host.clone(),
        };
        Ok(Self {
            host,
            port: non_zero(raw.port).unwrap_or(if tls { 5671 } else { 5672 }),
            username: non_empty(raw.username).unwrap_or_else(|| "guest".to_owned()),
            password_secret_ref: at.secret("passwordSecretRef", raw.password_secret_ref)?,
            url_secret_ref: at.secret("urlSecretRef", raw.url_secret_ref)?,
            exchange: non_empty(raw.exchange).unwrap_or_else(|| "asya".to_owned()),
            vhost: non_empty(raw.vhost).unwrap_or_else(|| "/".to_owned()),
            tls,
            ca_secret_ref: at.secret("caSecretRef", raw.ca_secret_ref)?,
            management: Management {
                scheme: management.scheme.unwrap_or_default(),
                host: management_host,
                port: non_zero(management.port).unwrap_or(15672),
                ca_secret_ref: within.secret("caSecretRef", management.ca_secret_ref)?,
                insecure_skip_verify: management.insecure_skip_verify.unwrap_or(false),
            },
            keda_protocol: raw.keda.unwrap_or_default().protocol.unwrap_or_default(),
            queues: raw
                .queues
                .unwrap_or_default()
                .build(&at.key("queues"), &CONSTRAINTS)?,
        })
    }
}

impl Management {
    /// Returns the base URL of the API, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

/// Zero counts as "not set", for compatibility.
fn non_zero(port: Option<u16>) -> Option<u16> {
    port.filter(|port| *port != 0)
}

fn check_host(host: String, at: &KeyPath) -> Result<String, ConfigError> {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(&host);
    if inner.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{inner}]"));
    }
    if host.contains("://") {
        return Err(at.error(format!(
            "\"{host}\" must be a host name without a scheme; for TLS set tls or management.scheme"
        )));
    }
    if host.contains(':') {
        return Err(at.error(format!(
            "\"{host}\" must be a host name without a port; use the field port"
        )));
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || "/@?#[]\\%".contains(c)) {
        return Err(at.error(format!("\"{host}\" is not a host name")));
    }
    Ok(host)
}

#[cfg(test)]
mod tests;
