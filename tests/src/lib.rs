//! A real Kubernetes on loopback ports, for tests and for trying things.
//!
//! Real are etcd, the API server, the controller manager, the scheduler,
//! RabbitMQ, the SQS server and KEDA; fake are nodes and pods (kwok), but for a node in [`real`]. The operator
//! is installed by its chart and runs as the chart's Deployments say. All ends
//! with the process that started it, however that ends.
//!
//! - [`cluster::RunningCluster`] runs a cluster, [`cluster::Cluster`] uses one;
//! - [`scenario::Scenario`] is a namespace of its own on the shared cluster;
//! - [`operator::Operator`] installs the chart and starts instances of the controller,
//!   [`webhook::Webhook`] the webhook's replicas;
//! - [`eventually::eventually`] waits for conditions;
//! - [`audit::Audit`] and [`rabbitmq::AccessLog`] tell who wrote what;
//! - [`owners::Owner`] plays the controller of a system that actors bind to;
//! - [`turn`] says when a scenario may run a cluster of its own;
//! - [`counting_proxy::CountingProxy`] strikes after the n-th write.

pub mod argocd;
pub mod audit;
pub mod build;
pub mod cluster;
pub mod counting_proxy;
pub mod error;
pub mod eventually;
pub mod helm;
pub mod keda;
pub mod operator;
pub mod owners;
pub mod pki;
pub mod ports;
pub mod process;
pub mod rabbitmq;
pub mod real;
pub mod scenario;
pub mod sqs;
pub mod tls_proxy;
pub mod turn;
pub mod webhook;

use std::process::ExitCode;
use std::time::Duration;

pub use error::{Error, Result};

/// What every client of TLS needs once per process.
pub fn install_crypto_provider() {
    // A second installation is refused, which is what we want.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// SIGINT, SIGTERM and SIGHUP end this process only after all that it started
/// is gone. Starting a first part does this, too.
pub fn watch_signals() {
    process::keeper::watch_signals();
}

/// Does not return when a signal is ending this process: what fails now fails
/// because of that, and the exit code must tell the signal.
pub async fn let_the_end_come() {
    process::keeper::let_the_end_come().await;
}

/// Runs all that a process of ours does, and says what went wrong; what it started is gone by then.
pub async fn to_the_end(work: impl Future<Output = Result<()>>) -> ExitCode {
    install_crypto_provider();
    watch_signals();
    let done = work.await;
    let_the_end_come().await;
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A client for addresses on loopback: no proxy, no redirects, no long waits.
pub(crate) fn http_client() -> Result<reqwest::Client> {
    install_crypto_provider();
    Ok(reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(5))
        .timeout(Duration::from_mins(1))
        .build()?)
}
