//! `asya-cluster run -- COMMAND`.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use asya_tests::Result;
use asya_tests::cluster::{STATE_VARIABLE, State};
use asya_tests::operator::of_all_scenarios;
use asya_tests::process::{Process, Spec};
use serde_json::json;

use crate::With;

pub(crate) async fn run(with: With, command: &[String]) -> Result<ExitCode> {
    // Scenarios of bad actors run on fake pods.
    let values = if with.real {
        json!({})
    } else {
        of_all_scenarios()
    };
    let mut cluster = with.start(values).await?;
    let state = cluster.folder().join("state.json");
    cluster.state().write(&state)?;
    let (program, args) = command.split_first().unwrap_or((&command[0], &[]));
    let spec = Spec::new(program.as_str(), program.as_str())
        .args(args)
        .inherit_env()
        .env(STATE_VARIABLE, state.display())
        .env("KUBECONFIG", cluster.state().kubeconfig.display());
    let spec = brokers(cluster.state())
        .into_iter()
        .fold(spec, |spec, (name, address)| spec.env(name, address));
    let command = Process::start(spec).await?;
    let status = tokio::select! {
        status = command.wait() => status,
        error = cluster.death() => {
            cluster.keep_logs();
            return Err(error);
        }
    };
    if !status.success() {
        cluster.keep_logs();
    }
    Ok(exit_code(status))
}

/// Broker addresses for the tests of the broker clients, which need no Kubernetes.
fn brokers(state: &State) -> Vec<(&'static str, String)> {
    let rabbitmq = state.rabbitmq.iter().flat_map(|rabbitmq| {
        let at = |port| format!("{}:{port}", rabbitmq.host);
        [
            ("ASYA_TEST_RABBITMQ", at(rabbitmq.management_port)),
            ("ASYA_TEST_RABBITMQ_TLS", at(rabbitmq.management_tls_port)),
            ("ASYA_TEST_RABBITMQ_CA", rabbitmq.ca.display().to_string()),
        ]
    });
    let sqs = state
        .sqs
        .clone()
        .map(|endpoint| ("ASYA_TEST_SQS", endpoint));
    rabbitmq.chain(sqs).collect()
}

/// The exit code as a shell would report it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
