//! Connection settings of RabbitMQ (SC-7, SC-8).

use std::path::PathBuf;

use asya_wire::{env, percent};

use super::reader::Reader;
use super::{DeliveryTime, Secret};

#[derive(Clone, Debug)]
pub struct RabbitMqConfig {
    /// Host name or address; an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// PEM bundle of trusted CAs; `None` for the built-in roots.
    pub ca_file: Option<PathBuf>,
    pub vhost: String,
    pub user: String,
    pub password: Password,
    /// The topic exchange that queues are bound to.
    pub exchange: String,
    pub publish: Publish,
}

/// Source of the password.
#[derive(Clone, Debug)]
pub enum Password {
    /// In the environment.
    Value(Secret),
    /// In a file, read at every connection attempt.
    File(PathBuf),
}

/// How to publish (SC-24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    /// To the default exchange, with the queue name as routing key.
    Queue,
    /// To the topic exchange, with the queue name minus its prefix as routing key.
    Exchange,
}

/// Host, port, user, password and virtual host, as far as they are known.
#[derive(Debug, Default)]
struct Parts {
    tls: bool,
    host: String,
    port: Option<u16>,
    user: Option<String>,
    password: Option<String>,
    vhost: Option<String>,
}

pub(super) fn prefetch(reader: &mut Reader<'_>) -> Option<usize> {
    reader.get(env::RABBITMQ_PREFETCH)?;
    Some(reader.number(env::RABBITMQ_PREFETCH, 1..=4096, 1))
}

/// Brokers that ignore the consumer argument apply their default consumer timeout of 30 minutes (SC-32).
pub(super) fn warn_of_consumer_timeout(reader: &mut Reader<'_>, time: DeliveryTime) {
    if time.exceeds_the_default() {
        let text = "RabbitMQ before 3.12 redelivers messages unacknowledged for 30m; set its policy consumer-timeout";
        reader.warn(env::RUNTIME_TIMEOUT, text);
    }
}

impl RabbitMqConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let parts = from_parts(reader);
        let parts = match reader.get(env::RABBITMQ_URL) {
            Some(url) => from_url(url, reader.get(env::RABBITMQ_PASSWORD)).map_or_else(
                |error| {
                    reader.invalid(env::RABBITMQ_URL, error);
                    Parts::default()
                },
                |url| Parts {
                    user: url.user.or(parts.user),
                    password: url.password.or(parts.password),
                    vhost: url.vhost,
                    ..url
                },
            ),
            None => parts,
        };
        let file = reader.get(env::RABBITMQ_PASSWORD_FILE).map(PathBuf::from);
        let default = || env::DEFAULT_RABBITMQ_USER.to_owned();
        let password = parts.password.unwrap_or_else(default);
        let port = if parts.tls {
            env::DEFAULT_AMQPS_PORT
        } else {
            env::DEFAULT_AMQP_PORT
        };
        let ways = [("queue", Publish::Queue), ("exchange", Publish::Exchange)];
        Self {
            host: parts.host,
            port: parts.port.unwrap_or(port),
            tls: parts.tls,
            ca_file: reader.get(env::RABBITMQ_CA_FILE).map(PathBuf::from),
            vhost: parts
                .vhost
                .unwrap_or_else(|| env::DEFAULT_RABBITMQ_VHOST.to_owned()),
            user: parts.user.unwrap_or_else(default),
            password: file.map_or_else(|| Password::Value(password.into()), Password::File),
            exchange: reader.text(env::RABBITMQ_EXCHANGE, env::DEFAULT_RABBITMQ_EXCHANGE),
            publish: reader.choice(env::RABBITMQ_PUBLISH, Publish::Queue, &ways),
        }
    }
}

fn from_parts(reader: &mut Reader<'_>) -> Parts {
    let host = reader.text(env::RABBITMQ_HOST, env::DEFAULT_RABBITMQ_HOST);
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(&host)
        .to_owned();
    let port = reader.get(env::RABBITMQ_PORT);
    if port.is_some_and(|port| port.starts_with("tcp://")) {
        let text = "Kubernetes derives this value from a Service named asya-rabbitmq; set the variable to the AMQP port, or \
                    enableServiceLinks: false in the pod";
        reader.invalid(env::RABBITMQ_PORT, text);
    } else if port.is_some() {
        reader.number(env::RABBITMQ_PORT, 1..=u16::MAX, 1);
    }
    Parts {
        tls: reader.boolean(env::RABBITMQ_TLS, false),
        host,
        port: port.and_then(|port| port.trim().parse().ok()),
        user: reader.get(env::RABBITMQ_USERNAME).map(str::to_owned),
        password: reader.get(env::RABBITMQ_PASSWORD).map(str::to_owned),
        vhost: reader.get(env::RABBITMQ_VHOST).map(str::to_owned),
    }
}

/// Parses a URL. It may have been composed with the unescaped `password`, which is therefore matched literally.
fn from_url(url: &str, password: Option<&str>) -> Result<Parts, &'static str> {
    const HOW: &str =
        "not a RabbitMQ URL; write amqp://USER:PASSWORD@HOST:PORT/VHOST, each percent-encoded";
    let (scheme, rest) = url.trim().split_once("://").ok_or(HOW)?;
    let tls = match scheme {
        "amqp" => false,
        "amqps" => true,
        _ => return Err(HOW),
    };
    let Login {
        user,
        password,
        rest,
    } = login(rest, password);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, vhost) = rest
        .split_once('/')
        .map_or((rest, None), |(host, vhost)| (host, Some(vhost)));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().map_err(|_| HOW)?)),
        _ => (authority, None),
    };
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    if host.is_empty() {
        return Err(HOW);
    }
    let vhost = vhost
        .filter(|vhost| !vhost.is_empty())
        .map(|vhost| percent::decode(vhost).ok_or(HOW));
    Ok(Parts {
        tls,
        host: host.to_owned(),
        port,
        user,
        password,
        vhost: vhost.transpose()?,
    })
}

struct Login<'u> {
    user: Option<String>,
    password: Option<String>,
    /// The part of the URL after the login.
    rest: &'u str,
}

/// Splits the login from a URL without its scheme. `known` is the password, if it is known.
fn login<'u>(rest: &'u str, known: Option<&str>) -> Login<'u> {
    let decoded = |text: &str| percent::decode(text).unwrap_or_else(|| text.to_owned());
    if let Some(known) = known.filter(|known| !known.is_empty())
        && let Some((user, after)) = rest.split_once(&format!(":{known}@"))
        && !user.contains(['@', '/'])
    {
        return Login {
            user: Some(decoded(user)),
            password: Some(known.to_owned()),
            rest: after,
        };
    }
    let end = rest.find('/').unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else {
        return Login {
            user: None,
            password: None,
            rest,
        };
    };
    let (user, password) = match rest[..at].split_once(':') {
        Some((user, password)) => (user, Some(decoded(password))),
        None => (&rest[..at], None),
    };
    Login {
        user: Some(decoded(user)),
        password,
        rest: &rest[at + 1..],
    }
}
