//! Runs a program and maps its result to an exit code.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;

use tokio::runtime::Builder;
use tracing::error;

use crate::{BoxError, logs};

/// Runs `main` on two to four threads, depending on the processors that the container may use. A reconcile or review
/// takes a fraction of a millisecond of processor time and each thread costs memory, so more would not help on larger
/// nodes. With two, probes are answered while an object is decoded.
pub fn block_on(main: impl Future<Output = ExitCode>) -> ExitCode {
    let processors = available_parallelism().map_or(1, NonZero::get);
    let threads = processors.clamp(2, 4);
    match Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(main),
        Err(error) => {
            eprintln!("cannot start {threads} threads: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts logging at `log_level` and runs `program`. The exit code is 2 for an invalid log level and 1 for an error.
pub async fn run(
    log_level: &str,
    program: impl Future<Output = Result<ExitCode, BoxError>>,
) -> ExitCode {
    if let Err(error) = logs::start(log_level) {
        eprintln!("--log-level {log_level}: {error}");
        return ExitCode::from(2);
    }
    exit_code(program.await)
}

fn exit_code(ended: Result<ExitCode, BoxError>) -> ExitCode {
    match ended {
        Ok(code) => code,
        Err(error) => {
            error!(%error, "stopped");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_runs_on_two_to_four_threads_with_timers() {
        let code = block_on(async {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            let threads = tokio::runtime::Handle::current().metrics().num_workers();
            ExitCode::from(u8::try_from(threads).unwrap_or_default())
        });
        assert!((2..=4).any(|threads: u8| code == threads.into()));
    }

    /// ADM-28
    #[tokio::test]
    async fn error_is_exit_code_1_and_an_invalid_log_level_2() {
        let failed: Result<ExitCode, BoxError> = Err("watch Pod panicked".into());
        assert_eq!(exit_code(failed), ExitCode::from(1));
        for code in [0, 1] {
            assert_eq!(exit_code(Ok(code.into())), code.into());
        }
        let never = async { panic!("it does not start") };
        assert_eq!(run("=[", never).await, ExitCode::from(2));
    }
}
