//! Distribution packages, for parts that are too expensive to build.

use std::path::Path;

use super::cache;
use crate::error::{Error, Result};
use crate::process::{self, Spec};

/// Returns the result of `find`, after installing these packages if it finds nothing. `service` is a service that a
/// package starts although the harness does not need it, if there is one.
///
/// # Errors
/// When the packages are missing and cannot be installed: one line that names them.
pub(super) async fn ensure<T>(
    what: &str,
    packages: &[&str],
    service: Option<&str>,
    find: impl Fn() -> Option<T>,
) -> Result<T> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let list = packages.join(" ");
    let missing = || {
        let noun = if packages.len() == 1 {
            "package"
        } else {
            "packages"
        };
        Error::Missing(format!("{what} is missing: install the {noun} {list}"))
    };
    if !rustix::process::getuid().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(missing());
    }
    // The entry is empty; its lock keeps two harnesses from installing at the same time.
    let entry = cache::entry(
        packages.first().copied().unwrap_or(what),
        "package",
        &format!("{what}, that is: installing {list} (once; about 1 minute)"),
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
            let install = ["install", "-y", "-qq", "--no-install-recommends"];
            for step in [apt(&["update", "-qq"]), apt(&install).args(packages)] {
                process::output(step).await.map_err(|error| {
                    Error::Missing(format!("{what} is missing, and not to be had: {error}"))
                })?;
            }
            if let Some(service) = service
                && Path::new("/run/systemd/system").exists()
            {
                let systemctl = Spec::new("systemctl", "systemctl").inherit_env();
                process::output(systemctl.args(["disable", "--now", service])).await?;
            }
            Ok(())
        },
    )
    .await;
    let _ = std::fs::remove_dir_all(entry?);
    find().ok_or_else(missing)
}
