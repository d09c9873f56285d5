//! The installation of the operator: the flags of its programs.

use asya_controller::Args;
use serde_json::{Map, Value, json};

use crate::broker::sqs::{DLQ_SUFFIX, TRANSPORTS, TWIN, location};
use crate::process::Process;

/// Name of the release, the prefix of its objects' names.
pub const RELEASE: &str = "asya";
/// The operator's namespace.
pub const OPERATOR_NAMESPACE: &str = "asya-system";
/// Hosts of the `RabbitMQ` brokers, which are also the transport names.
pub const BROKERS: [&str; 2] = ["east", "west"];
/// Another transport for the first broker, with another host. No actor uses it.
const TWIN_BROKER: &str = "east-twin";
const SERVICE: &str = "asya-webhook";

fn transports() -> Value {
    let hosts = BROKERS.into_iter().chain([TWIN_BROKER]);
    let rabbitmq = hosts.map(|host| {
        let config = json!({"host": host, "queues": {"autoCreate": true}});
        (
            host.to_owned(),
            json!({"type": "rabbitmq", "enabled": true, "config": config}),
        )
    });
    let sqs = TRANSPORTS
        .iter()
        .chain([&TWIN])
        .map(|name| ((*name).to_owned(), sqs(name)));
    json!({"transports": rabbitmq.chain(sqs).collect::<Map<_, _>>()})
}

/// The broker at a RabbitMQ host.
#[must_use]
pub fn broker_at(host: &str) -> &str {
    if host == TWIN_BROKER {
        BROKERS[0]
    } else {
        host
    }
}

/// With an endpoint and an access key, the environment of the process does not matter.
fn sqs(name: &str) -> Value {
    let (region, secret) = location(name);
    let key = |key: &str| json!({"name": secret, "key": key});
    let mut config = json!({
        "region": region,
        "endpoint": format!("https://sqs.{region}.amazonaws.com"),
        "credentials": {"accessKeyIdSecretRef": key("id"), "secretAccessKeySecretRef": key("secret")},
        "queues": {"autoCreate": true},
    });
    if name == TRANSPORTS[1] {
        let dlq = json!({"enabled": true, "name": format!("{{queue}}{DLQ_SUFFIX}")});
        config["queues"]["dlq"] = dlq;
    }
    json!({"type": "sqs", "enabled": true, "config": config})
}

/// The flags of a controller replica.
///
/// # Errors
/// If the program does not accept them.
pub fn controller_args(process: &Process, elects: bool) -> Result<Args, clap::Error> {
    let mut args: Args = clap::Parser::try_parse_from([
        "asya-controller".to_owned(),
        format!("--namespace={OPERATOR_NAMESPACE}"),
        format!("--pod-name={}", process.name),
        format!("--leader-elect={elects}"),
        format!("--transport-config={}", transports()),
        format!("--webhook-service={SERVICE}"),
        format!("--webhook-rules={RELEASE}"),
        "--manage-crds=false".to_owned(),
        // Short enough for every run to include some.
        "--max-reconcile-interval=1m".to_owned(),
        "--queue-health-check-interval=20s".to_owned(),
    ])?;
    // The configuration is constant during a run, so no workload may wait for other rollouts (SAFE-36): with no slots
    // at all, it would wait forever.
    args.max_workload_rollouts = 0;
    Ok(args)
}

/// The flags of a webhook replica.
///
/// # Errors
/// If the program does not accept them.
pub fn webhook_args(pod: &str) -> Result<asya_webhook::Args, clap::Error> {
    clap::Parser::try_parse_from([
        "asya-webhook".to_owned(),
        format!("--namespace={OPERATOR_NAMESPACE}"),
        format!("--pod-name={pod}"),
        format!("--transport-config={}", transports()),
        format!("--tls-names={SERVICE}.{OPERATOR_NAMESPACE}.svc"),
        format!("--tls-secret={SERVICE}-tls"),
        format!("--facts-config-map={RELEASE}-webhook-facts"),
    ])
}
