//! `asya-cluster real -- COMMAND`.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use asya_tests::build::{self, Component};
use asya_tests::{Error, Result, real};

pub(crate) async fn real(command: &[String]) -> Result<ExitCode> {
    if let Some(reason) = real::impossible().await {
        return skip(&reason);
    }
    // The sandbox has no network, so everything is built before entering it.
    let parts = [
        Component::ControlPlane,
        Component::Tools,
        Component::RabbitMq,
        Component::Sqs,
        Component::Keda,
    ];
    for component in Component::REAL.into_iter().chain(parts) {
        match build::ensure(component).await {
            Err(Error::Missing(reason)) => return skip(&reason),
            built => built?,
        };
    }
    if let Some(reason) = real::insufficient().await {
        return skip(&reason);
    }
    // Replaces this process, so that the command receives its signals.
    let error = std::process::Command::new(real::sandbox_script())
        .args(command)
        .exec();
    Err(Error::other(error))
}

/// Reports a skip as success, with the reason; as an error if `ASYA_REQUIRE_REAL` is set.
fn skip(reason: &str) -> Result<ExitCode> {
    if std::env::var_os("ASYA_REQUIRE_REAL").is_some_and(|value| !value.is_empty()) {
        return Err(Error::Missing(format!(
            "no real pods, which ASYA_REQUIRE_REAL asks for: {reason}"
        )));
    }
    println!("skipped: {reason}");
    Ok(ExitCode::SUCCESS)
}
