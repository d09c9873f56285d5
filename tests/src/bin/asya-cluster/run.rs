//! `asya-cluster run -- COMMAND`.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use asya_tests::cluster::{Cluster, Options, STATE_VARIABLE, State};
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::operator::of_all_scenarios;
use asya_tests::process::{Process, Spec};
use asya_tests::{Error, Result};
use serde_json::json;

use crate::With;

pub(crate) async fn run(with: With, command: &[String]) -> Result<ExitCode> {
    // Scenarios with invalid actors run on fake pods.
    let values = if with.real {
        json!({})
    } else {
        of_all_scenarios()
    };
    let options = Options {
        guards_owners: !with.no_operator,
        ..with.options()
    };
    let mut cluster = with.start(options, values).await?;
    if !with.no_operator {
        owners_are_known(&cluster).await?;
    }
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

/// How long an API server may take to find a new kind after its CRD is created, with a margin.
const KIND_IS_FOUND: Duration = Duration::from_mins(1);

/// Waits until the operator may create actors' objects. With `guards_owners`, the API server must first find their
/// kind; without this wait, the first scenarios would have to wait.
async fn owners_are_known(cluster: &Cluster) -> Result<()> {
    let owner = json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "any", "uid": "any", "controller": true,
        "blockOwnerDeletion": true,
    });
    let dependent = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [owner]},
    });
    let file = cluster.folder().join("owned.json");
    std::fs::write(&file, dependent.to_string()).map_err(Error::other)?;
    let (file, user) = (
        file.display().to_string(),
        format!("--as={}", cluster.operator_user()?),
    );
    let create = ["create", "--dry-run=server", &user, "--filename", &file];
    eventually(
        "objects may have actors as owners",
        KIND_IS_FOUND,
        async || cluster.kubectl(&create).await.map_err(NotYet::new),
    )
    .await
    .map(drop)
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
