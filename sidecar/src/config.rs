//! Settings, read from the environment once (SC-5 to SC-8).

mod address;
mod consumer_timeout;
mod rabbitmq;
mod reader;
mod secret;
mod sqs;
#[cfg(test)]
mod tests;
mod unknown;
mod url;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use asya_wire::queue::{Naming, Template};
use asya_wire::{env, percent, socket};
use tracing::Level;

pub use self::address::Listen;
pub use self::consumer_timeout::{DeliveryTime, FINAL_RETRY_PERIOD};
pub use self::rabbitmq::{Password, Publish, RabbitMqConfig};
use self::reader::Reader;
pub use self::secret::Secret;
pub use self::sqs::SqsConfig;
use crate::decide::{EndActor, Queues, Rules};

#[derive(Clone, Debug)]
pub struct Config {
    /// Routing and error rules.
    pub rules: Rules,
    pub transport: Transport,
    pub runtime: RuntimeConfig,
    pub lookahead: Lookahead,
    pub grace_period: Duration,
    /// Initial retry delay while a destination queue is missing.
    pub queue_backoff: Duration,
    /// The gateway for progress reports.
    pub gateway: Option<GatewayConfig>,
    /// Address of probes and metrics; `None` if disabled.
    pub listen: Option<Listen>,
    /// Prefix of the metrics' names.
    pub metrics_namespace: String,
    /// Minimum log level.
    pub log_level: Level,
    /// Trace export; `None` if disabled.
    pub traces: Option<Traces>,
    /// Warnings to log at startup.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Transport {
    RabbitMq(RabbitMqConfig),
    Sqs(SqsConfig),
}

#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Directory of the socket.
    pub directory: PathBuf,
    /// Request timeout.
    pub timeout: Duration,
    /// How long to wait for it at startup; `None` waits indefinitely.
    pub ready_timeout: Option<Duration>,
    /// Maximum open requests.
    pub concurrency: usize,
}

/// How many messages may be prefetched beyond those at the runtime (SC-44).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookahead {
    /// Adapts to the speed of the runtime.
    Auto,
    /// A fixed number.
    Fixed(usize),
    /// As many as fit into this total number of messages in flight.
    InFlight(usize),
}

/// The gateway for reports.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Base URL without a trailing slash.
    pub url: String,
    /// Whether end actors acknowledge a message only once the gateway has accepted its final report.
    pub required: bool,
}

#[derive(Clone, Debug)]
pub struct Traces {
    /// URL of the collector's traces endpoint.
    pub url: String,
    pub service: String,
    /// Sampling ratio of traces that begin here, from 0 to 1.
    pub ratio: f64,
    /// Whether the sampling decision of the parent is honored.
    pub parent_based: bool,
    pub headers: Vec<(String, Secret)>,
}

/// All configuration errors, formatted as one line (SC-5).
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Invalid(Vec<String>);

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// If any value is invalid: all errors, each with the accepted values.
    pub fn read(environment: &BTreeMap<String, String>) -> Result<Self, Invalid> {
        let mut reader = Reader::new(environment);
        let config = Self::from(&mut reader);
        unknown::report(&mut reader);
        let (errors, warnings) = reader.finish();
        if errors.is_empty() {
            Ok(Self { warnings, ..config })
        } else {
            Err(Invalid(errors))
        }
    }

    fn from(reader: &mut Reader<'_>) -> Self {
        let names = [("rabbitmq", Naming::RabbitMq), ("sqs", Naming::Sqs)];
        let naming = reader.choice(env::TRANSPORT, Naming::RabbitMq, &names);
        let runtime = RuntimeConfig {
            directory: reader.text(env::SOCKET_DIR, socket::DIRECTORY).into(),
            timeout: reader.positive_duration(env::RUNTIME_TIMEOUT, env::DEFAULT_RUNTIME_TIMEOUT),
            ready_timeout: Some(reader.duration(
                env::RUNTIME_READY_TIMEOUT,
                env::DEFAULT_RUNTIME_READY_TIMEOUT,
            ))
            .filter(|timeout| !timeout.is_zero()),
            concurrency: reader.number(env::CONCURRENCY, 1..=256, 1),
        };
        let rules = rules(reader, naming, runtime.timeout);
        let (transport, lookahead) = match naming {
            Naming::RabbitMq => {
                let in_flight = rabbitmq::prefetch(reader).map(Lookahead::InFlight);
                let lookahead = lookahead(reader);
                (
                    Transport::RabbitMq(RabbitMqConfig::read(reader)),
                    in_flight.unwrap_or(lookahead),
                )
            }
            Naming::Sqs => (
                Transport::Sqs(SqsConfig::read(reader, runtime.timeout)),
                lookahead(reader),
            ),
        };
        let config = Self {
            rules,
            transport,
            lookahead,
            grace_period: reader.positive_duration(env::GRACE_PERIOD, env::DEFAULT_GRACE_PERIOD),
            queue_backoff: reader
                .positive_duration(env::QUEUE_RETRY_BACKOFF, env::DEFAULT_QUEUE_RETRY_BACKOFF),
            gateway: gateway(reader),
            listen: address::read(reader),
            metrics_namespace: metrics_namespace(reader),
            log_level: log_level(reader),
            traces: traces(reader),
            warnings: Vec::new(),
            runtime,
        };
        if naming == Naming::RabbitMq {
            rabbitmq::warn_of_consumer_timeout(reader, config.delivery_time());
        }
        config
    }

    /// The settings that decide how long a delivery may stay unsettled.
    pub fn delivery_time(&self) -> DeliveryTime {
        DeliveryTime {
            call: self.runtime.timeout,
            is_end: self.rules.end.is_some(),
            report_is_required: self.gateway.as_ref().is_some_and(|it| it.required),
            slots: self.runtime.concurrency,
            lookahead: self.lookahead,
        }
    }
}

fn rules(reader: &mut Reader<'_>, naming: Naming, timeout: Duration) -> Rules {
    let actor = reader.text(env::ACTOR_NAME, "");
    let happy_end = reader.text(env::ACTOR_HAPPY_END, asya_wire::HAPPY_END);
    let error_end = reader.text(env::ACTOR_ERROR_END, asya_wire::ERROR_END);
    let queues = queues(reader, naming);
    if actor.is_empty() {
        reader.invalid(env::ACTOR_NAME, "not set; write the actor's name in routes");
    }
    for (variable, name) in [
        (env::ACTOR_NAME, &actor),
        (env::ACTOR_HAPPY_END, &happy_end),
        (env::ACTOR_ERROR_END, &error_end),
    ] {
        if !name.is_empty() && !naming.accepts_fifo(&queues.of(name)) {
            let allowed = naming.allowed();
            reader.invalid(
                variable,
                &format!(
                    "not valid in a queue name, because of its length or characters; use {allowed}"
                ),
            );
        }
    }
    let is_end = reader.boolean(env::IS_END_ACTOR, false);
    let end = is_end.then(|| match &actor {
        name if *name == happy_end => EndActor::Happy,
        name if *name == error_end => EndActor::Error,
        _ => EndActor::Other,
    });
    Rules {
        end,
        queues,
        timeout,
        crash_retries: reader.number(env::CRASH_RETRIES, 0..=10, env::DEFAULT_CRASH_RETRIES),
        max_message_size: reader.size(
            env::MAX_MESSAGE_SIZE,
            1 << 10..=512 << 20,
            env::DEFAULT_MAX_MESSAGE_SIZE,
        ),
        actor,
        happy_end,
        error_end,
    }
}

fn queues(reader: &mut Reader<'_>, naming: Naming) -> Queues {
    let namespace = reader.text(env::NAMESPACE, "");
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if namespace.len() > 63
        || !namespace.chars().all(legal)
        || namespace.starts_with('-')
        || namespace.ends_with('-')
    {
        reader.invalid(
            env::NAMESPACE,
            "not a namespace; write a DNS label such as shop",
        );
    }
    let template = match reader.get(env::QUEUE_TEMPLATE) {
        None => Template::with_namespace(!namespace.is_empty()),
        Some(text) => Template::parse(text, naming).unwrap_or_else(|error| {
            reader.invalid(env::QUEUE_TEMPLATE, &error.to_string());
            Template::default()
        }),
    };
    if template.needs_namespace() && namespace.is_empty() {
        reader.invalid(
            env::QUEUE_TEMPLATE,
            "contains {namespace}, but ASYA_NAMESPACE is not set; set it",
        );
    }
    Queues {
        template,
        namespace,
        naming,
    }
}

fn lookahead(reader: &mut Reader<'_>) -> Lookahead {
    match reader.get(env::LOOKAHEAD) {
        None => Lookahead::Auto,
        Some(text) if text.eq_ignore_ascii_case(env::AUTO) => Lookahead::Auto,
        Some(_) => Lookahead::Fixed(reader.number(env::LOOKAHEAD, 0..=64, 0)),
    }
}

fn gateway(reader: &mut Reader<'_>) -> Option<GatewayConfig> {
    let kinds = [("best-effort", false), ("required", true)];
    let required = reader.choice(env::GATEWAY_FINAL, false, &kinds);
    let url = url::http(reader, env::GATEWAY_URL)?;
    Some(GatewayConfig { url, required })
}

fn metrics_namespace(reader: &mut Reader<'_>) -> String {
    let name = reader.text(env::METRICS_NAMESPACE, env::DEFAULT_METRICS_NAMESPACE);
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.chars().all(legal) || name.starts_with(|c: char| c.is_ascii_digit()) {
        reader.invalid(
            env::METRICS_NAMESPACE,
            "not a metric prefix; use letters, digits and _, such as asya_actor",
        );
    }
    if let Some(custom) = reader.get(env::CUSTOM_METRICS) {
        if serde_json::from_str::<serde::de::IgnoredAny>(custom).is_err() {
            reader.invalid(
                env::CUSTOM_METRICS,
                "not JSON; remove it, since it has no effect",
            );
        } else {
            reader.warn(
                env::CUSTOM_METRICS,
                "has no effect: custom metrics are not supported",
            );
        }
    }
    name
}

fn log_level(reader: &mut Reader<'_>) -> Level {
    let levels = [
        ("debug", Level::DEBUG),
        ("info", Level::INFO),
        ("warn", Level::WARN),
        ("warning", Level::WARN),
        ("error", Level::ERROR),
    ];
    reader.choice(env::LOG_LEVEL, Level::INFO, &levels)
}

fn traces(reader: &mut Reader<'_>) -> Option<Traces> {
    const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let url = url::http(reader, TRACES_ENDPOINT)
        .or_else(|| url::http(reader, ENDPOINT).map(|base| format!("{base}/v1/traces")))?;
    let actor = reader.text(env::ACTOR_NAME, "asya-sidecar");
    let sampler = reader.text("OTEL_TRACES_SAMPLER", "parentbased_always_on");
    let ratio = reader.text("OTEL_TRACES_SAMPLER_ARG", "1").parse().ok();
    let ratio = ratio
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .unwrap_or_else(|| {
            reader.invalid(
                "OTEL_TRACES_SAMPLER_ARG",
                "not a ratio; write a number from 0 to 1",
            );
            1.0
        });
    let ratio = match sampler.trim_start_matches("parentbased_") {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => ratio,
        _ => {
            reader.invalid(
                "OTEL_TRACES_SAMPLER",
                "not a supported sampler; write parentbased_always_on",
            );
            1.0
        }
    };
    let headers = reader.text("OTEL_EXPORTER_OTLP_HEADERS", "");
    let headers = headers.split(',').filter_map(|pair| pair.split_once('='));
    // The values are percent-encoded, as OpenTelemetry specifies.
    let decoded = |value: &str| percent::decode(value).unwrap_or_else(|| value.to_owned());
    let headers =
        headers.map(|(name, value)| (name.trim().to_owned(), Secret::from(decoded(value.trim()))));
    Some(Traces {
        url,
        service: reader.text("OTEL_SERVICE_NAME", &actor),
        ratio,
        parent_based: sampler.starts_with("parentbased_"),
        headers: headers.collect(),
    })
}
