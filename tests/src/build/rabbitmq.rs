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
        "RabbitMQ, that is: installing the package rabbitmq-server (once; about 1 minute)",
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
            let install = ["install", "-y", "-qq", "--no-install-recommends"];
            process::output(apt(&install).arg("rabbitmq-server")).await?;
            if Path::new("/run/systemd/system").exists() {
                // The package starts a server of its own, on all interfaces.
                let systemctl = Spec::new("systemctl", "systemctl").inherit_env();
                process::output(systemctl.args(["disable", "--now", "rabbitmq-server"])).await?;
            }
            Ok(())
        },
    )
    .await;
    let _ = std::fs::remove_dir_all(entry?);
    find().ok_or_else(missing)
}

fn find() -> Option<PathBuf> {
    FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|folder| folder.join("rabbitmq-server").exists())
}
