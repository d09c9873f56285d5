//! Runs a program and maps its result to an exit code.

use std::process::ExitCode;

use tracing::error;

use crate::{BoxError, logs};

/// Starts logging at `log_level` and runs `program`. The exit code is 2 for an invalid log level and 1 for an error.
pub async fn run(
    log_level: &str,
    program: impl Future<Output = Result<ExitCode, BoxError>>,
) -> ExitCode {
    if let Err(error) = logs::start(log_level) {
        eprintln!("--log-level {log_level}: {error}");
        return ExitCode::from(2);
    }
    match program.await {
        Ok(code) => code,
        Err(error) => {
            error!(%error, "stopped");
            ExitCode::FAILURE
        }
    }
}
