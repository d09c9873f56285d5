//! How the operator is installed: the flags of its programs.

use asya_controller::Args;
use serde_json::{Map, Value, json};

use crate::process::Process;
use crate::world::{BROKERS, HOME};

/// Name of the release, with which the names of its objects begin.
pub const RELEASE: &str = "asya";
const SERVICE: &str = "asya-webhook";

fn transports() -> Value {
    let transports = BROKERS.map(|host| {
        let config = json!({"host": host, "queues": {"autoCreate": true}});
        (
            host.to_owned(),
            json!({"type": "rabbitmq", "enabled": true, "config": config}),
        )
    });
    json!({"transports": Map::from_iter(transports)})
}

/// The flags of a replica of the controller.
///
/// # Errors
/// If the program does not accept them.
pub fn controller_args(process: &Process, elects: bool) -> Result<Args, clap::Error> {
    clap::Parser::try_parse_from([
        "asya-controller".to_owned(),
        format!("--namespace={HOME}"),
        format!("--pod-name={}", process.name),
        format!("--leader-elect={elects}"),
        format!("--transport-config={}", transports()),
        format!("--webhook-service={SERVICE}"),
        format!("--webhook-rules={RELEASE}"),
        "--manage-crds=false".to_owned(),
        // Often enough for every run to see some.
        "--max-reconcile-interval=1m".to_owned(),
        "--queue-health-check-interval=20s".to_owned(),
    ])
}

/// The flags of a replica of the webhook.
///
/// # Errors
/// If the program does not accept them.
pub fn webhook_args(pod: &str) -> Result<asya_webhook::Args, clap::Error> {
    clap::Parser::try_parse_from([
        "asya-webhook".to_owned(),
        format!("--namespace={HOME}"),
        format!("--pod-name={pod}"),
        format!("--transport-config={}", transports()),
        format!("--tls-names={SERVICE}.{HOME}.svc"),
        format!("--tls-secret={SERVICE}-tls"),
        format!("--facts-config-map={RELEASE}-webhook-facts"),
    ])
}
