//! The figures of docs/architecture.md, section 8, and OPS-8 (d), measured on a separate cluster. A crowd of actors is
//! created at once for the operator, and an equal one for a bare client that only sends the same writes. Run by `make
//! bench`.

mod bare;
mod crowd;
mod machine;
mod measure;
mod progress;
mod table;
mod terminal;

use std::process::ExitCode;
use std::time::Duration;

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::operator::{Instance, Operator};
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use clap::Parser;
use serde_json::json;

use crate::bare::Bare;
use crate::crowd::{Crowd, Pods};
use crate::measure::{Bench, Row};
use crate::progress::Limit;

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

    /// Scaling on: actors without messages are Napping, and KEDA looks at each of their queues.
    #[arg(long, conflicts_with = "replicas")]
    scaled: bool,

    /// Writes that the bare client has under way at a time.
    #[arg(long, default_value_t = 32)]
    at_once: usize,

    /// The operator alone: its restart and its memory.
    #[arg(long)]
    no_bare: bool,

    /// Minutes after which it ends, with the figures that there are by then.
    #[arg(long, default_value_t = 30)]
    minutes: u64,

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
    let limit = Limit::after(Duration::from_mins(args.minutes));
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
    let status = async {
        let status = sample.status_of_one().await?;
        sample.leave().await?;
        Ok(status)
    };
    let status = instance.process().alive_while(status);
    let at_most = (&sample.counts, sample.patience());
    let status = limit.part("sample", at_most, status).await?;
    instance.stop().await?;

    let bench = Bench::new(&cluster, operator.user());
    let bare = Bare::new(&cluster, "bench", args.at_once, status).await?;
    let (mut rows, mut ended) = (Vec::new(), Ok(()));
    for (&size, round) in args
        .actors
        .iter()
        .flat_map(|size| (0..args.rounds).map(move |round| (size, round)))
    {
        let enter = |who: &'static str| {
            let label = format!("{who}-{size}-{round}");
            let cluster = &cluster;
            async move { Crowd::enter(cluster, &label, size, pods).await }
        };
        let pair = async {
            if !args.no_bare {
                let crowd = enter("bare").await?;
                beside(&limit, (&bench, &bare), &crowd, &mut rows).await?;
            }
            let crowd = enter("operator").await?;
            serve(&limit, (&bench, &mut instance), &crowd, &mut rows).await
        };
        ended = pair.await;
        if ended.is_err() {
            break;
        }
    }
    println!("{}", table::render(&rows));
    ended?;
    if rows.iter().any(|row| row.refused > 0) {
        return Err(Error::other("writes were refused: see the table"));
    }
    Ok(())
}

/// Measures the bare client with a crowd, and removes the crowd.
async fn beside(
    limit: &Limit,
    (bench, bare): (&Bench<'_>, &Bare),
    crowd: &Crowd,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let (what, at_most) = (&crowd.namespace, (&crowd.counts, crowd.patience()));
    rows.push(limit.part(what, at_most, bench.bare(bare, crowd)).await?);
    let leave = async {
        bare.clear(crowd).await?;
        crowd.leave().await
    };
    let what = format!("{what}, deletion");
    limit.part(&what, at_most, leave).await.map(drop)
}

/// Measures the operator with a crowd, restarts the operator, measures `kubectl asya status`, and removes the crowd.
async fn serve(
    limit: &Limit,
    (bench, instance): (&Bench<'_>, &mut Instance),
    crowd: &Crowd,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let (what, at_most) = (&crowd.namespace, (&crowd.counts, crowd.patience()));
    let served = bench.operator(instance, crowd);
    rows.push(limit.part(what, at_most, served).await?);
    let [again, status, deletion] =
        ["restart", "kubectl asya status", "deletion"].map(|it| format!("{what}, {it}"));
    let restart = bench.restart(instance, crowd);
    println!("{}", limit.part(&again, at_most, restart).await?);
    let shown = terminal::status(bench.cluster(), crowd);
    let shown = instance.process().alive_while(shown);
    println!("{}", limit.part(&status, at_most, shown).await?);
    let leave = instance.process().alive_while(crowd.leave());
    let gone = limit.part(&deletion, at_most, leave).await?;
    let (gone, size) = (gone.as_secs_f64(), crowd.names.len());
    println!("{size} actors: gone {gone:.1} s after their deletion");
    instance.stop().await.map(drop)
}
