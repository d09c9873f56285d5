//! RabbitMQ comes from the distribution: it needs Erlang, which nobody wants
//! to build.

use std::path::{Path, PathBuf};

use super::cache;
use crate::error::{Error, Result};
use crate::process::{self, Spec};

/// Where the packages of the distributions put the scripts that do not change
/// the user (those on the PATH do).
const FOLDERS: [&str; 3] = [
    "/usr/lib/rabbitmq/bin",
    "/usr/lib64/rabbitmq/bin",
    "/opt/rabbitmq/sbin",
];

pub(super) async fn ensure() -> Result<PathBuf> {
    if let Some(folder) = find() {
        return Ok(folder);
    }
    let missing =
        || Error::Missing("RabbitMQ is missing: install the package rabbitmq-server".to_owned());
    if !rustix::process::getuid().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(missing());
    }
    // The entry holds nothing; its lock keeps two harnesses from installing at once.
    let entry = cache::entry(
        "rabbitmq",
        "package",
        "nothing: the package rabbitmq-server is installed (once; about 1 minute)",
        async |_| {
            if find().is_some() {
                return Ok(());
            }
            let apt = |args: &[&str]| {
                Spec::new("apt-get", "/usr/bin/apt-get")
                    .inherit_env()
                    .env("DEBIAN_FRONTEND", "noninteractive")
                    .args(args)
            };
            process::output(apt(&["update", "-qq"])).await?;
            // The package would start a server of its own, on all interfaces.
            let quiet = [
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
                "rabbitmq-server",
            ];
            process::output(apt(&quiet).env("RUNLEVEL", "1"))
                .await
                .map(drop)
        },
    )
    .await;
    if let Ok(entry) = entry {
        let _ = std::fs::remove_dir_all(entry);
    }
    find().ok_or_else(missing)
}

fn find() -> Option<PathBuf> {
    FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|folder| folder.join("rabbitmq-server").exists())
}
