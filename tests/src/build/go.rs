//! The parts that are built from the Go modules in `cluster/`.

use std::path::{Path, PathBuf};

use super::cache;
use crate::error::{Error, Result, Trying};
use crate::process::{self, Spec};

/// Part of the cache key. Increment it when the build commands below change.
const RECIPE: &[u8] = b"1";

const KEDA: &str = "github.com/kedacore/keda/v2";

const COMPONENTS: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
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
    build("control-plane", hint, async |module, out| {
        let ldflags = kubernetes_flags(module)?;
        let bin = out.join("bin");
        let binary = bin.join("controlplane").display().to_string();
        go_build(module, &["-o", &binary, "-ldflags", &ldflags, "."]).await?;
        link(&bin, "controlplane", &COMPONENTS)
    })
    .await
}

pub(super) async fn node() -> Result<PathBuf> {
    let hint = "kubelet and kube-proxy (once; about 2 minutes)";
    build("node", hint, async |module, out| {
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
    build("dns", hint, async |module, out| {
        let binary = out.join("bin/coredns").display().to_string();
        go_build(module, &["-o", &binary, "-ldflags", "-s -w", "."]).await
    })
    .await
}

/// Linker flags that set the version, which Helm's `kubeVersion` check, kubectl and node status read.
fn kubernetes_flags(module: &Path) -> Result<String> {
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
        std::os::unix::fs::symlink(binary, bin.join(name)).trying("link a component")?;
    }
    Ok(())
}

pub(super) async fn tools() -> Result<PathBuf> {
    let hint = "kwok, helm 4 and kubeconform (once; about 2 minutes)";
    build("tools", hint, async |module, out| {
        let bin = format!("{}/", out.join("bin").display());
        go_build(module, &["-ldflags", "-s -w", "-o", &bin, "tool"]).await?;
        let stock = module_folder(module, "sigs.k8s.io/kwok").await?;
        let stock = stock.join("kustomize/stage");
        let stages = out.join("stages");
        std::fs::create_dir_all(&stages).trying("make a folder for stages")?;
        for stage in STAGES {
            let from = stock.join(stage);
            let text = std::fs::read(&from).trying(format_args!("read {}", from.display()))?;
            let name = from.file_name().unwrap_or_default();
            std::fs::write(stages.join(name), text).trying("write a stage")?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn helm3() -> Result<PathBuf> {
    build(
        "helm3",
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
    build("argocd", hint, async |module, out| {
        let binary = out.join("bin/argocd").display().to_string();
        go_build(module, &["-ldflags", "-s -w", "-o", &binary, "."]).await
    })
    .await
}

pub(super) async fn keda() -> Result<PathBuf> {
    let hint = "KEDA's operator and metrics adapter (once; about 10 minutes)";
    build("keda", hint, async |module, out| {
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
    std::fs::create_dir_all(to).trying(format_args!("make {}", to.display()))?;
    for file in std::fs::read_dir(from).trying(reading())? {
        let file = file.trying(reading())?;
        let text = std::fs::read(file.path()).trying(reading())?;
        let copy = to.join(file.file_name());
        std::fs::write(&copy, text).trying(format_args!("write {}", copy.display()))?;
    }
    Ok(())
}

async fn build<B>(part: &str, hint: &str, compile: B) -> Result<PathBuf>
where
    B: AsyncFnOnce(&Path, &Path) -> Result<()>,
{
    let module = modules().join(part);
    let read = |name: &str| match std::fs::read(module.join(name)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && name.ends_with("main.go") => {
            Ok(Vec::new())
        }
        other => other.trying(format_args!("read {}", module.join(name).display())),
    };
    let (manifest, sums, main) = (read("go.mod")?, read("go.sum")?, read("main.go")?);
    let version = version(&module).await?;
    let pause = read("pause/main.go")?;
    let mut inputs = vec![RECIPE, &manifest, &sums, &main, version.as_bytes()];
    if !pause.is_empty() {
        inputs.push(&pause);
    }
    let key = cache::key(inputs);
    let entry = cache::entry(part, &key, hint, async |out| compile(&module, out).await).await?;
    Ok(entry.join("bin"))
}

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster")
}

/// Returns the version of the installed Go, which must be at least the module's: never download another toolchain
/// silently.
async fn version(module: &Path) -> Result<String> {
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

/// The version that `go.mod` has for a name.
fn required_version(module: &Path, name: &str) -> Result<String> {
    let path = module.join("go.mod");
    let text = std::fs::read_to_string(&path).trying(format_args!("read {}", path.display()))?;
    text.lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(name)?
                .strip_prefix(' ')
                .map(str::to_owned)
        })
        .ok_or_else(|| Error::Other(format!("{} does not name {name}", path.display())))
}

/// The folder with the source of a required module.
async fn module_folder(module: &Path, required: &str) -> Result<PathBuf> {
    let list = go(module).args(["list", "-m", "-f", "{{.Dir}}", required]);
    Ok(PathBuf::from(process::output(list).await?.trim()))
}

/// Runs Go at low priority, since a cluster may run beside a build (`make demo`).
fn go(module: &Path) -> Spec {
    Spec::new("go", "nice")
        .inherit_env()
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .args(["-n", "10", "go", "-C"])
        .arg(module.display())
}

async fn go_build(module: &Path, args: &[&str]) -> Result<()> {
    let spec = go(module)
        .args(["build", "-p", "2", "-trimpath", "-buildvcs=false"])
        .args(args);
    process::output(spec).await.map(drop)
}
