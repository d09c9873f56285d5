//! What a sidecar costs without messages (SC-104).

use std::time::Duration;

use asya_tests::rabbitmq::RabbitMq;
use asya_tests::{Error, Result};
use reqwest::Method;
use serde_json::Value;

use crate::mover::{Kind, Settings};
use crate::throughput::declare;

/// Long enough for the start to be over and two heartbeats to be seen.
const SETTLE: Duration = Duration::from_secs(15);
const SPAN: Duration = Duration::from_mins(1);
const HEARTBEAT: u64 = 8;

/// Processor time, threads, memory and traffic of an idle sidecar.
pub async fn on_rabbitmq(broker: &RabbitMq, settings: &Settings) -> Result<String> {
    declare(broker, "classic").await?;
    let mover = settings.start(Kind::Sidecar).await?;
    let watching = async {
        tokio::time::sleep(SETTLE).await;
        let (cpu, bytes) = (mover.exact_cpu()?, traffic(broker).await?);
        tokio::time::sleep(SPAN).await;
        Ok((mover.exact_cpu()? - cpu, traffic(broker).await? - bytes))
    };
    let (cpu, bytes) = mover.while_it_runs(watching).await?;
    Ok(format!(
        "idle on RabbitMQ: {:.2} ms of CPU per second (goal 1), {bytes} bytes in {} s on both connections together \
         (a heartbeat has {HEARTBEAT}), {} threads (goal 3), {:.1} MiB\n",
        Duration::from_nanos(cpu).as_secs_f64() * 1e3 / SPAN.as_secs_f64(),
        SPAN.as_secs(),
        mover.threads()?,
        mover.memory()?,
    ))
}

/// The same without traffic, which the server does not report.
pub async fn on_sqs(settings: &Settings) -> Result<String> {
    let mover = settings.start(Kind::Sidecar).await?;
    let watching = async {
        tokio::time::sleep(SETTLE).await;
        let cpu = mover.exact_cpu()?;
        tokio::time::sleep(SPAN).await;
        Ok(mover.exact_cpu()? - cpu)
    };
    let cpu = mover.while_it_runs(watching).await?;
    Ok(format!(
        "idle on SQS: {:.2} ms of CPU per second (goal 1), {} threads (goal 3), {:.1} MiB\n",
        Duration::from_nanos(cpu).as_secs_f64() * 1e3 / SPAN.as_secs_f64(),
        mover.threads()?,
        mover.memory()?,
    ))
}

/// Bytes received and sent on all connections of sidecars.
async fn traffic(broker: &RabbitMq) -> Result<u64> {
    let octets = |connection: &Value| {
        Some(connection["recv_oct"].as_u64()? + connection["send_oct"].as_u64()?)
    };
    let all = connections(broker).await?;
    let sum = all.iter().map(octets).sum::<Option<u64>>();
    sum.ok_or_else(|| Error::other("the broker does not tell the traffic"))
}

/// All connections of sidecars, from the management API.
pub async fn connections(broker: &RabbitMq) -> Result<Vec<Value>> {
    let answer = broker
        .request(Method::GET, &["connections"])?
        .send()
        .await?;
    let mut all: Vec<Value> = answer.error_for_status()?.json().await?;
    all.retain(|connection| {
        let name = connection["user_provided_name"].as_str();
        name.is_some_and(|name| name.starts_with("asya-sidecar "))
    });
    Ok(all)
}
