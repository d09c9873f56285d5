//! Many sidecars after a restart of the broker (SC-105).

use std::time::{Duration, Instant};

use asya_tests::Result;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::process::Process;
use asya_tests::rabbitmq::RabbitMq;

use crate::amqp::{Connection, Login};
use crate::idle::connections;
use crate::messages::{FROM, queue};
use crate::mover::{Kind, Mover, Settings};
use crate::throughput::declare;

const PATIENCE: Duration = Duration::from_mins(4);

/// Restarts the broker under a crowd of sidecars, and reports their logins. Also returns the new server.
pub async fn restart(
    broker: &RabbitMq,
    server: Process,
    settings: &Settings,
    count: usize,
) -> Result<(String, Process)> {
    declare(broker, "classic").await?;
    let quiet = settings.clone().with(&[("ASYA_METRICS_ENABLED", "false")]);
    let mut crowd: Vec<Mover> = Vec::with_capacity(count);
    for _ in 0..count {
        crowd.push(quiet.start(Kind::Sidecar).await?);
    }
    consuming(broker, count).await?;
    server.stop(PATIENCE).await?;
    let server = Process::start(server.spec().clone()).await?;
    let state = broker.state();
    let listens = eventually("the broker listens", PATIENCE, async || {
        tokio::net::TcpStream::connect((state.host.as_str(), state.port)).await?;
        Ok(())
    });
    server.alive_while(listens).await?;
    let listening = Instant::now();
    server.alive_while(consuming(broker, count)).await?;
    let took = listening.elapsed();
    // Not from the broker's log, which drops entries above 500 a second.
    let logins = eventually("all connections are listed", PATIENCE, async || {
        let times = connections(broker).await?;
        let times = times.iter().filter_map(|it| it["connected_at"].as_u64());
        let times: Vec<u64> = times.collect();
        check(times.len() >= 2 * count, format!("{} are", times.len())).map(|()| times)
    });
    let logins = server.alive_while(logins).await?;
    let most = most_in_a_second(&logins);
    let report = format!(
        "{count} sidecars after a restart of RabbitMQ: all consume {:.1} s after it listens (goal 60); \
         {} connections, at most {most} of them opened in a second (goal 400)\n",
        took.as_secs_f64(),
        logins.len(),
    );
    Ok((report, server))
}

/// The highest number of these times, in milliseconds, within one second.
fn most_in_a_second(times: &[u64]) -> usize {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let within = sorted.iter().enumerate().map(|(first, start)| {
        let end = sorted.partition_point(|time| *time < start + 1_000);
        end - first
    });
    within.max().unwrap_or_default()
}

/// Waits until the queue has this many consumers. Asks the queue itself, since the management API's figures are up to 5
/// s old.
async fn consuming(broker: &RabbitMq, count: usize) -> Result<()> {
    let login = Login::to(broker);
    eventually(format!("{count} sidecars consume"), PATIENCE, async || {
        let login = login.clone();
        let asking =
            tokio::task::spawn_blocking(move || Connection::open(&login)?.consumers(&queue(FROM)));
        let consumers = asking.await.map_err(NotYet::new)?.map_err(NotYet::new)?;
        check(consumers >= count, format!("{consumers} do"))
    })
    .await
}
