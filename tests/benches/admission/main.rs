//! Benchmarks the webhook (OBS-4 (a, b, c, d), AVL-2 (e)): the in-process cost of a review, compared with a handler
//! that decodes full types and diffs them, the performance of a replica under load over TLS while it watches many
//! actors, and its start; and how soon the controller applies the webhook configurations of many bindings (CFG-7 (e)).
//! Run by `make bench`.

mod burst;
mod configurations;
mod crowd;
mod handler;
mod load;
#[path = "../figures/machine.rs"]
mod machine;
mod reviews;

use std::process::ExitCode;
use std::time::Duration;

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::operator::Operator;
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use clap::Parser;
use serde_json::json;

use crate::crowd::{Crowd, namespace_of, target_of};
use crate::load::Replica;
use crate::reviews::review;

/// Typical pod sizes in bytes: a small pod, a model server's, and one with very many variables.
const SIZES: [usize; 3] = [3_000, 12_000, 100_000];

/// Measures the webhook.
#[derive(Parser)]
struct Args {
    /// Actors that a replica watches.
    #[arg(long, default_value_t = 10_000)]
    actors: usize,

    /// How many of them are bindings.
    #[arg(long, default_value_t = 200)]
    bindings: usize,

    /// Reviews a second, one load after the other.
    #[arg(long, value_delimiter = ',', default_value = "500,2000")]
    rates: Vec<u32>,

    /// How long each load lasts, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,

    /// Pods of a burst: of a bound target, of another, and of the bound one during a flood.
    #[arg(long, default_value_t = 1_000)]
    pods: usize,

    /// What cargo tells every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    asya_tests::run_to_end(Box::pin(measure(&Args::parse()))).await
}

async fn measure(args: &Args) -> Result<()> {
    println!("{}", machine::about()?);
    println!("handler, in this process");
    for size in SIZES {
        println!("{}", handler::measure(size)?);
    }

    let cluster = RunningCluster::start(Options::default()).await?;
    let operator = Operator::install(&cluster, json!({"webhook": {"replicaCount": 1}})).await?;
    let controller = operator.start("bench").await?;
    let mut webhook = Webhook::start(&operator).await?;
    let replica = webhook.replicas().first();
    let replica = replica.ok_or_else(|| Error::other("there is no replica of the webhook"))?;
    for told in burst::measure(&cluster, replica, args.pods).await? {
        println!("{told}");
    }
    // The rest measures the webhook alone.
    controller.stop().await?;
    let replica = Replica::of(&cluster, replica).await?;
    println!("one actor: {}", replica.memory()?);

    let crowd = Crowd::create(&cluster, args.actors, args.bindings, 0).await?;
    replica.knows(&crowd).await?;
    println!(
        "{} actors, {} of them bindings: {}",
        args.actors,
        args.bindings,
        replica.memory()?
    );
    for size in SIZES {
        let body = review(&namespace_of(0), &target_of(0), size);
        println!("{}", replica.one_by_one(size, &body, 2_000).await?);
    }
    for &rate in &args.rates {
        let lasts = Duration::from_secs(args.seconds);
        println!("{}", replica.under_load(&crowd, rate, lasts).await?);
    }
    println!("after all that: {}", replica.memory()?);
    println!("{}", configurations::start_to_ready(&mut webhook).await?);
    drop(cluster);
    println!("{}", configurations::applied().await?);
    Ok(())
}
