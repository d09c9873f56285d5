//! Completion scripts and manual pages, generated from the definitions of commands and flags.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::answer::{Answer, Failure, Report};
use crate::args::Cli;

pub fn completion(shell: Shell) -> Report {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kubectl-asya", &mut script);
    Report::new(String::from_utf8_lossy(&script).into_owned(), Answer::Fine)
}

/// Writes one manual page per command into a folder.
///
/// # Errors
/// If the folder cannot be written.
pub fn manual(folder: &Path) -> Result<Report, Failure> {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| {
        let folder = folder.display();
        Failure::new(format!(
            "{folder}: {error}; name a folder that you may write to"
        ))
    })?;
    let text = format!("manual pages written to {}\n", folder.display());
    Ok(Report::new(text, Answer::Fine))
}
