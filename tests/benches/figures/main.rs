//! The figures of docs/architecture.md, section 8, on a cluster of its own: a crowd of actors is created
//! at once, and what the operator makes of them is made of an equal crowd by a bare client, which does
//! nothing but send the same writes. `make bench` runs it.

mod bare;
mod crowd;
mod machine;
mod measure;
mod table;

use std::process::ExitCode;

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::operator::Operator;
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use clap::Parser;
use serde_json::json;

use crate::bare::Bare;
use crate::crowd::{Crowd, Pods};
use crate::measure::Bench;

/// Measures the operator beside a bare client.
#[derive(Parser)]
struct Args {
    /// Sizes of the crowds, one measured after the other.
    #[arg(long, value_delimiter = ',', default_value = "300,1000")]
    actors: Vec<usize>,

    /// How often each size is measured.
    #[arg(long, default_value_t = 1)]
    rounds: usize,

    /// Pods of each actor; with 0 neither scheduler nor kubelet has a part in it.
    #[arg(long, default_value_t = 1)]
    replicas: i32,

    /// Scaling on: actors without messages nap, and KEDA looks at each of their queues.
    #[arg(long, conflicts_with = "replicas")]
    scaled: bool,

    /// Writes that the bare client has under way at a time.
    #[arg(long, default_value_t = 32)]
    at_once: usize,

    /// The operator alone: its restart and its memory.
    #[arg(long)]
    no_bare: bool,

    /// What cargo tells every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    asya_tests::install_crypto_provider();
    asya_tests::watch_signals();
    let done = measure(&Args::parse()).await;
    asya_tests::let_the_end_come().await;
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Result<()> {
    println!("{}", machine::about()?);
    let pods = if args.scaled {
        Pods::Scaled
    } else {
        Pods::Fixed(args.replicas)
    };
    let options = Options {
        keda: args.scaled,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await?;
    let operator = Operator::install(&cluster, json!({})).await?;
    let mut instance = operator.start("bench").await?;
    let _webhook = Webhook::start(&operator).await?;
    let sample = Crowd::enter(&cluster, "sample", 1, pods).await?;
    let status = sample.status_of_one().await?;
    sample.leave().await?;
    instance.stop().await?;

    let bench = Bench::new(&cluster, operator.user());
    let bare = Bare::new(&cluster, "bench", args.at_once, status).await?;
    let mut rows = Vec::new();
    for &size in &args.actors {
        for round in 0..args.rounds {
            let enter = |who: &'static str| {
                let label = format!("{who}-{size}-{round}");
                let cluster = &cluster;
                async move { Crowd::enter(cluster, &label, size, pods).await }
            };
            if !args.no_bare {
                let crowd = enter("bare").await?;
                rows.push(bench.bare(&bare, &crowd).await?);
                bare.clear(&crowd).await?;
                crowd.leave().await?;
            }
            let crowd = enter("operator").await?;
            rows.push(bench.operator(&mut instance, &crowd).await?);
            let restart = bench.restart(&mut instance, &crowd).await?;
            println!("{restart}");
            let gone = crowd.leave().await?;
            println!(
                "{size} actors: gone {:.1} s after their deletion",
                gone.as_secs_f64()
            );
            instance.stop().await?;
        }
    }
    println!("{}", table::render(&rows));
    if rows.iter().any(|row| row.refused > 0) {
        return Err(Error::other("writes were refused: see the table"));
    }
    Ok(())
}
