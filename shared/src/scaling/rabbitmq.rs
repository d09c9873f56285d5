//! KEDA's `rabbitmq` trigger (KEDA-6).

use std::collections::BTreeMap;

use super::{Authentication, Trigger, TriggerRequest};
use crate::config::{KedaProtocol, RabbitmqConfig, Scheme};
use asya_wire::percent;

/// KEDA rejects a username without a password, so the password of the default user is part of the URL.
const DEFAULT_PASSWORD: &str = "guest";

pub(crate) fn trigger(config: &RabbitmqConfig, request: &TriggerRequest<'_>) -> Trigger {
    let http = config.keda_protocol == KedaProtocol::Http;
    let mut metadata = BTreeMap::from([
        ("queueName", request.queue.to_owned()),
        ("mode", "QueueLength".to_owned()),
        ("value", request.queue_length.to_string()),
        (
            "activationValue",
            request.activation_queue_length.to_string(),
        ),
        ("protocol", if http { "http" } else { "amqp" }.to_owned()),
        ("host", host(config)),
        ("vhostName", config.vhost.clone()),
    ]);
    if http {
        // over AMQP KEDA sees only ready messages and rejects both settings
        let exclude = !request.count_in_flight;
        metadata.insert("excludeUnacknowledged", exclude.to_string());
        let unsafe_ssl = config.management.insecure_skip_verify;
        metadata.insert("unsafeSsl", unsafe_ssl.to_string());
    }
    Trigger {
        kind: "rabbitmq",
        metadata,
        authentication: authentication(config),
    }
}

fn host(config: &RabbitmqConfig) -> String {
    let user = match config.password_secret_ref {
        Some(_) => String::new(),
        None => format!("{}:{DEFAULT_PASSWORD}@", percent::encode(&config.username)),
    };
    let (scheme, host, port) = match config.keda_protocol {
        KedaProtocol::Http => {
            let management = &config.management;
            let scheme = match management.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            };
            (scheme, &management.host, management.port)
        }
        KedaProtocol::Amqp => {
            let scheme = if config.tls { "amqps" } else { "amqp" };
            (scheme, &config.host, config.port)
        }
    };
    format!("{scheme}://{user}{host}:{port}/")
}

fn authentication(config: &RabbitmqConfig) -> Option<Authentication> {
    let mut authentication = Authentication::default();
    if let Some(password) = &config.password_secret_ref {
        let username = config.username.clone();
        authentication.settings.insert("username", username);
        authentication.secrets.push(("password", password.clone()));
    }
    let of_management = config.management.ca_secret_ref.as_ref();
    let (over_tls, authority) = match config.keda_protocol {
        KedaProtocol::Http => (config.management.scheme == Scheme::Https, of_management),
        KedaProtocol::Amqp => (config.tls, config.ca_secret_ref.as_ref().or(of_management)),
    };
    if let Some(authority) = authority.filter(|_| over_tls) {
        // KEDA reads the CA only if `tls` is `enable`, and reads `tls` only from here
        let enable = "enable".to_owned();
        authentication.settings.insert("tls", enable);
        authentication.secrets.push(("ca", authority.clone()));
    }
    (!authentication.secrets.is_empty()).then_some(authentication)
}
