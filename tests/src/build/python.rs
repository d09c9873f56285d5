//! This machine's Python as an image layer.

use std::path::{Path, PathBuf};

use super::cache;
use crate::error::{Context, Result};
use crate::process::{self, Spec};

/// Returns the folder that holds `layer.tar`.
pub(super) async fn ensure() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("pods/root.py");
    let text = std::fs::read(&script).context(format_args!("read {}", script.display()))?;
    let python = || Spec::new("python3", "python3").inherit_env();
    let says = "import sys; print(sys.version, sys.executable)";
    let version = process::output(python().args(["-c", says])).await?;
    let key = cache::key([text.as_slice(), version.as_bytes()]);
    cache::entry("python", &key, "an image of Python (once)", async |out| {
        let root = out.join("root");
        let lay_out = python().arg(script.display()).arg(root.display());
        process::output(lay_out).await?;
        process::output(tar(&root, &out.join("layer.tar"))).await?;
        std::fs::remove_dir_all(&root).context(format_args!("remove {}", root.display()))
    })
    .await
}

/// Packs a folder's files into an image layer.
pub(crate) fn tar(folder: &Path, file: &Path) -> Spec {
    Spec::new("tar", "tar")
        .inherit_env()
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "-C",
        ])
        .arg(folder.display())
        .arg("-cf")
        .arg(file.display())
        .arg(".")
}
