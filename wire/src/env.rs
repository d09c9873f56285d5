//! Environment variables of the sidecar, with their defaults. For the format of durations see
//! [`crate::duration`].

use std::time::Duration;

/// `rabbitmq` (the default) or `sqs`.
pub const TRANSPORT: &str = "ASYA_TRANSPORT";
/// Name of this actor in routes; required.
pub const ACTOR_NAME: &str = "ASYA_ACTOR_NAME";
/// Route name of the actor that receives completed messages; by default `happy-end`.
pub const ACTOR_HAPPY_END: &str = "ASYA_ACTOR_HAPPY_END";
/// Route name of the actor that receives failed messages; by default `error-end`.
pub const ACTOR_ERROR_END: &str = "ASYA_ACTOR_ERROR_END";
/// Whether messages end here: replies are not routed. By default `false`.
pub const IS_END_ACTOR: &str = "ASYA_IS_END_ACTOR";
/// Namespace in the names of queues; by default none.
pub const NAMESPACE: &str = "ASYA_NAMESPACE";
/// Template of queue names, with the placeholders `{actor}` and `{namespace}`; by default `asya-{actor}`, with
/// [`NAMESPACE`] `asya-{namespace}-{actor}`.
pub const QUEUE_TEMPLATE: &str = "ASYA_QUEUE_TEMPLATE";

/// Directory of the runtime's socket; by default `/var/run/asya`.
pub const SOCKET_DIR: &str = "ASYA_SOCKET_DIR";
/// File name of the socket in that directory. Read by the runtime only.
pub const SOCKET_NAME: &str = "ASYA_SOCKET_NAME";
/// How long one request to the runtime may take.
pub const RUNTIME_TIMEOUT: &str = "ASYA_RUNTIME_TIMEOUT";
/// How long to wait for the runtime at startup; 0 means no limit.
pub const RUNTIME_READY_TIMEOUT: &str = "ASYA_RUNTIME_READY_TIMEOUT";
/// Maximum number of concurrent requests to the runtime, from 1 (the default) to 256.
pub const CONCURRENCY: &str = "ASYA_CONCURRENCY";
/// Maximum number of messages prefetched by the sidecar: a number from 0 to 64, or [`AUTO`] (the default), which adapts
/// to the speed of the runtime.
pub const LOOKAHEAD: &str = "ASYA_LOOKAHEAD";
/// How often a message is retried after the runtime crashed while processing it.
pub const CRASH_RETRIES: &str = "ASYA_CRASH_RETRIES";
/// How long a shutdown may take.
pub const GRACE_PERIOD: &str = "ASYA_GRACE_PERIOD";
/// Maximum size of a message in bytes, with an optional suffix Ki or Mi.
pub const MAX_MESSAGE_SIZE: &str = "ASYA_MAX_MESSAGE_SIZE";

/// `amqp://` or `amqps://` URL; takes precedence over the separate settings.
pub const RABBITMQ_URL: &str = "ASYA_RABBITMQ_URL";
/// Host name or address.
pub const RABBITMQ_HOST: &str = "ASYA_RABBITMQ_HOST";
/// AMQP port.
pub const RABBITMQ_PORT: &str = "ASYA_RABBITMQ_PORT";
/// User name.
pub const RABBITMQ_USERNAME: &str = "ASYA_RABBITMQ_USERNAME";
/// The user's password.
pub const RABBITMQ_PASSWORD: &str = "ASYA_RABBITMQ_PASSWORD";
/// File with the user's password, read at every connect.
pub const RABBITMQ_PASSWORD_FILE: &str = "ASYA_RABBITMQ_PASSWORD_FILE";
/// Virtual host.
pub const RABBITMQ_VHOST: &str = "ASYA_RABBITMQ_VHOST";
/// Whether to connect over TLS; by default `false`.
pub const RABBITMQ_TLS: &str = "ASYA_RABBITMQ_TLS";
/// File with the CA bundle for the broker's certificate (PEM), read at every connect.
pub const RABBITMQ_CA_FILE: &str = "ASYA_RABBITMQ_CA_FILE";
/// The topic exchange that queues are bound to.
pub const RABBITMQ_EXCHANGE: &str = "ASYA_RABBITMQ_EXCHANGE";
/// `queue` (the default): publish to the default exchange, by queue name; `exchange`: to [`RABBITMQ_EXCHANGE`].
pub const RABBITMQ_PUBLISH: &str = "ASYA_RABBITMQ_PUBLISH";
/// Messages in flight; replaces [`LOOKAHEAD`].
pub const RABBITMQ_PREFETCH: &str = "ASYA_RABBITMQ_PREFETCH";

/// Region of the queues.
pub const AWS_REGION: &str = "ASYA_AWS_REGION";
/// URL of an SQS endpoint; by default that of AWS.
pub const SQS_ENDPOINT: &str = "ASYA_SQS_ENDPOINT";
/// Seconds for which a received message stays invisible; 0 (the default): derived from [`RUNTIME_TIMEOUT`].
pub const SQS_VISIBILITY_TIMEOUT: &str = "ASYA_SQS_VISIBILITY_TIMEOUT";
/// Seconds that a poll waits for messages.
pub const SQS_WAIT_TIME_SECONDS: &str = "ASYA_SQS_WAIT_TIME_SECONDS";

/// URL of the gateway that progress is reported to; empty: no reports.
pub const GATEWAY_URL: &str = "ASYA_GATEWAY_URL";
/// `best-effort` (the default), or `required`: end actors acknowledge a message only after the gateway has accepted its
/// final report.
pub const GATEWAY_FINAL: &str = "ASYA_GATEWAY_FINAL";

/// Whether probes and metrics are served; by default `true`.
pub const METRICS_ENABLED: &str = "ASYA_METRICS_ENABLED";
/// Listen address of probes and metrics.
pub const METRICS_ADDR: &str = "ASYA_METRICS_ADDR";
/// Prefix of the metrics' names.
pub const METRICS_NAMESPACE: &str = "ASYA_METRICS_NAMESPACE";
/// Log level: `debug`, `info` (the default), `warn` or `error`.
pub const LOG_LEVEL: &str = "ASYA_LOG_LEVEL";
/// JSON; ignored.
pub const CUSTOM_METRICS: &str = "ASYA_CUSTOM_METRICS";

/// Initial backoff while a queue does not exist.
pub const QUEUE_RETRY_BACKOFF: &str = "ASYA_QUEUE_RETRY_BACKOFF";
/// Ignored; read only by former sidecars.
pub const QUEUE_RETRY_MAX_ATTEMPTS: &str = "ASYA_QUEUE_RETRY_MAX_ATTEMPTS";
/// Ignored; read only by former sidecars.
pub const QUEUE_AUTO_CREATE: &str = "ASYA_QUEUE_AUTO_CREATE";

/// Variables of the third generation of the former sidecar, which this sidecar would silently ignore (SC-2).
pub const OF_LATER_GENERATIONS: [&str; 2] = ["ASYA_ACTOR_SINK", "ASYA_ACTOR_SUMP"];
/// Prefix of further such variables.
pub const PREFIX_OF_LATER_GENERATIONS: &str = "ASYA_RESILIENCY_";

/// The value of [`LOOKAHEAD`] that adapts to the speed of the runtime.
pub const AUTO: &str = "auto";
/// Default of [`RUNTIME_TIMEOUT`].
pub const DEFAULT_RUNTIME_TIMEOUT: Duration = Duration::from_mins(5);
/// Default of [`RUNTIME_READY_TIMEOUT`].
pub const DEFAULT_RUNTIME_READY_TIMEOUT: Duration = Duration::from_mins(5);
/// Default of [`GRACE_PERIOD`].
pub const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);
/// Default of [`QUEUE_RETRY_BACKOFF`].
pub const DEFAULT_QUEUE_RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// Default of [`MAX_MESSAGE_SIZE`], in bytes.
pub const DEFAULT_MAX_MESSAGE_SIZE: usize = 64 << 20;
/// Default of [`CRASH_RETRIES`].
pub const DEFAULT_CRASH_RETRIES: u32 = 1;
/// Default of [`RABBITMQ_USERNAME`] and [`RABBITMQ_PASSWORD`].
pub const DEFAULT_RABBITMQ_USER: &str = "guest";
/// Default of [`RABBITMQ_HOST`].
pub const DEFAULT_RABBITMQ_HOST: &str = "localhost";
/// Default of [`RABBITMQ_PORT`] without TLS.
pub const DEFAULT_AMQP_PORT: u16 = 5672;
/// Default of [`RABBITMQ_PORT`] with TLS.
pub const DEFAULT_AMQPS_PORT: u16 = 5671;
/// Default of [`RABBITMQ_VHOST`].
pub const DEFAULT_RABBITMQ_VHOST: &str = "/";
/// Default of [`RABBITMQ_EXCHANGE`].
pub const DEFAULT_RABBITMQ_EXCHANGE: &str = "asya";
/// Default of [`AWS_REGION`].
pub const DEFAULT_AWS_REGION: &str = "us-east-1";
/// Default of [`SQS_WAIT_TIME_SECONDS`].
pub const DEFAULT_SQS_WAIT_TIME_SECONDS: u32 = 20;
/// The maximum visibility timeout of SQS, in seconds.
pub const MAX_SQS_VISIBILITY_TIMEOUT: u32 = 43_200;
/// Default of [`METRICS_ADDR`].
pub const DEFAULT_METRICS_ADDR: &str = ":8080";
/// Default of [`METRICS_NAMESPACE`].
pub const DEFAULT_METRICS_NAMESPACE: &str = "asya_actor";

/// All `ASYA_` variables that the sidecar reads.
pub const ALL: [&str; 41] = [
    TRANSPORT,
    ACTOR_NAME,
    ACTOR_HAPPY_END,
    ACTOR_ERROR_END,
    IS_END_ACTOR,
    NAMESPACE,
    QUEUE_TEMPLATE,
    SOCKET_DIR,
    RUNTIME_TIMEOUT,
    RUNTIME_READY_TIMEOUT,
    CONCURRENCY,
    LOOKAHEAD,
    CRASH_RETRIES,
    GRACE_PERIOD,
    MAX_MESSAGE_SIZE,
    RABBITMQ_URL,
    RABBITMQ_HOST,
    RABBITMQ_PORT,
    RABBITMQ_USERNAME,
    RABBITMQ_PASSWORD,
    RABBITMQ_PASSWORD_FILE,
    RABBITMQ_VHOST,
    RABBITMQ_TLS,
    RABBITMQ_CA_FILE,
    RABBITMQ_EXCHANGE,
    RABBITMQ_PUBLISH,
    RABBITMQ_PREFETCH,
    AWS_REGION,
    SQS_ENDPOINT,
    SQS_VISIBILITY_TIMEOUT,
    SQS_WAIT_TIME_SECONDS,
    GATEWAY_URL,
    GATEWAY_FINAL,
    METRICS_ENABLED,
    METRICS_ADDR,
    METRICS_NAMESPACE,
    LOG_LEVEL,
    CUSTOM_METRICS,
    QUEUE_RETRY_BACKOFF,
    QUEUE_RETRY_MAX_ATTEMPTS,
    QUEUE_AUTO_CREATE,
];
