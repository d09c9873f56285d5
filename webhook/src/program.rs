//! The process around a replica: listeners, probes, signals and shutdown.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use asya_process::tasks::Tasks;
use asya_process::{BoxError, listen, metrics as exposed, probes, program, serve};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::Args;
use crate::replica::Replica;
use crate::server;
use crate::server::Shutdown;

/// How long to wait for in-flight reviews on shutdown (AVL-3).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the webhook until it is stopped.
pub async fn start(args: Args) -> ExitCode {
    // Must be installed before anything uses TLS.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let level = args.log_level.clone();
    program::run(&level, run(args, Tasks::default())).await
}

/// Runs until the process is stopped or one of `tasks` fails.
async fn run(args: Args, tasks: Tasks) -> Result<ExitCode, BoxError> {
    let replica = Replica::new(&args)?;
    let readiness = replica.readiness.clone();
    let mut signals = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );

    let reviews = listen::bind(&args.webhook_bind_address, "--webhook-bind-address").await?;
    let probes = listen::bind(
        &args.health_probe_bind_address,
        "--health-probe-bind-address",
    )
    .await?;
    let pending = readiness.clone();
    let health = probes::routes(move || pending.pending());
    let health = health.merge(exposed::routes(Arc::clone(&replica.metrics)));
    let health = serve::plain(probes, health, CancellationToken::new());
    tokio::spawn(tasks.run_forever("probes and metrics", health));

    let clients = replica.clients(&args).await?;
    let routes = replica.start(&args, clients, &tasks);
    let Replica {
        certificates,
        connections,
        ..
    } = replica;
    let tls = TlsAcceptor::from(Arc::new(asya_certs::serve::tls(
        certificates,
        args.clients(),
    )?));
    let shutdown = Shutdown::default();
    let server = server::serve(
        reviews,
        tls,
        routes,
        connections,
        shutdown.clone(),
        DRAIN_TIMEOUT,
    );
    let server = tokio::spawn(tasks.run_to_completion("reviews", server));
    info!(address = args.webhook_bind_address, "serving reviews");

    let failure = tokio::select! {
        _ = signals.0.recv() => None,
        _ = signals.1.recv() => None,
        failure = tasks.first_failure() => Some(failure),
    };
    info!("stopping");
    readiness.stop();
    shutdown.draining.cancel();
    let drain = async {
        tokio::time::sleep(args.shutdown_delay()).await;
        shutdown.stop.cancel();
        let _ = server.await;
    };
    tokio::select! {
        () = drain => failure.map_or(Ok(ExitCode::SUCCESS), |failure| Err(failure.into())),
        _ = signals.0.recv() => Ok(ExitCode::FAILURE),
        _ = signals.1.recv() => Ok(ExitCode::FAILURE),
    }
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
    async fn failed_task_ends_the_webhook_with_an_error() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let args = Args::parse_from([
            "asya-webhook",
            "--tls-names=webhook.test",
            "--webhook-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--shutdown-delay=0",
            "--kubeconfig",
            UNREACHABLE,
        ]);
        let tasks = Tasks::default();
        tokio::spawn(tasks.run_forever("watch AsyncActor", async {}));
        let ended = timeout(Duration::from_mins(1), run(args, tasks)).await;
        let ended = ended.expect("it ends").map_err(|error| error.to_string());
        assert_eq!(ended, Err("watch AsyncActor ended".to_owned()));
    }
}
