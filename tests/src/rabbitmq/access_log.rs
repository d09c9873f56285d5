//! Reads the access log of RabbitMQ's management API: who sent which requests.

use std::path::PathBuf;

use crate::error::{Context, Result};

/// The access log of the management API.
#[derive(Debug, Clone)]
pub struct AccessLog {
    folder: PathBuf,
}

/// A position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(usize);

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The authenticated user.
    pub user: String,
    /// HTTP method, such as `GET`.
    pub method: String,
    /// The path and query, percent-encoded as sent.
    pub path: String,
    /// The HTTP status of the response.
    pub status: u16,
    /// The `User-Agent`.
    pub agent: String,
}

impl AccessLog {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The current end of the log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn mark(&self) -> Result<Mark> {
        Ok(Mark(self.all()?.len()))
    }

    /// The requests by a user after a mark.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn calls_since(&self, mark: Mark, user: &str) -> Result<Vec<Call>> {
        let calls = self.all()?;
        Ok(calls
            .into_iter()
            .skip(mark.0)
            .filter(|call| call.user == user)
            .collect())
    }

    fn all(&self) -> Result<Vec<Call>> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(&self.folder)
            .context(format_args!("read {}", self.folder.display()))?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        // RabbitMQ writes one file per hour, whose name contains the hour.
        files.sort();
        let mut calls = Vec::new();
        for file in files {
            let text = std::fs::read(&file).context(format_args!("read {}", file.display()))?;
            calls.extend(String::from_utf8_lossy(&text).lines().filter_map(parse));
        }
        Ok(calls)
    }
}

/// `PEER - USER [TIME] "METHOD PATH HTTP/1.1" STATUS SIZE "REFERER" "AGENT"`
fn parse(line: &str) -> Option<Call> {
    let mut parts = line.split('"');
    let user = parts.next()?.split(' ').nth(2)?.to_owned();
    let mut request = parts.next()?.split(' ');
    let (method, path) = (request.next()?.to_owned(), request.next()?.to_owned());
    let status = parts.next()?.split_whitespace().next()?.parse().ok()?;
    let agent = parts.nth(2).unwrap_or_default().to_owned();
    Some(Call {
        user,
        method,
        path,
        status,
        agent,
    })
}

#[cfg(test)]
mod tests;
