//! The process around a replica: listeners, probes, signals and shutdown.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use asya_process::tasks::Tasks;
use asya_process::{BoxError, listen, metrics as exposed, probes, program, serve};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::Args;
use crate::readiness::Readiness;
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
        () = next_signal(&mut signals) => None,
        failure = tasks.first_failure() => Some(failure),
    };
    let delay = args.shutdown_delay();
    let second_signal = next_signal(&mut signals);
    let exit_code = shut_down(&readiness, &shutdown, delay, server, second_signal).await;
    failure.map_or(Ok(exit_code), |failure| Err(failure.into()))
}

/// Waits for a signal that stops the process.
async fn next_signal(signals: &mut (Signal, Signal)) {
    tokio::select! {
        _ = signals.0.recv() => {}
        _ = signals.1.recv() => {}
    }
}

/// Shuts down in stages, unless `aborted` resolves first (AVL-3).
async fn shut_down(
    readiness: &Readiness,
    shutdown: &Shutdown,
    delay: Duration,
    server: JoinHandle<()>,
    aborted: impl Future<Output = ()>,
) -> ExitCode {
    info!("stopping");
    readiness.stop();
    shutdown.draining.cancel();
    let drain = async {
        tokio::time::sleep(delay).await;
        shutdown.stop.cancel();
        let _ = server.await;
    };
    tokio::select! {
        () = drain => ExitCode::SUCCESS,
        () = aborted => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use asya_certs::serve::Certificates;
    use clap::Parser;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::facts::SharedFacts;
    use crate::index::{Index, LastResponse};
    use crate::testing::installation;

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

    const DELAY: Duration = Duration::from_secs(10);

    /// A webhook whose server stops at shutdown.
    fn serving() -> (Readiness, Shutdown, JoinHandle<()>) {
        let readiness = Readiness::new(
            &Arc::new(Index::new(installation())),
            &LastResponse::default(),
            &Certificates::new(Vec::new()),
            &SharedFacts::default(),
            false,
        );
        let shutdown = Shutdown::default();
        let server = tokio::spawn(shutdown.stop.clone().cancelled_owned());
        (readiness, shutdown, server)
    }

    /// AVL-2, AVL-3
    #[tokio::test(start_paused = true)]
    async fn stopping_webhook_is_not_ready_at_once_and_serves_for_the_delay() {
        let (readiness, shutdown, server) = serving();
        let started = Instant::now();
        let stopping = shut_down(&readiness, &shutdown, DELAY, server, pending());
        tokio::pin!(stopping);
        let within = timeout(Duration::from_secs(1), &mut stopping).await;
        assert!(within.is_err(), "it serves");
        let is_stopping = |line: &String| line == "process: stopping";
        assert!(readiness.pending().iter().any(is_stopping));
        assert!(shutdown.draining.is_cancelled() && !shutdown.stop.is_cancelled());
        assert_eq!(stopping.await, ExitCode::SUCCESS);
        assert_eq!(started.elapsed().as_secs(), DELAY.as_secs());
    }

    /// AVL-3
    #[tokio::test(start_paused = true)]
    async fn second_signal_ends_a_webhook_that_is_still_stopping() {
        let (readiness, shutdown, server) = serving();
        let (started, second) = (Instant::now(), sleep(Duration::from_secs(3)));
        let exit_code = shut_down(&readiness, &shutdown, DELAY, server, second).await;
        assert_eq!(exit_code, ExitCode::FAILURE);
        assert_eq!(started.elapsed().as_secs(), 3);
    }
}
