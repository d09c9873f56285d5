//! An SQS server from PyPI, in its own virtual environment.

use std::path::{Path, PathBuf};

use super::cache;
use crate::error::{Error, Result};
use crate::process::{self, Spec};

/// Pinned, because newer versions of the dependencies do not work with this server.
const PACKAGES: [&str; 5] = [
    "localstack-core[base-runtime]==4.13.1",
    "cbor2==5.8.0",
    "pyOpenSSL==25.3.0",
    "cryptography==46.0.7",
    "service_identity<26",
];

pub(super) async fn ensure() -> Result<PathBuf> {
    let missing = || {
        Error::Missing("Python is missing: install Python 3.10 or newer with its venv module (packages python3, python3-venv)".to_owned())
    };
    let python = |args: &[&str]| Spec::new("python3", "python3").inherit_env().args(args);
    let check =
        "import sys, venv, ensurepip; assert sys.version_info >= (3, 10); print(sys.version)";
    let version = process::output(python(&["-c", check]))
        .await
        .map_err(|_| missing())?;
    let packages = PACKAGES.join(" ");
    let key = cache::key([packages.as_bytes(), version.as_bytes()]);
    let entry = cache::entry(
        "sqs",
        &key,
        "an SQS server in a Python environment (once; about 1 minute)",
        async |out| {
            process::output(python(&["-m", "venv"]).arg(out.display())).await?;
            let pip = Spec::new("pip", in_venv(out)).inherit_env();
            process::output(
                pip.args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args(PACKAGES),
            )
            .await
            .map(drop)
        },
    )
    .await?;
    Ok(entry.join("bin"))
}

/// The interpreter in a virtual environment finds the environment by its own path, so the folder can be renamed; the
/// scripts next to it contain the path.
fn in_venv(folder: &Path) -> PathBuf {
    folder.join("bin/python3")
}
