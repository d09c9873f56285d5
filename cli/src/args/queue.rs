//! Flags of the commands that reach a broker.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::options::{OutputArgs, WatchArgs, duration};

/// How to reach the broker, where the operator's configuration and its Secret cannot be read, or are not to be used.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Broker")]
pub struct BrokerArgs {
    /// RabbitMQ: [amqp[s]://]HOST[:PORT]; SQS: URL. Default: the transport's, through a port-forward if it is a
    /// Service.
    #[arg(long, value_parser = address)]
    pub address: Option<Address>,

    /// User, or access key id (default: from the transport's Secret).
    #[arg(long)]
    pub user: Option<String>,

    /// File with the password or secret access key; the variable `ASYA_BROKER_PASSWORD` can hold it, too.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Virtual host of RabbitMQ (default: the transport's).
    #[arg(long)]
    pub vhost: Option<String>,

    /// File with the CAs of RabbitMQ's certificate (default: from the transport's Secret, otherwise the system's).
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// The address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Amqp {
        /// `None`: as the transport is configured.
        tls: Option<bool>,
        host: String,
        port: Option<u16>,
    },
    Http(String),
}

fn address(text: &str) -> Result<Address, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let tls = match scheme {
        "http" | "https" => return Ok(Address::Http(text.to_owned())),
        "amqp" => Some(false),
        "amqps" => Some(true),
        "" => None,
        other => {
            return Err(format!(
                "unknown scheme {other}; use amqp, amqps, http or https"
            ));
        }
    };
    let rest = rest.trim_end_matches('/');
    if rest.contains(['@', '/']) {
        return Err("give only host and port; use --user and --vhost".to_owned());
    }
    let (host, port) = match rest.rsplit_once(':') {
        // The colon is part of an IPv6 address.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (rest, None),
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let port = port.map(str::parse).transpose();
    let port = port.map_err(|_| "the port must be a number from 1 to 65535".to_owned())?;
    let host = host.trim_matches(['[', ']']).to_owned();
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    Ok(Address::Amqp { tls, host, port })
}

/// Parses a number of messages.
fn count(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|it| *it > 0);
    parsed.ok_or_else(|| "use a number of messages from 1".to_owned())
}

#[derive(Args, Debug)]
pub struct QueueArgs {
    /// Name of an actor.
    pub name: String,

    /// Show the next N messages. They are put back; the broker counts the peek as a delivery.
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "watch")]
    pub peek: Option<usize>,

    /// Show payloads, too.
    #[arg(long, requires = "peek")]
    pub payload: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub watch: WatchArgs,

    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// What is done with dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DlqAction {
    /// Show them. They are put back; the broker counts the peek as a delivery.
    List,
    /// Move them back to the actor's queue. Each is removed only after the broker has confirmed its copy.
    Redrive,
    /// Delete them.
    Purge,
}

#[derive(Args, Debug)]
#[command(after_help = "For example: kubectl asya dlq embed list")]
pub struct DlqArgs {
    /// Name of an actor.
    pub name: String,

    /// What to do with its dead letters.
    #[arg(value_enum, value_name = "list|redrive|purge")]
    pub action: DlqAction,

    /// At most this many messages (default: 20 for list, otherwise all).
    #[arg(long, value_name = "N", value_parser = count)]
    pub max: Option<usize>,

    /// Show payloads, too.
    #[arg(long)]
    pub payload: bool,

    /// Purge without asking.
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub broker: BrokerArgs,
}

#[derive(Args, Debug)]
pub struct SendArgs {
    /// Name of an actor.
    pub name: String,

    /// Payload as JSON, or - for standard input.
    #[arg(value_name = "PAYLOAD")]
    pub text: String,

    /// Id of the message (default: random).
    #[arg(long)]
    pub id: Option<String>,

    /// Follow the message to happy-end, error-end or the dead letters, for a minute or, for example, --wait=5m.
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1m",
        value_parser = duration
    )]
    pub wait: Option<Duration>,

    /// Show the payload that arrives.
    #[arg(long, requires = "wait")]
    pub payload: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub broker: BrokerArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_scheme_a_host_and_a_port() {
        let amqp = |tls, host: &str, port| Address::Amqp {
            tls,
            host: host.to_owned(),
            port,
        };
        for (text, expected) in [
            ("mq", amqp(None, "mq", None)),
            ("mq:5673", amqp(None, "mq", Some(5673))),
            ("amqp://mq:1/", amqp(Some(false), "mq", Some(1))),
            ("amqps://mq.mq.svc", amqp(Some(true), "mq.mq.svc", None)),
            ("[::1]:5672", amqp(None, "::1", Some(5672))),
            ("::1", amqp(None, "::1", None)),
            (
                "http://sqs:4566",
                Address::Http("http://sqs:4566".to_owned()),
            ),
        ] {
            assert_eq!(address(text), Ok(expected), "{text}");
        }
        for text in [
            "ftp://mq",
            "amqp://user:pw@mq",
            "mq:0x",
            "mq/vhost",
            ":5672",
        ] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
