//! How long a start takes (SC-105).

use std::time::{Duration, Instant};

use asya_tests::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::rabbitmq::RabbitMq;

use crate::amqp::Login;
use crate::figures::{median, milliseconds, percentile, table};
use crate::mover::{KINDS, Kind, Settings};
use crate::stub::Stub;
use crate::throughput::declare;
use crate::traffic::fill;

const STARTS: usize = 15;
const DISPATCHED: Duration = Duration::from_secs(10);
/// Interval at which the probes are tried.
const PAUSE: Duration = Duration::from_micros(500);

/// Starts both movers in turn, with runtime, broker and a message ready.
pub async fn compare(broker: &RabbitMq, settings: &Settings, stub: &Stub) -> Result<String> {
    let (mut probes, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        for kind in KINDS {
            declare(broker, "classic").await?;
            fill(&Login::to(broker), 1).await?;
            stub.take_first_call();
            let started = Instant::now();
            let mover = settings.start(kind).await?;
            if kind == Kind::Sidecar {
                while !mover.listens() && started.elapsed() < DISPATCHED {
                    tokio::time::sleep(PAUSE).await;
                }
                probes.push(milliseconds(started.elapsed()));
            }
            let called = eventually("the message is dispatched", DISPATCHED, async || {
                let call = stub.take_first_call();
                check(call.is_some(), "not yet").map(|()| call)
            });
            if let Some(call) = mover.while_it_runs(called).await? {
                calls.push((kind, milliseconds(call - started)));
            }
        }
    }
    let of = |kind: Kind| -> Vec<f64> {
        let calls = calls.iter().filter(|(by, _)| *by == kind);
        calls.map(|(_, time)| *time).collect()
    };
    let row = |name: &str, times: &[f64], goal: &str| {
        let (middle, slowest) = (median(times), percentile(times, 100));
        vec![
            name.to_owned(),
            format!("{middle:.0}{goal}"),
            format!("{slowest:.0}"),
        ]
    };
    Ok(table(
        &[
            "from the start of the process to",
            "median, ms",
            "slowest, ms",
        ],
        &[
            row("the sidecar's probes", &probes, " (goal 50)"),
            row(
                "the first message at the runtime, sidecar",
                &of(Kind::Sidecar),
                " (goal 100)",
            ),
            row(
                "the first message at the runtime, bare mover",
                &of(Kind::Bare),
                "",
            ),
        ],
    ))
}
