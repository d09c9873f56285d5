//! What can go wrong in the harness, in words that say what to do.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the harness or of a scenario.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something must be installed or built first; one line that says what.
    #[error("{0}")]
    Missing(String),
    /// A file, folder or process could not be handled.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A part ended by itself.
    #[error("{name} ended ({status}); the end of its log {}:\n{lines}", .log.display())]
    PartDied {
        /// The part.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        lines: String,
    },
    /// A condition did not come true in time.
    #[error("after {timeout:?} still not: {what}; last seen: {last}")]
    Timeout {
        /// The condition.
        what: String,
        /// How long it was waited for.
        timeout: Duration,
        /// What the last look saw.
        last: String,
    },
    /// The API server refused or could not be reached.
    #[error("Kubernetes: {0}")]
    Kubernetes(#[from] kube::Error),
    /// An HTTP call failed.
    #[error("HTTP: {0:?}")]
    Http(#[from] reqwest::Error),
    /// JSON could not be read or written.
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// A failure told in one sentence.
    pub fn other(message: impl Display) -> Self {
        Self::Other(message.to_string())
    }
}

/// Says what was tried when an I/O operation fails.
pub(crate) trait Trying<T> {
    /// Adds what was tried.
    fn trying(self, what: impl Display) -> Result<T>;
}

impl<T> Trying<T> for std::io::Result<T> {
    fn trying(self, what: impl Display) -> Result<T> {
        self.map_err(|source| Error::Io {
            what: what.to_string(),
            source,
        })
    }
}
