//! RabbitMQ from the distribution, since building it would need Erlang.

use std::path::PathBuf;

use super::packages;
use crate::error::Result;

/// Where the distributions put the scripts that do not switch the user; those on the PATH do.
const FOLDERS: [&str; 3] = [
    "/usr/lib/rabbitmq/bin",
    "/usr/lib64/rabbitmq/bin",
    "/opt/rabbitmq/sbin",
];

pub(super) async fn ensure() -> Result<PathBuf> {
    // The package starts its own server, on all interfaces.
    packages::ensure("RabbitMQ", &["rabbitmq-server"], "rabbitmq-server", find).await
}

fn find() -> Option<PathBuf> {
    FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|folder| folder.join("rabbitmq-server").exists())
}
