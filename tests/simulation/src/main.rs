//! Runs seeds of the simulation: `make simulate SEEDS=1000`.

use std::process::ExitCode;
use std::time::Instant;

use asya_simulation::randomness::Seed;
use asya_simulation::run::{Options, Report, run};
use asya_simulation::schedule::Schedule;
use asya_simulation::seeds::failing;
use asya_simulation::shrink::shrink;
use clap::Parser;

/// A run spends most of its time decoding, copying and dropping objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the controller against an API server, brokers and a clock in memory.
#[derive(Parser)]
struct Flags {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,

    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,

    /// Threads, each with a seed of its own at a time.
    #[arg(long, default_value_t = 2)]
    threads: usize,

    /// Only seeds whose runs have an owner of targets: any, or the one with this name (Kserve, Kaito, Ray, Argo,
    /// Replace).
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    owner: Option<String>,

    /// Prints the trace of the first seed, even if it passes.
    #[arg(long)]
    trace: bool,

    /// How many runs may be spent on making the first failing one smaller.
    #[arg(long, default_value_t = 200)]
    shrink: usize,

    /// How many failing seeds to look for.
    #[arg(long, default_value_t = 1)]
    failures: usize,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let started = Instant::now();
    if flags.trace {
        print(&run(&Options {
            seed: flags.first,
            ..Options::default()
        }));
    }
    let is_wanted = |seed: &u64| match &flags.owner {
        Some(name) => {
            let owners = Schedule::new(Seed(*seed)).owners;
            let mut names = owners.iter().map(|(owner, _)| format!("{owner:?}"));
            names.any(|it| it.starts_with(name))
        }
        None => true,
    };
    let seeds = (flags.first..flags.first + flags.seeds).filter(is_wanted);
    let seeds: Vec<u64> = seeds.collect();
    let failing = failing(&seeds, flags.threads, flags.failures);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} seeds in {seconds:.1} s, {} failed",
        seeds.len(),
        failing.len()
    );
    let Some((seed, report)) = failing.into_iter().next() else {
        return ExitCode::SUCCESS;
    };
    let options = Options {
        seed,
        ..Options::default()
    };
    let (smallest, report) = shrink(&options, report, flags.shrink);
    print(&report);
    println!(
        "seed {seed}, without actions {:?}",
        smallest.without_actions
    );
    ExitCode::FAILURE
}

fn print(report: &Report) {
    for line in &report.trace {
        println!("{line}");
    }
    for (call, fault) in &report.faults {
        println!("fault: {call}: {fault:?}");
    }
    for violation in &report.violations {
        println!("violation: {violation}");
    }
}
