//! How many messages per second, and at what cost (SC-102, SC-103, and the memory of SC-104).

use std::time::Duration;

use asya_tests::rabbitmq::RabbitMq;
use asya_tests::{Error, Result};
use serde_json::json;

use crate::amqp::Login;
use crate::figures::{many, median, median_of_rounds, table};
use crate::messages::{FROM, TO_QUEUE, queue};
use crate::mover::{KINDS, Kind, Settings};
use crate::traffic::{Sink, fill};

/// The first messages, which do not count: lookahead is enabled after 32 calls, and the broker takes some time to reach
/// its rate.
pub const WARM_UP: usize = 1_000;

/// The results of one run.
#[derive(Clone, Copy)]
pub struct Run {
    /// Messages per second.
    pub rate: f64,
    /// Processor time of the mover per message, in milliseconds.
    pub cpu: f64,
    /// Resident memory at the end, in MiB.
    pub memory: f64,
    pub threads: usize,
}

/// The goals of a mover.
pub struct Goals {
    /// Percentage of the bare mover's rate.
    pub rate: Option<f64>,
    /// Messages per second, whatever the bare mover reaches.
    pub messages: Option<f64>,
    /// Processor time per message, in milliseconds.
    pub cpu: f64,
    /// Resident memory, in MiB.
    pub memory: f64,
}

/// On RabbitMQ.
pub const GOALS: Goals = Goals {
    rate: Some(80.0),
    messages: None,
    cpu: 0.12,
    memory: 10.0,
};

/// Five times the best rate of the Go sidecar (docs/spec/sidecar.md, section 16).
const FIVE_TIMES_GO: f64 = 5.0 * 299.0;

/// Runs both movers in turn, on both queue types.
pub async fn compare(
    broker: &RabbitMq,
    settings: &Settings,
    rounds: usize,
    count: usize,
) -> Result<String> {
    let mut rows = Vec::new();
    for (queues, messages) in [("classic", Some(FIVE_TIMES_GO)), ("quorum", None)] {
        let mut runs = Vec::new();
        for _ in 0..rounds {
            for kind in KINDS {
                runs.push((kind, one(broker, settings, kind, queues, count).await?));
            }
        }
        rows.extend(rows_of(queues, &runs, &Goals { messages, ..GOALS }));
    }
    Ok(table_of("runtime that replies at once", &rows))
}

/// The table of such rows.
pub fn table_of(name: &str, rows: &[Vec<String>]) -> String {
    table(
        &[
            name,
            "by",
            "messages/s",
            "CPU per message, ms",
            "memory (RSS), MiB",
        ],
        rows,
    )
}

/// The median of each mover, and the median of their comparison in each round.
pub fn rows_of(name: &str, runs: &[(Kind, Run)], goals: &Goals) -> Vec<Vec<String>> {
    let of = |kind: Kind, value: fn(&Run) -> f64| -> Vec<f64> {
        let runs = runs.iter().filter(|(by, _)| *by == kind);
        runs.map(|(_, run)| value(run)).collect()
    };
    let row = |name: &str, by: &str, kind: Kind, goals: [String; 3]| {
        let [rate, cpu, memory] = goals;
        vec![
            name.to_owned(),
            by.to_owned(),
            format!("{:.0}{rate}", median(&of(kind, |run| run.rate))),
            format!("{:.3}{cpu}", median(&of(kind, |run| run.cpu))),
            format!("{:.1}{memory}", median(&of(kind, |run| run.memory))),
        ]
    };
    let [bare, ours] = KINDS.map(|kind| of(kind, |run| run.rate));
    let percent = median_of_rounds(&bare, &ours, |bare, ours| 100.0 * ours / bare);
    let of_bare = goals
        .rate
        .map_or_else(String::new, |goal| format!(", goal {goal:.0} %"));
    let messages = goals
        .messages
        .map_or_else(String::new, |goal| format!("; goal {goal:.0}"));
    let ours = [
        format!(" (**{percent:.0} %**{of_bare}{messages})"),
        format!(" (goal {:.2})", goals.cpu),
        format!(" (goal {:.0})", goals.memory),
    ];
    vec![
        row(name, "bare mover", Kind::Bare, Default::default()),
        row("", "sidecar", Kind::Sidecar, ours),
    ]
}

/// Creates new, empty queues.
pub async fn declare(broker: &RabbitMq, kind: &str) -> Result<()> {
    for name in [queue(FROM), TO_QUEUE.to_owned()] {
        broker.delete_queue(&name).await?;
        broker.declare(&name, json!({"x-queue-type": kind})).await?;
    }
    Ok(())
}

/// Lets one mover empty a queue.
pub async fn one(
    broker: &RabbitMq,
    settings: &Settings,
    kind: Kind,
    queues: &str,
    count: usize,
) -> Result<Run> {
    declare(broker, queues).await?;
    let login = Login::to(broker);
    fill(&login, count).await?;
    let mut sink = Sink::start(&login, count)?;
    let mover = settings.start(kind).await?;
    let working = async {
        sink.has(WARM_UP).await?;
        let before = mover.cpu()?;
        let arrivals = sink.all().await?;
        Ok((arrivals, mover.cpu()? - before))
    };
    let (arrivals, cpu) = mover.while_it_runs(working).await?;
    let (Some(first), Some(last)) = (arrivals.get(WARM_UP), arrivals.last()) else {
        return Err(Error::other("more messages are needed than that"));
    };
    let counted = many(count - WARM_UP);
    Ok(Run {
        rate: counted
            / (last.at - first.at)
                .max(Duration::from_millis(1))
                .as_secs_f64(),
        cpu: cpu / counted,
        memory: mover.memory()?,
        threads: mover.threads()?,
    })
}

/// The memory after many messages (SC-104).
pub async fn memory(broker: &RabbitMq, settings: &Settings, count: usize) -> Result<String> {
    let run = one(broker, settings, Kind::Sidecar, "classic", count).await?;
    Ok(format!(
        "after {count} messages on RabbitMQ: {:.1} MiB (goal 10), {} threads (goal 3), {:.0} messages/s\n",
        run.memory, run.threads, run.rate
    ))
}
