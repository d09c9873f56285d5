//! Builds the images of all pods locally; nothing is pulled.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{
    CRASHING_SIDECAR_IMAGE, NEXT_SIDECAR_IMAGE, OPERATOR_IMAGE, PAUSE_IMAGE, PYTHON_IMAGE, Page,
    REGISTRY,
};
use crate::build;
use crate::error::{Context, Error, Result};
use crate::operator::PROGRAMS;
use crate::process::{self, Spec};

/// The sidecar's program, and the name of its image.
const SIDECAR: &str = "asya-sidecar";

/// The page whose images are built under the names it uses.
const INSTALL: &str = "docs/install.md";

/// The folders that images are built from.
pub(super) struct Sources<'a> {
    /// The operator's programs.
    pub(super) programs: &'a Path,
    /// The `pause` program.
    pub(super) node: &'a Path,
    /// Python's layer.
    pub(super) python: &'a Path,
}

/// Builds one archive of all images in a folder, and returns its path.
pub(super) async fn archive(folder: &Path, sources: &Sources<'_>) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).context(format_args!("make {}", folder.display()))?;
    let (pause, pods, operator, sidecar) = tokio::try_join!(
        pause(folder, sources.node),
        pods(folder),
        shipped(folder, "operator", sources.programs, &PROGRAMS),
        shipped(folder, "sidecar", sources.programs, &[SIDECAR]),
    )?;
    let python = Layer::take(folder, "python", &sources.python.join("layer.tar")).await?;
    let [operator_to_install, sidecar_to_install] = Page::read(INSTALL)?.images()?;
    let default = default_tag()?;
    let (repository, tag) = OPERATOR_IMAGE;
    let stand_in = |name: &str, program: &[&str]| {
        let start = [&["/usr/bin/python3"], program].concat();
        let config = json!({
            "Entrypoint": start,
            "Env": ["PATH=/usr/bin:/bin", "PYTHONPATH=/pods"],
        });
        (name.to_owned(), vec![&python, &pods], config)
    };
    // The same configurations as in the shipped images (`image/archive.py`).
    let shipped_operator = |name: String| {
        let config =
            json!({"User": "65532:65532", "WorkingDir": "/", "Entrypoint": ["/asya-controller"]});
        (name, vec![&operator], config)
    };
    let shipped_sidecar = |name: &str| {
        let config = json!({
            "User": "65532:65532", "WorkingDir": "/", "Entrypoint": ["/asya-sidecar"],
            "Env": ["MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=1048576"],
        });
        (name.to_owned(), vec![&sidecar], config)
    };
    let images = [
        (
            PAUSE_IMAGE.to_owned(),
            vec![&pause],
            json!({"Entrypoint": ["/pause"]}),
        ),
        stand_in(PYTHON_IMAGE, &[]),
        stand_in(CRASHING_SIDECAR_IMAGE, &["/pods/sidecar.py"]),
        shipped_sidecar(&format!("{REGISTRY}/{SIDECAR}:{tag}")),
        shipped_sidecar(NEXT_SIDECAR_IMAGE),
        shipped_sidecar(&sidecar_to_install),
        shipped_sidecar(&format!("docker.io/library/{SIDECAR}:{default}")),
        // The image of the first actor of docs/install.md, and the default runtime image of bindings.
        stand_in("docker.io/me/hello:1", &[]),
        stand_in("docker.io/library/python:3.13-slim", &[]),
        // The name that the KAITO simulator uses.
        stand_in(
            "docker.io/library/kaito-base:first",
            &["/pods/model.py", "5000"],
        ),
        shipped_operator(format!("{repository}:{tag}")),
        shipped_operator(operator_to_install),
        shipped_operator(format!("docker.io/library/asya-operator:{default}")),
    ];
    let mut manifest = Vec::new();
    for (number, (name, layers, config)) in images.into_iter().enumerate() {
        let file = format!("config{number}.json");
        let digests: Vec<_> = layers.iter().map(|layer| &layer.digest).collect();
        write(
            &folder.join(&file),
            &json!({
                "architecture": architecture(),
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": digests},
            })
            .to_string(),
        )?;
        let layers: Vec<_> = layers.iter().map(|layer| &layer.file).collect();
        manifest.push(json!({"Config": file, "RepoTags": [name], "Layers": layers}));
    }
    let manifest = Value::Array(manifest).to_string();
    write(&folder.join("manifest.json"), &manifest)?;
    let archive = folder.with_extension("tar");
    process::output(build::tar(folder, &archive)).await?;
    std::fs::remove_dir_all(folder).context(format_args!("remove {}", folder.display()))?;
    Ok(archive)
}

/// The tag of images whose names are the chart's defaults.
fn default_tag() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/asya-operator/Chart.yaml");
    let text = std::fs::read_to_string(&path).context(format_args!("read {}", path.display()))?;
    let mut lines = text.lines();
    let version = lines.find_map(|line| line.strip_prefix("appVersion: "));
    let missing = || Error::Other(format!("{} has no appVersion", path.display()));
    Ok(version.ok_or_else(missing)?.trim_matches('"').to_owned())
}

/// A layer in the archive's folder.
struct Layer {
    file: String,
    digest: String,
}

impl Layer {
    /// Packs a folder into a layer and removes the folder.
    async fn pack(folder: &Path, name: &str, root: &Path) -> Result<Self> {
        let packed = folder.with_extension(format!("{name}.tar"));
        process::output(build::tar(root, &packed)).await?;
        std::fs::remove_dir_all(root).context(format_args!("remove {}", root.display()))?;
        let layer = Self::take(folder, name, &packed).await?;
        std::fs::remove_file(&packed).context(format_args!("remove {}", packed.display()))?;
        Ok(layer)
    }

    /// Copies a packed layer into the archive's folder.
    async fn take(folder: &Path, name: &str, packed: &Path) -> Result<Self> {
        let file = format!("{name}.tar");
        let copy = folder.join(&file);
        std::fs::copy(packed, &copy).context(format_args!("write {}", copy.display()))?;
        let sum = Spec::new("sha256sum", "sha256sum").inherit_env();
        let told = process::output(sum.arg(copy.display())).await?;
        let digest = told.split(' ').next().unwrap_or_default();
        Ok(Self {
            file,
            digest: format!("sha256:{digest}"),
        })
    }
}

async fn pause(folder: &Path, node: &Path) -> Result<Layer> {
    let root = fresh(folder, "pause-root")?;
    copy(&node.join("pause"), &root.join("pause"))?;
    Layer::pack(folder, "pause", &root).await
}

/// The programs that stand in for those of users and other systems.
async fn pods(folder: &Path) -> Result<Layer> {
    let root = fresh(folder, "pods-root")?;
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("pods");
    let to = root.join("pods");
    std::fs::create_dir_all(&to).context(format_args!("make {}", to.display()))?;
    for entry in std::fs::read_dir(&from)
        .context(format_args!("read {}", from.display()))?
        .flatten()
    {
        let path = entry.path();
        if path.extension().is_some_and(|it| it == "py") {
            copy(&path, &to.join(entry.file_name()))?;
        }
    }
    let install = Page::read(INSTALL)?;
    write(&to.join("hello.py"), &install.block("", "python")?)?;
    Layer::pack(folder, "pods", &root).await
}

/// The files of a shipped image, laid out by the same script.
async fn shipped(folder: &Path, image: &str, programs: &Path, names: &[&str]) -> Result<Layer> {
    let stripped = fresh(folder, &format!("{image}-programs"))?;
    for name in names {
        let strip = Spec::new("strip", "strip").inherit_env();
        let strip = strip.arg("-o").arg(stripped.join(name).display());
        process::output(strip.arg(programs.join(name).display())).await?;
    }
    let root = fresh(folder, &format!("{image}-root"))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/root.sh");
    let lay_out = Spec::new("root.sh", script).inherit_env();
    let paths = names
        .iter()
        .map(|name| stripped.join(name).display().to_string());
    process::output(lay_out.arg(root.display()).args(paths)).await?;
    std::fs::remove_dir_all(&stripped).context(format_args!("remove {}", stripped.display()))?;
    Layer::pack(folder, image, &root).await
}

/// Creates a folder next to the archive's.
fn fresh(folder: &Path, name: &str) -> Result<PathBuf> {
    let fresh = folder.with_extension(name);
    std::fs::create_dir_all(&fresh).context(format_args!("make {}", fresh.display()))?;
    Ok(fresh)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).context(format_args!("copy {}", from.display()))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).context(format_args!("write {}", path.display()))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    }
}
