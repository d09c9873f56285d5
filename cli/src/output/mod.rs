//! Writes results: tables that fit the terminal, JSON and YAML.

mod age;
mod escape;
mod style;
mod table;
mod wrap;

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

pub use age::{age, since};
pub use escape::escaped;
pub use style::{Paint, paint};
pub use table::Table;
pub use wrap::{continued, wrapped};

use crate::answer::{Failure, Report};

/// Output formats, as kubectl names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    // Values have no help text of their own, which keeps the help short.
    Wide,
    Json,
    Yaml,
}

impl Format {
    /// Writes a value as JSON or YAML, or as text with `text`.
    ///
    /// # Errors
    /// If the value cannot be serialised.
    pub fn write<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        match self {
            Self::Table | Self::Wide => Ok(text()),
            Self::Json => json(value),
            Self::Yaml => serde_saphyr::to_string(value)
                .map_err(|error| Failure::new(format!("cannot write YAML: {error}"))),
        }
    }
}

/// Pretty-printed JSON with a trailing newline.
///
/// # Errors
/// If the value cannot be serialised.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    Ok(escape::in_json(text) + "\n")
}

/// Width of standard output, if it is a terminal; `None` for pipes and files, whose lines are never wrapped, whatever
/// standard error is.
pub fn terminal_width() -> Option<usize> {
    columns(terminal_size::terminal_size_of(io::stdout()))
}

/// Moves the cursor home and clears the screen.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Clears the terminal of standard output.
///
/// # Errors
/// If standard output cannot be written.
pub fn clear_screen() -> io::Result<()> {
    io::stdout().write_all(CLEAR)
}

/// Prints a report's text to standard output, without colours unless it is a terminal, and its notes to standard error.
/// Control characters are escaped.
///
/// # Errors
/// If standard output cannot be written; see [`failure`].
pub fn print(report: &Report) -> io::Result<()> {
    let mut out = anstream::stdout();
    let printed = out
        .write_all(escape::without_commands(&report.text).as_bytes())
        .and_then(|()| out.flush());
    for note in &report.notes {
        print_error(&format!("note: {note}"));
    }
    printed
}

/// The failure for an error of standard output: none if the reader, such as `head`, has seen enough.
pub fn failure(error: &io::Error) -> Option<Failure> {
    let is_failure = error.kind() != io::ErrorKind::BrokenPipe;
    is_failure.then(|| Failure::new(format!("standard output: {error}")))
}

/// Prints a line to standard error, wrapped at spaces if it is a terminal. Control characters are escaped.
pub fn print_error(line: &str) {
    let width = columns(terminal_size::terminal_size_of(io::stderr()));
    let mut err = io::stderr().lock();
    for line in wrapped(&escaped(line), width) {
        // There is nowhere left to report to.
        let _ = writeln!(err, "{line}");
    }
}

/// Writes a question to standard error; the answer follows on the same line. Control characters are escaped.
pub fn ask(question: &str) {
    let mut err = io::stderr().lock();
    let asked = write!(err, "{} [y/N] ", escaped(question));
    // There is nowhere left to report to.
    let _ = asked.and_then(|()| err.flush());
}

fn columns(size: Option<(terminal_size::Width, terminal_size::Height)>) -> Option<usize> {
    size.map(|(width, _)| usize::from(width.0).max(40))
}
