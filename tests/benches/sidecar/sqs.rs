//! The same on SQS (SC-103, SC-104). The bare mover receives ten messages, and sends and deletes them one after the
//! other, without signatures; the sidecar does so concurrently. So the rates say little; processor time and memory are
//! the figures that count.

use std::time::{Duration, Instant};

use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::sqs::Sqs;
use asya_tests::{Error, Result};

use crate::figures::many;
use crate::messages::{FROM, TO_QUEUE, message, queue};
use crate::mover::{KINDS, Kind, Mover, Settings};
use crate::throughput::{Goals, Run, rows_of, table_of};

const PATIENCE: Duration = Duration::from_mins(3);
const PAUSE: Duration = Duration::from_millis(50);
/// The first messages, which do not count.
const WARM_UP: usize = 100;
const GOALS: Goals = Goals {
    rate: None,
    messages: None,
    cpu: 1.1,
    memory: 16.0,
};

/// Creates the queues.
pub async fn declare(client: &Sqs) -> Result<()> {
    client.create(&queue(FROM)).await?;
    client.create(TO_QUEUE).await
}

/// Runs both movers in turn.
pub async fn compare(
    client: &Sqs,
    settings: &Settings,
    rounds: usize,
    count: usize,
) -> Result<String> {
    let mut runs = Vec::new();
    for _ in 0..rounds {
        for kind in KINDS {
            runs.push((kind, one(client, settings, kind, count).await?));
        }
    }
    Ok(table_of(
        "runtime that replies at once",
        &rows_of("SQS", &runs, &GOALS),
    ))
}

async fn one(client: &Sqs, settings: &Settings, kind: Kind, count: usize) -> Result<Run> {
    client.purge(&queue(FROM)).await?;
    client.purge(TO_QUEUE).await?;
    let messages: Vec<String> = (0..count).map(message).collect();
    client.send(&queue(FROM), &messages).await?;
    let mover = settings.start(kind).await?;
    let working = async {
        let begun = moved(client, &mover, WARM_UP).await?;
        let ended = moved(client, &mover, count).await?;
        let counted = many(ended.count - begun.count);
        let run = Run {
            rate: counted / (ended.at - begun.at).as_secs_f64(),
            cpu: (ended.cpu - begun.cpu) / counted,
            memory: mover.memory()?,
            threads: mover.threads()?,
        };
        // Messages that are not deleted yet would come back in the next round.
        eventually("all messages are deleted", PATIENCE, async || {
            let [waiting, taken] = counts(client, &queue(FROM)).await.map_err(NotYet::new)?;
            check(
                waiting + taken == 0,
                format!("{waiting} wait, {taken} are taken"),
            )
        })
        .await?;
        Ok(run)
    };
    let run = mover.while_it_runs(working).await?;
    mover.process.stop(PATIENCE).await.map(|_| run)
}

/// The progress of a mover.
struct Progress {
    count: usize,
    at: Instant,
    /// In milliseconds.
    cpu: f64,
}

/// Waits until this many messages are moved. Polls rarely, because each answer takes processor time of the measured
/// server.
async fn moved(client: &Sqs, mover: &Mover, wanted: usize) -> Result<Progress> {
    let until = Instant::now() + PATIENCE;
    loop {
        let [count, _] = counts(client, TO_QUEUE).await?;
        if count >= wanted {
            let (at, cpu) = (Instant::now(), mover.cpu()?);
            return Ok(Progress { count, at, cpu });
        }
        if Instant::now() > until {
            return Err(Error::Other(format!("only {count} messages are moved")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The numbers of waiting messages and of messages in flight.
async fn counts(client: &Sqs, queue: &str) -> Result<[usize; 2]> {
    let all = client.attributes(queue).await?;
    let names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
    ];
    let count = |name| all.get(name).and_then(|count| count.parse().ok());
    Ok(names.map(|name| count(name).unwrap_or_default()))
}
