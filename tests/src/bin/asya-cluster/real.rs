//! `asya-cluster real -- COMMAND`.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use asya_tests::build::{self, Part};
use asya_tests::{Error, Result, real};

pub(crate) async fn real(command: &[String]) -> Result<ExitCode> {
    if let Some(reason) = real::impossible().await {
        return Ok(skip(&reason));
    }
    // The box has no network, so everything is built before entering it.
    let parts = [
        Part::ControlPlane,
        Part::Tools,
        Part::RabbitMq,
        Part::Sqs,
        Part::Keda,
    ];
    for part in Part::REAL.into_iter().chain(parts) {
        match build::ensure(part).await {
            Err(Error::Missing(reason)) => return Ok(skip(&reason)),
            built => built?,
        };
    }
    if let Some(reason) = real::insufficient().await {
        return Ok(skip(&reason));
    }
    // Replaces this process, so that the command receives its signals.
    let error = std::process::Command::new(real::box_script())
        .args(command)
        .exec();
    Err(Error::other(error))
}

/// Reports a skip as success, with the reason.
fn skip(reason: &str) -> ExitCode {
    println!("skipped: {reason}");
    ExitCode::SUCCESS
}
