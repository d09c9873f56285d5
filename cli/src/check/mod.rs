//! `check`: whether the installation works. `check --pre`: whether the operator can be installed.

mod decide;
mod gather;
mod lease;
mod permissions;
mod reading;
mod render;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::answer::{Answer, Failure, Report};
use crate::args::CheckArgs;
use crate::cluster::Connection;
use crate::output;

/// Checks the installation. Exit code 1: there are findings, with `--strict` also if all of them are warnings; 2: a
/// part could not be checked, and the rest is fine.
///
/// # Errors
/// If the API server cannot be reached.
pub async fn run(connection: &Connection, args: &CheckArgs) -> Result<Report, Failure> {
    let cluster = Arc::new(connection.open().await?);
    let mut notes = Vec::new();
    let checks = if args.pre {
        decide::before_installing(&gather::before_installing(&cluster).await?)
    } else {
        let timeout = connection.args().timeout;
        let mut observed = Box::pin(gather::installed(&cluster, timeout)).await?;
        notes.append(&mut observed.notes);
        decide::installed(&observed, Timestamp::now())
    };
    let text = args
        .output
        .output
        .write(&checks, || render::text(&checks, output::terminal_width()))?;
    let worst = checks
        .iter()
        .map(|check| check.answer(args.strict))
        .max_by_key(|answer| match answer {
            Answer::Fine => 0,
            Answer::Unknown => 1,
            Answer::Findings | Answer::Interrupted => 2,
        });
    Ok(Report::new(text, worst.unwrap_or(Answer::Fine)).with_notes(notes))
}
