//! How results are written: tables that fit the terminal, JSON and YAML.

mod age;
mod style;
mod table;
mod wrap;

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

pub use age::{age, since};
pub use style::{Paint, paint};
pub use table::Table;
pub use wrap::{continued, wrapped};

use crate::answer::{Failure, Report};

/// Output formats, as kubectl names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    // Help stays short without a text per value.
    Wide,
    Json,
    Yaml,
}

impl Format {
    /// Writes a value as JSON or YAML, or as what `text` makes of it.
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

/// Pretty-printed JSON with a final newline.
///
/// # Errors
/// If the value cannot be serialised.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    Ok(text + "\n")
}

/// Columns of the terminal that standard output is; `None` for pipes and files, whose lines are not broken, whatever
/// standard error is.
pub fn terminal_width() -> Option<usize> {
    columns(terminal_size::terminal_size_of(io::stdout()))
}

/// Prints a report's text to standard output, without colours where it is no terminal, and its notes to standard error.
///
/// # Errors
/// If nobody reads standard output any more.
pub fn print(report: &Report) -> io::Result<()> {
    let mut out = anstream::stdout();
    let printed = out
        .write_all(report.text.as_bytes())
        .and_then(|()| out.flush());
    for note in &report.notes {
        print_error(&format!("note: {note}"));
    }
    printed
}

/// Prints a line to standard error, broken at spaces if that is a terminal.
pub fn print_error(line: &str) {
    let width = columns(terminal_size::terminal_size_of(io::stderr()));
    for line in wrapped(line, width) {
        eprintln!("{line}");
    }
}

fn columns(size: Option<(terminal_size::Width, terminal_size::Height)>) -> Option<usize> {
    size.map(|(width, _)| usize::from(width.0).max(40))
}
