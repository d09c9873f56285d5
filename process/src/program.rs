//! How a program runs and ends.

use std::process::ExitCode;

use tracing::error;

use crate::{BoxError, logs};

/// Logs at this level, and tells by the exit code how `program` ended: 2 for a level that is none, 1 for an error.
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
