//! `asya-cluster run -- COMMAND`.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use asya_tests::Result;
use asya_tests::cluster::STATE_VARIABLE;
use asya_tests::process::{Process, Spec};

use crate::With;

pub(crate) async fn run(with: With, command: &[String]) -> Result<ExitCode> {
    let mut cluster = with.start().await?;
    let state = cluster.folder().join("state.json");
    cluster.state().write(&state)?;
    let (program, args) = command.split_first().unwrap_or((&command[0], &[]));
    let spec = Spec::new(program.as_str(), program.as_str())
        .args(args)
        .inherit_env()
        .env(STATE_VARIABLE, state.display())
        .env("KUBECONFIG", cluster.state().kubeconfig.display());
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

/// As a shell would tell it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
