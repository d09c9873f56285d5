//! Errors of the harness. Their messages say what to do.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the harness or of a scenario.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something must be installed or built first; one line that says what.
    #[error("{0}")]
    Missing(String),
    /// An operation on a file, folder or process failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A process exited on its own.
    #[error("{name} ended ({status}); the end of its log {}:\n{lines}", .log.display())]
    ProcessDied {
        /// The process's name.
        name: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        lines: String,
    },
    /// A condition did not become true in time.
    #[error("after {timeout:?} still not: {what}; last seen: {last}")]
    Timeout {
        /// The condition.
        what: String,
        /// The time limit.
        timeout: Duration,
        /// What the last attempt saw.
        last: String,
    },
    /// The API server rejected a request or could not be reached.
    #[error("Kubernetes: {0}")]
    Kubernetes(#[from] kube::Error),
    /// An HTTP request failed.
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
    /// An error with a one-sentence message.
    pub fn other(message: impl Display) -> Self {
        Self::Other(message.to_string())
    }
}

impl From<asya_owners::error::Error> for Error {
    fn from(error: asya_owners::error::Error) -> Self {
        match error {
            asya_owners::error::Error::Kubernetes(error) => Self::Kubernetes(error),
            asya_owners::error::Error::Json(error) => Self::Json(error),
        }
    }
}

/// Adds context to I/O errors.
pub(crate) trait Context<T> {
    /// Adds the operation that failed.
    fn context(self, what: impl Display) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl Display) -> Result<T> {
        self.map_err(|source| Error::Io {
            what: what.to_string(),
            source,
        })
    }
}
