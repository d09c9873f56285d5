//! The parts that are built from the Go modules in `cluster/`.

use std::path::{Path, PathBuf};

use super::cache;
use crate::error::{Context, Error, Result};
use crate::process::{self, Spec};

/// Part of the cache key. Increment it when the build commands below change.
const RECIPE: &[u8] = b"1";

const KEDA: &str = "github.com/kedacore/keda/v2";

const COMPONENTS: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// The stock kwok stages that a cluster uses.
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

pub(super) async fn control_plane() -> Result<PathBuf> {
    let hint = "the Kubernetes control plane (once; about 5 minutes)";
    let module = Module::of_version("control-plane", "ASYA_TEST_KUBERNETES", "kubernetes")?;
    build(&module, hint, async |module, out| {
        let ldflags = kubernetes_flags(module)?;
        let bin = out.join("bin");
        let binary = bin.join("controlplane").display().to_string();
        go_build(module, &["-o", &binary, "-ldflags", &ldflags, "."]).await?;
        let kubectl = bin.join("kubectl").display().to_string();
        go_build(module, &["-o", &kubectl, "-ldflags", &ldflags, "./kubectl"]).await?;
        link(&bin, "controlplane", &COMPONENTS)
    })
    .await
}

pub(super) async fn node() -> Result<PathBuf> {
    let hint = "kubelet and kube-proxy (once; about 2 minutes)";
    build(&Module::new("node"), hint, async |module, out| {
        let ldflags = kubernetes_flags(module)?;
        let bin = out.join("bin");
        let binary = bin.join("node").display().to_string();
        go_build(module, &["-o", &binary, "-ldflags", &ldflags, "."]).await?;
        let pause = bin.join("pause").display().to_string();
        go_build(module, &["-o", &pause, "-ldflags", "-s -w", "./pause"]).await?;
        link(&bin, "node", &["kubelet", "kube-proxy"])
    })
    .await
}

pub(super) async fn dns() -> Result<PathBuf> {
    let hint = "CoreDNS (once; about 2 minutes)";
    build(&Module::new("dns"), hint, async |module, out| {
        let binary = out.join("bin/coredns").display().to_string();
        go_build(module, &["-o", &binary, "-ldflags", "-s -w", "."]).await
    })
    .await
}

/// Linker flags that set the version, which Helm's `kubeVersion` check, kubectl and node status read.
fn kubernetes_flags(module: &Module) -> Result<String> {
    let version = required_version(module, "k8s.io/kubernetes")?;
    let minor = version.split('.').nth(1).unwrap_or_default();
    let package = "k8s.io/component-base/version";
    let mut flags = "-s -w".to_owned();
    for (name, value) in [
        ("gitVersion", version.as_str()),
        ("gitMajor", "1"),
        ("gitMinor", minor),
        ("gitTreeState", "clean"),
        ("gitCommit", "0000000000000000000000000000000000000000"),
        ("buildDate", "2026-01-01T00:00:00Z"),
    ] {
        flags += " -X ";
        flags += &[package, ".", name, "=", value].concat();
    }
    Ok(flags)
}

/// Links names to a binary that chooses its component by the name it was started with.
fn link(bin: &Path, binary: &str, names: &[&str]) -> Result<()> {
    for name in names {
        std::os::unix::fs::symlink(binary, bin.join(name)).context("link a component")?;
    }
    Ok(())
}

pub(super) async fn tools() -> Result<PathBuf> {
    let hint = "kwok, helm 4 and kubeconform (once; about 2 minutes)";
    build(&Module::new("tools"), hint, async |module, out| {
        let bin = format!("{}/", out.join("bin").display());
        go_build(module, &["-ldflags", "-s -w", "-o", &bin, "tool"]).await?;
        let stock = module_folder(module, "sigs.k8s.io/kwok").await?;
        let stock = stock.join("kustomize/stage");
        let stages = out.join("stages");
        std::fs::create_dir_all(&stages).context("make a folder for stages")?;
        for stage in STAGES {
            let from = stock.join(stage);
            let text = std::fs::read(&from).context(format_args!("read {}", from.display()))?;
            let name = from.file_name().unwrap_or_default();
            std::fs::write(stages.join(name), text).context("write a stage")?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn helm3() -> Result<PathBuf> {
    build(
        &Module::new("helm3"),
        "helm 3 (once; about 1 minute)",
        async |module, out| {
            let binary = out.join("bin/helm3").display().to_string();
            go_build(
                module,
                &[
                    "-ldflags",
                    "-s -w",
                    "-o",
                    &binary,
                    "helm.sh/helm/v3/cmd/helm",
                ],
            )
            .await
        },
    )
    .await
}

pub(super) async fn argocd() -> Result<PathBuf> {
    let hint = "Argo CD's engine (once; about 3 minutes)";
    build(&Module::new("argocd"), hint, async |module, out| {
        let binary = out.join("bin/argocd").display().to_string();
        go_build(module, &["-ldflags", "-s -w", "-o", &binary, "."]).await
    })
    .await
}

pub(super) async fn keda() -> Result<PathBuf> {
    let hint = "KEDA's operator and metrics adapter (once; about 10 minutes)";
    let module = Module::of_version("keda", "ASYA_TEST_KEDA", "keda")?;
    build(&module, hint, async |module, out| {
        for program in ["operator", "adapter"] {
            let binary = out.join(format!("bin/keda-{program}"));
            let binary = binary.display().to_string();
            let package = format!("{KEDA}/cmd/{program}");
            go_build(module, &["-ldflags", "-s -w", "-o", &binary, &package]).await?;
        }
        let crds = module_folder(module, KEDA).await?.join("config/crd/bases");
        copy(&crds, &out.join("crds"))
    })
    .await
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let reading = || format!("read {}", from.display());
    std::fs::create_dir_all(to).context(format_args!("make {}", to.display()))?;
    for file in std::fs::read_dir(from).context(reading())? {
        let file = file.context(reading())?;
        let text = std::fs::read(file.path()).context(reading())?;
        let copy = to.join(file.file_name());
        std::fs::write(&copy, text).context(format_args!("write {}", copy.display()))?;
    }
    Ok(())
}

/// A Go module in `cluster/`, and which of its manifests is built.
struct Module {
    part: &'static str,
    folder: PathBuf,
    /// `go.mod`, or the manifest of another version of the part.
    manifest: PathBuf,
}

impl Module {
    fn new(part: &'static str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("cluster")
            .join(part);
        Self {
            part,
            manifest: folder.join("go.mod"),
            folder,
        }
    }

    /// The module with the version of `software` that an environment variable names, `1.30` for example.
    fn of_version(part: &'static str, variable: &str, software: &str) -> Result<Self> {
        let mut module = Self::new(part);
        let version = std::env::var(variable).unwrap_or_default();
        if !version.is_empty() {
            module.manifest = module.folder.join(format!("{software}-{version}.mod"));
            if !module.manifest.is_file() {
                return Err(Error::Other(format!(
                    "{variable} is {version}, but {} does not exist",
                    module.manifest.display()
                )));
            }
        }
        Ok(module)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        read_if_exists(&self.folder.join(name))
    }
}

fn read_if_exists(path: &Path) -> Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.context(format_args!("read {}", path.display())),
    }
}

async fn build<B>(module: &Module, hint: &str, compile: B) -> Result<PathBuf>
where
    B: AsyncFnOnce(&Module, &Path) -> Result<()>,
{
    let manifest = read_if_exists(&module.manifest)?;
    let sums = read_if_exists(&module.manifest.with_extension("sum"))?;
    let main = module.read("main.go")?;
    let version = version(module).await?;
    let pause = module.read("pause/main.go")?;
    let mut inputs = vec![RECIPE, &manifest, &sums, &main, version.as_bytes()];
    if !pause.is_empty() {
        inputs.push(&pause);
    }
    let key = cache::key(inputs);
    let built = async |out: &Path| compile(module, out).await;
    let entry = cache::entry(module.part, &key, hint, built).await?;
    Ok(entry.join("bin"))
}

/// Returns the version of the installed Go, which must satisfy the module: never download another toolchain silently.
async fn version(module: &Module) -> Result<String> {
    let wanted = required_version(module, "go")?;
    let missing = || {
        Error::Missing(format!(
            "Go {wanted} or newer is missing: install it and put `go` on the PATH"
        ))
    };
    let found = process::output(go(module).args(["env", "GOVERSION"]))
        .await
        .map_err(|_| missing())?;
    let number = |text: &str| -> Vec<u32> {
        text.trim()
            .trim_start_matches("go")
            .split('.')
            .map_while(|part| part.parse().ok())
            .collect()
    };
    if number(&found) < number(&wanted) {
        return Err(missing());
    }
    Ok(found)
}

/// The version of a dependency in the module's manifest.
fn required_version(module: &Module, name: &str) -> Result<String> {
    let path = module.manifest.display();
    let text = std::fs::read_to_string(&module.manifest).context(format_args!("read {path}"))?;
    text.lines()
        .find_map(|line| {
            let rest = line
                .trim()
                .trim_start_matches("require ")
                .strip_prefix(name)?;
            let version = rest.strip_prefix(' ')?;
            Some(version.to_owned())
        })
        .ok_or_else(|| Error::Other(format!("{path} does not name {name}")))
}

/// The source folder of a required module.
async fn module_folder(module: &Module, required: &str) -> Result<PathBuf> {
    let spec = go(module)
        .args(["list", "-m"])
        .args(module_flag(module))
        .args(["-f", "{{.Dir}}", required]);
    Ok(PathBuf::from(process::output(spec).await?.trim()))
}

fn module_flag(module: &Module) -> [String; 1] {
    [format!("-modfile={}", module.manifest.display())]
}

/// Runs Go at low priority, because a cluster may be running meanwhile (`make demo`).
fn go(module: &Module) -> Spec {
    Spec::new("go", "nice")
        .inherit_env()
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .args(["-n", "10", "go", "-C"])
        .arg(module.folder.display())
}

async fn go_build(module: &Module, args: &[&str]) -> Result<()> {
    let spec = go(module)
        .args(["build", "-p", "2", "-trimpath", "-buildvcs=false"])
        .args(module_flag(module))
        .args(args);
    process::output(spec).await.map(drop)
}
