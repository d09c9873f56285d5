//! The fault campaign: random faults, one after the other, while messages flow (SC-106 to SC-108).
//!
//! It runs two actors with two pods each, behind proxies, and a producer that publishes continuously. The queues of
//! results are read at the end, so that a killed broker cannot redeliver messages that were already read.

mod broker;
mod footprint;
mod inject;
mod ledger;
mod pod;
mod producer;
mod proxy;
mod report;
mod run;
mod schedule;
mod servers;
mod setup;

use std::time::Duration;

use asya_tests::error::{Error, Result};
use asya_tests::install_crypto_provider;
use clap::Parser;
use tokio::time::timeout;

use run::Run;
use schedule::Schedule;
use setup::{Queues, Setup};

/// Longer than any fault, including start and recovery.
const LONGEST: Duration = Duration::from_secs(40);
const START_AND_SETTLE: Duration = Duration::from_mins(10);

/// `make faults ARGS="--faults 1000 --seed 7"`
#[derive(Parser)]
struct Arguments {
    /// How many faults are injected, on all setups together
    #[arg(long, default_value_t = 1000)]
    faults: usize,
    /// What the schedule is drawn from; a random number by default
    #[arg(long)]
    seed: Option<u64>,
    /// Only these queues
    #[arg(long)]
    queues: Option<Queues>,
    /// Only this many messages at a time in a pod: 1 or 8
    #[arg(long)]
    slots: Option<usize>,
}

impl Arguments {
    fn setups(&self) -> Vec<Setup> {
        let is_meant = |setup: &Setup| {
            self.queues.is_none_or(|queues| queues == setup.queues)
                && self.slots.is_none_or(|slots| slots == setup.slots)
        };
        Setup::all().into_iter().filter(is_meant).collect()
    }
}

/// SC-106, SC-107, SC-108
#[tokio::test]
async fn fifty_faults_lose_nothing() -> Result<()> {
    campaign(&Arguments::parse_from([
        "", "--faults", "50", "--seed", "1",
    ]))
    .await
}

/// SC-106, SC-107, SC-108: `make faults`
#[tokio::test]
#[ignore = "takes an hour"]
async fn faults_of_the_arguments_lose_nothing() -> Result<()> {
    let arguments = std::env::var("ASYA_FAULTS").unwrap_or_default();
    let arguments = ["make faults"]
        .into_iter()
        .chain(arguments.split_whitespace());
    campaign(&Arguments::try_parse_from(arguments).map_err(Error::other)?).await
}

/// Runs the faults on each setup in turn; fails after all of them.
async fn campaign(arguments: &Arguments) -> Result<()> {
    install_crypto_provider();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let setups = arguments.setups();
    let mut failed = Vec::new();
    for (number, setup) in setups.iter().enumerate() {
        // Divided equally; the first setups get the remainder.
        let faults = (arguments.faults + setups.len() - 1 - number) / setups.len();
        let replay = format!("--faults {faults} --seed {seed} {setup}");
        println!("{replay}");
        if !keeps_its_invariants(*setup, seed, faults).await {
            failed.push(format!("make faults ARGS=\"{replay}\""));
        }
    }
    assert!(failed.is_empty(), "failed; to replay: {failed:#?}");
    Ok(())
}

/// Whether the invariants held in a run.
async fn keeps_its_invariants(setup: Setup, seed: u64, faults: usize) -> bool {
    let limit = LONGEST * u32::try_from(faults).unwrap_or(u32::MAX) + START_AND_SETTLE;
    match timeout(limit, run(setup, seed, faults)).await {
        Ok(Ok(is_good)) => is_good,
        Ok(Err(error)) => {
            println!("{setup}: {error}");
            false
        }
        Err(_) => {
            println!("{setup}: not done after {limit:?}");
            false
        }
    }
}

async fn run(setup: Setup, seed: u64, faults: usize) -> Result<bool> {
    let mut run = Run::start(setup, seed).await?;
    let schedule = Schedule::new(seed, setup).take(faults);
    let is_good = match run.faults(schedule).await {
        Ok(report) => {
            println!("{report}");
            report.is_good()
        }
        Err(error) => {
            println!("{setup}: broke off: {error}");
            false
        }
    };
    if !is_good {
        run.keep_logs()?;
    }
    Ok(is_good)
}
