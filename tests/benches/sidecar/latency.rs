//! How long a message takes from the producer to the consumer of its result, at a rate that leaves everyone mostly idle
//! (SC-105).

use asya_tests::Result;
use asya_tests::rabbitmq::RabbitMq;

use crate::amqp::Login;
use crate::figures::{median, median_of_rounds, milliseconds, percentile, table};
use crate::mover::{KINDS, Kind, Settings};
use crate::throughput::declare;
use crate::traffic::{Sink, send_steadily};

/// Messages per second.
const RATE: u32 = 200;
/// The first messages, which do not count.
const WARM_UP: usize = 200;
/// Messages per mover and round.
const COUNT: usize = WARM_UP + 1_000;

/// Runs both movers in turn.
pub async fn compare(broker: &RabbitMq, settings: &Settings, rounds: usize) -> Result<String> {
    let mut rows = Vec::new();
    for queues in ["classic", "quorum"] {
        let mut runs = Vec::new();
        for _ in 0..rounds {
            for kind in KINDS {
                runs.push((kind, one(broker, settings, kind, queues).await?));
            }
        }
        let of = |kind: Kind, percent: usize| -> Vec<f64> {
            let runs = runs.iter().filter(|(by, _)| *by == kind);
            runs.map(|(_, run)| percentile(run, percent)).collect()
        };
        let mut row = vec![queues.to_owned()];
        for (percent, goal) in [(50, 0.3), (99, 3.0)] {
            let [bare, ours] = KINDS.map(|kind| of(kind, percent));
            let added = median_of_rounds(&bare, &ours, |bare, ours| ours - bare);
            row.push(format!("{:.2}", median(&bare)));
            row.push(format!("{:.2}", median(&ours)));
            row.push(format!("**{added:.2}** (goal {goal})"));
        }
        rows.push(row);
    }
    Ok(table(
        &[
            "200 messages/s, end to end",
            "bare mover p50, ms",
            "sidecar p50, ms",
            "added",
            "bare mover p99, ms",
            "sidecar p99, ms",
            "added",
        ],
        &rows,
    ))
}

async fn one(broker: &RabbitMq, settings: &Settings, kind: Kind, queues: &str) -> Result<Vec<f64>> {
    declare(broker, queues).await?;
    let login = Login::to(broker);
    let sink = Sink::start(&login, COUNT)?;
    let mover = settings.start(kind).await?;
    let working = async {
        let (sent, arrivals) = tokio::join!(send_steadily(&login, RATE, COUNT), sink.all());
        sent?;
        arrivals
    };
    let arrivals = mover.while_it_runs(working).await?;
    let ages = arrivals[WARM_UP..].iter();
    Ok(ages.map(|arrival| milliseconds(arrival.age)).collect())
}
