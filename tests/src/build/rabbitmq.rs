//! RabbitMQ from the distribution, since building it would need Erlang.

use std::path::{Path, PathBuf};

use super::{cache, packages};
use crate::error::{Context, Error, Result};
use crate::process::{self, Spec};

/// Selects a version other than the distribution's.
const VERSION: &str = "ASYA_TEST_RABBITMQ_VERSION";
/// Other versions, and the Debian releases that have them.
const RELEASES: [(&str, &str); 2] = [("4.0", "trixie"), ("4.3", "sid")];

/// Where the distributions install the scripts that do not switch the user, unlike those on the PATH.
const FOLDERS: [&str; 3] = [
    "/usr/lib/rabbitmq/bin",
    "/usr/lib64/rabbitmq/bin",
    "/opt/rabbitmq/sbin",
];

/// Runs the program with the script's name in the root file system next to it, which shares the machine's processes,
/// devices and temporary files. The mounts end with the program.
const WRAPPER: &str = r#"#!/bin/sh
set -e
root=$(dirname "$(readlink -f "$0")")/../root
exec unshare --mount sh -ec '
  root=$1; shift
  for folder in dev proc tmp; do mount --rbind "/$folder" "$root/$folder"; done
  exec chroot "$root" "$@"
' sh "$root" "/usr/lib/rabbitmq/bin/$(basename "$0")" "$@"
"#;

pub(super) async fn ensure() -> Result<PathBuf> {
    match std::env::var(VERSION) {
        Ok(version) if !version.is_empty() => of_version(&version).await,
        // The package starts its own server, on all interfaces.
        _ => {
            let service = Some("rabbitmq-server");
            packages::ensure("RabbitMQ", &["rabbitmq-server"], service, find).await
        }
    }
}

fn find() -> Option<PathBuf> {
    FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|folder| folder.join("rabbitmq-server").exists())
}

/// Installs the package of another release into its own root file system.
async fn of_version(version: &str) -> Result<PathBuf> {
    let Some((_, release)) = RELEASES.iter().find(|(it, _)| *it == version) else {
        let known = RELEASES.map(|(version, _)| version).join(", ");
        return Err(Error::Other(format!(
            "{VERSION} is {version}; the versions are {known}, and the distribution's if it is unset"
        )));
    };
    packages::ensure("debootstrap", &["debootstrap"], None, || {
        Path::new("/usr/sbin/debootstrap").exists().then_some(())
    })
    .await?;
    let key = cache::key([release.as_bytes(), WRAPPER.as_bytes()]);
    let hint = format!("RabbitMQ {version} of Debian {release} (once; about 2 minutes)");
    let entry = cache::entry("rabbitmq", &key, &hint, async |out| {
        let install = Spec::new("debootstrap", "/usr/sbin/debootstrap")
            .inherit_env()
            .args(["--variant=minbase", "--include=rabbitmq-server", release])
            .arg(out.join("root").display());
        process::output(install).await?;
        let hosts = out.join("root/etc/hosts");
        std::fs::write(&hosts, "127.0.0.1 localhost\n")
            .context(format_args!("write {}", hosts.display()))?;
        check_version(&out.join("root/usr/lib/rabbitmq/lib"), version)?;
        for program in ["rabbitmq-server", "rabbitmqctl"] {
            write_program(&out.join("bin").join(program))?;
        }
        Ok(())
    });
    Ok(entry.await?.join("bin"))
}

/// An unstable release may have moved on to another version.
fn check_version(folder: &Path, version: &str) -> Result<()> {
    let reading = || format!("read {}", folder.display());
    let expected = format!("rabbitmq_server-{version}.");
    let entries = std::fs::read_dir(folder).context(reading())?.flatten();
    let names: Vec<_> = entries.map(|it| it.file_name()).collect();
    if names
        .iter()
        .any(|name| name.to_string_lossy().starts_with(&expected))
    {
        return Ok(());
    }
    Err(Error::Other(format!(
        "{VERSION} is {version}, but the release has {names:?}"
    )))
}

fn write_program(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let writing = || format!("write {}", path.display());
    std::fs::write(path, WRAPPER).context(writing())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).context(writing())
}
