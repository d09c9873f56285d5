//! `kubectl-asya`: inspects, explains and operates Asya's `AsyncActor`s from a terminal. It runs as `kubectl asya`,
//! uses only the user's kubeconfig and permissions, and changes nothing unless the command's name says so.
//!
//! Each command is a folder with the same three parts: `mod.rs` gathers what it needs from files and the cluster, pure
//! functions decide, and `render.rs` writes the result as text.

// All output goes through `output`, which escapes control sequences.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod actor;
mod answer;
mod args;
mod bundle;
mod catalogue;
mod change;
mod check;
mod cluster;
mod consent;
mod explain;
mod generate;
mod installation;
mod interrupt;
mod lint;
mod manifests;
mod output;
mod preview;
mod queue;
mod resolved_target;
mod status;
mod trace;
mod values;
mod watch;
mod why;

use std::process::ExitCode;

use clap::Parser;

use crate::answer::{Answer, Failure, Report, within};
use crate::args::{Cli, Command};
use crate::change::RequestedChange;
use crate::cluster::Connection;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = runtime
        .map_err(|error| Failure::new(format!("cannot start: {error}")))
        .and_then(|runtime| runtime.block_on(run(cli)));
    match result {
        Ok(report) => {
            let printed = output::print(&report);
            match printed.err().and_then(|error| output::failure(&error)) {
                Some(failure) => failed(&failure),
                None => report.answer.into(),
            }
        }
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> ExitCode {
    output::print_error(&format!("error: {failure}"));
    Answer::Unknown.into()
}

/// Runs a command. `--timeout` limits all of its requests together; if it waits for the user or for messages, each
/// request separately.
async fn run(cli: Cli) -> Result<Report, Failure> {
    let Cli {
        command,
        connection,
    } = cli;
    let timeout = connection.timeout;
    let waits = command.waits();
    let connection = Connection::new(connection);
    if command.needs_cluster() {
        // Outside of the time for requests: the user may have to log in.
        match command {
            Command::Queue(_) => connection.open_for_streams().await?,
            _ => connection.open().await?,
        };
    }
    let command = Box::pin(dispatch(command, connection));
    if waits {
        return command.await;
    }
    within(timeout, command).await
}

async fn dispatch(command: Command, connection: Connection) -> Result<Report, Failure> {
    match command {
        Command::Lint(args) => lint::run(&args, connection.args()),
        Command::Preview(args) => preview::run(&connection, &args).await,
        Command::Why(args) => why::run(&connection, &args).await,
        Command::Status(args) => {
            let watched = args.watch.watch.then(|| status::watched(&args));
            watch::run(&connection, watched, async || {
                status::run(&connection, &args).await
            })
            .await
        }
        Command::Trace(args) => {
            let watched = args.watch.watch.then(|| trace::watched(&args));
            watch::run(&connection, watched, async || {
                trace::run(&connection, &args).await
            })
            .await
        }
        Command::Bundle(args) => bundle::run(&connection, &args).await,
        Command::Explain(args) => explain::run(&args),
        Command::Queue(args) => {
            let watched = args.watch.watch.then(|| queue::watched(&args));
            watch::run(&connection, watched, async || {
                queue::show(&connection, &args).await
            })
            .await
        }
        Command::Dlq(args) => queue::dead_letters(&connection, &args).await,
        Command::Send(args) => queue::send(&connection, &args).await,
        Command::Check(args) => check::run(&connection, &args).await,
        Command::Pause(args) => change::run(&connection, RequestedChange::Pause, &args).await,
        Command::Resume(args) => change::run(&connection, RequestedChange::Resume, &args).await,
        Command::Roll(args) => change::run(&connection, RequestedChange::Roll, &args).await,
        Command::Retain(args) => change::run(&connection, RequestedChange::Retain, &args).await,
        Command::Unbind(args) => change::unbind(&connection, &args).await,
        Command::Completion { shell } => Ok(generate::completion(shell)),
        Command::Man { folder } => generate::manual(&folder),
    }
}
