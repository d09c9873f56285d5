//! An SQS server, and a client for tests.

use std::path::Path;

use crate::build::{self, Component};
use crate::error::Result;
use crate::process::Process;

mod admin;
pub(crate) mod server;

pub use admin::Sqs;

/// Starts a server without a cluster; returns its URL.
///
/// # Errors
/// When it cannot be started.
pub async fn serve(folder: &Path) -> Result<(String, Process)> {
    let bin = build::ensure(Component::Sqs).await?;
    server::start(&bin, folder, "127.0.0.1").await
}

/// A client of a server at this URL.
///
/// # Errors
/// When the client cannot be created.
pub fn client(url: &str) -> Result<Sqs> {
    Sqs::new(url)
}
