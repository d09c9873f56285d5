//! A real Kubernetes on loopback ports, for tests and for trying things.
//!
//! etcd, the API server, the controller manager, the scheduler, RabbitMQ, the SQS server and KEDA are real. Nodes and
//! pods are fake (kwok), except for a node in [`real`]. The operator is installed by its chart and runs as the chart's
//! Deployments say. Everything ends with the process that started it, however that process ends.
//!
//! - [`cluster::RunningCluster`] runs a cluster, [`cluster::Cluster`] is a handle to one;
//! - [`scenario::Scenario`] is a namespace on the shared cluster;
//! - [`operator::Operator`] installs the chart and starts instances of the controller,
//!   [`webhook::Webhook`] the webhook's replicas;
//! - [`eventually::eventually`] polls conditions;
//! - [`pod_process::PodProcess`] runs runtime and sidecar of a fake pod;
//! - [`audit::Audit`] and [`rabbitmq::AccessLog`] report who wrote what;
//! - [`owners::Owner`] simulates the controller of a system that actors bind to;
//! - [`scheduling`] schedules the scenarios of this machine;
//! - [`flood::Clients`] attacks the webhook's port;
//! - [`metrics::Metrics`] reads a page of metrics;
//! - [`counting_proxy::CountingProxy`] runs a hook at the nth write.

mod apply;
pub mod argocd;
pub mod audit;
pub mod build;
pub mod cluster;
pub mod command;
pub mod counting_proxy;
pub mod crds;
pub mod error;
pub mod eventually;
pub mod flood;
pub mod helm;
pub mod keda;
pub mod metrics;
pub mod operator;
pub mod owners;
pub mod pki;
pub mod pod_process;
pub mod ports;
pub mod process;
pub mod rabbitmq;
pub mod real;
pub mod scenario;
pub mod scheduling;
pub mod sqs;
pub mod tls_proxy;
pub mod webhook;

use std::process::ExitCode;
use std::time::Duration;

pub use error::{Error, Result};

/// Installs the TLS crypto provider, once per process.
pub fn install_crypto_provider() {
    // Fails if already installed, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Makes SIGINT, SIGTERM and SIGHUP end this process only after every process that it started has ended. Starting the
/// first component does this, too.
pub fn watch_signals() {
    process::supervisor::watch_signals();
}

/// Never returns while a signal is ending this process: errors are then a consequence of the signal, and the exit code
/// must report the signal.
pub async fn wait_if_ending() {
    process::supervisor::wait_if_ending().await;
}

/// Runs the work of one of our processes and prints its error. Every process that it started has ended on return.
pub async fn run_to_end(work: impl Future<Output = Result<()>>) -> ExitCode {
    install_crypto_provider();
    watch_signals();
    let done = work.await;
    wait_if_ending().await;
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// An HTTP client for loopback addresses: no proxy, no redirects, short timeouts.
pub(crate) fn http_client() -> Result<reqwest::Client> {
    install_crypto_provider();
    Ok(reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(5))
        .timeout(Duration::from_mins(1))
        .build()?)
}
