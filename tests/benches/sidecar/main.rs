//! The figures of docs/spec/sidecar.md, section 16: the sidecar beside a bare mover, which consumes, calls the runtime,
//! publishes with a confirm and acknowledges, in the same run on the same broker. Run by `make bench-sidecar`.

mod amqp;
mod bare;
mod crowd;
mod figures;
mod idle;
mod latency;
#[path = "../figures/machine.rs"]
mod machine;
mod messages;
mod mover;
mod python;
mod sqs;
mod start;
mod stub;
mod throughput;
mod traffic;

use std::process::ExitCode;
use std::time::Duration;

use asya_tests::process::Folder;
use asya_tests::rabbitmq;
use asya_tests::{Error, Result};
use clap::{Parser, ValueEnum};

use crate::amqp::Login;
use crate::mover::{Settings, Transport};
use crate::stub::Stub;

/// Measures the sidecar beside a bare mover.
#[derive(Parser)]
struct Args {
    /// Parts to measure; all of them if none is named.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Benchmark>,

    /// How often each mover gets its turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Messages of each turn.
    #[arg(long, default_value_t = 10_000)]
    messages: usize,

    /// Messages after which the memory is measured.
    #[arg(long, default_value_t = 100_000)]
    many: usize,

    /// Messages of each turn on SQS.
    #[arg(long, default_value_t = 600)]
    sqs_messages: usize,

    /// Sidecars that meet a restarted broker.
    #[arg(long, default_value_t = 1_000)]
    sidecars: usize,

    /// Minutes after which it ends, with the figures that there are by then.
    #[arg(long, default_value_t = 20)]
    minutes: u64,

    /// Be the bare mover.
    #[arg(long, hide = true)]
    bare: Option<Transport>,

    /// What cargo tells every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One of the benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    Start,
    Latency,
    Throughput,
    Python,
    Memory,
    Idle,
    Sqs,
    Crowd,
}

impl Args {
    fn wants(&self, benchmark: Benchmark) -> bool {
        self.only.is_empty() || self.only.contains(&benchmark)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.bare {
        Some(Transport::Rabbitmq) => bare::move_on_rabbitmq(),
        Some(Transport::Sqs) => {
            asya_tests::install_crypto_provider();
            bare::move_on_sqs()
        }
        None => return measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return ExitCode::FAILURE;
    };
    let code = runtime.block_on(asya_tests::run_to_end(Box::pin(within(args))));
    // Do not wait for a thread that waits for results that will not come.
    runtime.shutdown_background();
    code
}

async fn within(args: &Args) -> Result<()> {
    println!("{}\n", machine::about()?);
    let limit = Duration::from_mins(args.minutes);
    let measuring = async {
        on_rabbitmq(args).await?;
        if args.wants(Benchmark::Sqs) || args.wants(Benchmark::Idle) {
            on_sqs(args).await?;
        }
        Ok(())
    };
    let ended = tokio::time::timeout(limit, Box::pin(measuring)).await;
    ended.unwrap_or_else(|_| Err(Error::Other(format!("not all in {} minutes", args.minutes))))
}

async fn on_rabbitmq(args: &Args) -> Result<()> {
    let folder = Folder::create("bench-sidecar")?;
    let (broker, mut parts) = rabbitmq::serve(folder.path()).await?;
    let server = parts.pop().ok_or_else(|| Error::other("no server"))?;
    let runtime = Folder::create("bench-stub")?;
    let stub = Stub::start(runtime.path())?;
    let settings = Settings::rabbitmq(&Login::to(&broker), runtime.path());
    if args.wants(Benchmark::Start) {
        println!("{}", start::compare(&broker, &settings, &stub).await?);
    }
    if args.wants(Benchmark::Throughput) {
        let figures = throughput::compare(&broker, &settings, args.rounds, args.messages);
        println!("{}", figures.await?);
    }
    if args.wants(Benchmark::Python) {
        println!(
            "{}",
            python::compare(&broker, args.rounds, args.messages).await?
        );
    }
    if args.wants(Benchmark::Latency) {
        println!(
            "{}",
            latency::compare(&broker, &settings, args.rounds).await?
        );
    }
    if args.wants(Benchmark::Memory) {
        println!(
            "{}",
            throughput::memory(&broker, &settings, args.many).await?
        );
    }
    if args.wants(Benchmark::Idle) {
        println!("{}", idle::on_rabbitmq(&broker, &settings).await?);
    }
    if args.wants(Benchmark::Crowd) {
        let (figures, _server) = crowd::restart(&broker, server, &settings, args.sidecars).await?;
        println!("{figures}");
    }
    Ok(())
}

async fn on_sqs(args: &Args) -> Result<()> {
    let folder = Folder::create("bench-sqs")?;
    let (url, _server) = asya_tests::sqs::serve(folder.path()).await?;
    let client = asya_tests::sqs::client(&url)?;
    let runtime = Folder::create("bench-stub")?;
    let _stub = Stub::start(runtime.path())?;
    let settings = Settings::sqs(&url, runtime.path());
    sqs::declare(&client).await?;
    // First, since a backlog would keep it busy.
    if args.wants(Benchmark::Idle) {
        println!("{}", idle::on_sqs(&settings).await?);
    }
    if args.wants(Benchmark::Sqs) {
        let figures = sqs::compare(&client, &settings, args.rounds.min(3), args.sqs_messages);
        println!("{}", figures.await?);
    }
    Ok(())
}
