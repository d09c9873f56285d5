//! The process around a replica: arguments, signals, probes and metrics.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use asya_process::tasks::Tasks;
use asya_process::{BoxError, api_server, metrics as exposed, probes, program};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::leadership::Ending;
use super::replica::{Connections, Replica, ReplicaConfig};
use super::uninstall;
use crate::app::args::Args;
use crate::cluster::client;
use crate::telemetry::health::{self, Readiness};
use crate::telemetry::metrics::Metrics;

/// How long `--check` waits for the URLs to become ready.
const CHECK: Duration = Duration::from_mins(1);

/// Runs the program and returns its exit code.
pub async fn main() -> ExitCode {
    let args = Args::read();
    if !args.check.is_empty() {
        return check(&args.check).await;
    }
    // Before any use of TLS: reqwest takes the installed provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if args.check_uninstall {
        let namespaces = &args.watch_namespaces;
        return uninstall::check(args.kubeconfig.as_deref(), namespaces, &args.helm_rollback).await;
    }
    let level = args.log_level.clone();
    Box::pin(program::run(&level, run(args, Tasks::default()))).await
}

/// Reports by the exit code whether the processes behind these URLs are ready.
async fn check(urls: &[String]) -> ExitCode {
    match asya_process::check::ready(urls, CHECK).await {
        Ok(()) => {
            println!("ready: {}", urls.join(", "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("not ready: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until the process is stopped, loses its lease, or one of `tasks` fails.
async fn run(args: Args, tasks: Tasks) -> Result<ExitCode, BoxError> {
    let configuration = ReplicaConfig::read(&args)?;
    let config = api_server::config(args.kubeconfig.as_deref(), client::READ_TIMEOUT).await?;
    let connections = Connections::over_network(config)?;
    let replica = Replica::new(&args, configuration, connections, tasks.clone())?;
    let stop = CancellationToken::new();
    serve(
        &args,
        replica.readiness(),
        &replica.metrics(),
        &tasks,
        &stop,
    )
    .await?;
    let mut signals = Signals::new()?;
    let ending = replica.run(async || signals.next().await).await;
    stop.cancel();
    match ending? {
        Ending::Stopped => Ok(ExitCode::SUCCESS),
        Ending::Aborted => Ok(ExitCode::FAILURE),
        // At once, because another replica may already lead.
        Ending::LeaseLost => std::process::exit(1),
    }
}

/// The signals that stop the process.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Serves probes and metrics, in every replica.
async fn serve(
    args: &Args,
    readiness: Readiness,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
    stop: &CancellationToken,
) -> Result<(), BoxError> {
    let health = health::bind(
        &args.health_probe_bind_address,
        "--health-probe-bind-address",
    )
    .await?;
    let metrics_listener =
        health::bind(&args.metrics_bind_address, "--metrics-bind-address").await?;
    let servers = [
        (health, probes::routes(move || readiness.pending())),
        (metrics_listener, exposed::routes(Arc::clone(metrics))),
    ];
    for (listener, routes) in servers {
        if let Some(listener) = listener {
            let server = asya_process::serve::plain(listener, routes, stop.clone());
            tokio::spawn(tasks.run_to_completion("probes and metrics", server));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::time::timeout;

    use super::*;

    const UNREACHABLE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../process/tests/unreachable-api-server.yaml"
    );

    /// ADM-28
    #[tokio::test]
    async fn failed_task_ends_the_controller_with_an_error() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let args = Args::parse_from([
            "asya-controller",
            "--health-probe-bind-address=127.0.0.1:0",
            "--metrics-bind-address=127.0.0.1:0",
            "--kubeconfig",
            UNREACHABLE,
        ]);
        let tasks = Tasks::default();
        tokio::spawn(tasks.run_forever("watch Pod", async { panic!("a fault") }));
        let ended = timeout(Duration::from_mins(1), Box::pin(run(args, tasks))).await;
        let ended = ended.expect("it ends").map_err(|error| error.to_string());
        assert_eq!(ended, Err("watch Pod panicked".to_owned()));
    }
}
