//! Many sidecars after a restart of the broker (SC-105).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::process::Process;
use asya_tests::rabbitmq::RabbitMq;
use asya_tests::{Error, Result};

use crate::amqp::{Connection, Login};
use crate::messages::{FROM, queue};
use crate::mover::{Kind, Mover, Settings};
use crate::throughput::declare;

const PATIENCE: Duration = Duration::from_mins(4);
/// The words of the broker's log for a login that succeeded.
const LOGIN: &str = "authenticated and granted access";

/// Restarts the broker under a crowd of sidecars, and reports their logins. Returns the new server, too.
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
    let log = server.log().map(Path::to_owned);
    let log = log.ok_or_else(|| Error::other("the broker has no log"))?;
    let before = std::fs::read_to_string(&log).map_err(Error::other)?.len();
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
    // The broker writes its log with a delay.
    let logins = eventually("all logins are in the log", PATIENCE, async || {
        let text = std::fs::read_to_string(&log)?;
        let (all, most) = logins_in(text.get(before..).unwrap_or_default());
        check(all >= 2 * count, format!("{all} are")).map(|()| (all, most))
    });
    let (logins, most) = server.alive_while(logins).await?;
    let report = format!(
        "{count} sidecars after a restart of RabbitMQ: all consume {:.1} s after it listens (goal 60); \
         {logins} logins of {} connections, at most {most} in a second (goal 400)\n",
        took.as_secs_f64(),
        2 * count,
    );
    Ok((report, server))
}

/// How many logins succeeded, and the most of a second.
fn logins_in(log: &str) -> (usize, usize) {
    let mut seconds: BTreeMap<&str, usize> = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains(LOGIN)) {
        let second = line.split_once('.').map_or("", |(second, _)| second);
        *seconds.entry(second).or_default() += 1;
    }
    let most = seconds.values().max().copied().unwrap_or_default();
    (seconds.values().sum(), most)
}

/// Waits until so many consumers are at the queue. Asks the queue itself, for the management API's figures are up to 5 s
/// old.
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
