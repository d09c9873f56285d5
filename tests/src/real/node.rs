//! The node's processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::images::{self, Sources};
use super::{ADDRESS, NODE, PAUSE_IMAGE};
use crate::build::{self, Component};
use crate::error::{Context, Result};
use crate::eventually::{NotYet, check, eventually};
use crate::operator::bin_folder;
use crate::ports;
use crate::process::{self, Process, Spec};

const START: Duration = Duration::from_mins(1);
/// Short for tests; the default is 5 minutes.
const CRASH_LOOP_BACK_OFF: &str = "5s";

/// The container runtime, with the images of all pods.
pub(crate) struct Runtime {
    containerd: Process,
    bin: PathBuf,
}

impl Runtime {
    /// Starts the runtime. `folder` is the sandbox's.
    ///
    /// # Errors
    /// When the runtime cannot be started, or an image cannot be built.
    pub(crate) async fn start(folder: &Path, logs: &Path) -> Result<Self> {
        let bin = build::ensure(Component::Node).await?;
        let plugins = build::ensure(Component::Containers).await?;
        let python = build::ensure(Component::Python).await?;
        let programs = bin_folder()?;
        let network = folder.join("cni");
        std::fs::create_dir_all(&network).context(format_args!("make {}", network.display()))?;
        write(&network.join("10.conflist"), &pod_network().to_string())?;
        let configuration = folder.join("containerd.toml");
        write(&configuration, &containerd(folder, &network, &plugins))?;
        let containerd = Spec::new("containerd", "containerd")
            .log(logs.join("containerd.log"))
            .arg("--config")
            .arg(configuration.display());
        let containerd = Process::start(containerd).await?;
        let sources = Sources {
            programs: &programs,
            node: &bin,
            python: &python,
        };
        let images = folder.join("images");
        let made = images::archive(&images, &sources);
        let answers = containerd.alive_while(eventually("containerd answers", START, async || {
            ctr(&["version"]).await.map_err(NotYet::new)
        }));
        let (archive, _) = tokio::try_join!(made, answers)?;
        let path = archive.display().to_string();
        ctr(&["--namespace", "k8s.io", "images", "import", &path]).await?;
        std::fs::remove_file(&archive).context(format_args!("remove {path}"))?;
        Ok(Self { containerd, bin })
    }
}

async fn ctr(args: &[&str]) -> Result<String> {
    process::output(Spec::new("ctr", "ctr").inherit_env().args(args)).await
}

/// Starts the rest of a node for an API server, and waits until it is ready. `folder` is the sandbox's, `logs` the
/// cluster's.
///
/// # Errors
/// When a part cannot be started or exits, or the node does not become ready.
pub(crate) async fn start(
    runtime: Runtime,
    folder: &Path,
    logs: &Path,
    kubeconfig: &Path,
    client: &Client,
) -> Result<Vec<Process>> {
    let dns = build::ensure(Component::Dns).await?;
    let configuration = folder.join("kubelet.json");
    write(&configuration, &kubelet_configuration(logs).to_string())?;
    let corefile = folder.join("Corefile");
    write(&corefile, &dns_configuration(kubeconfig))?;
    let spec = |name: &str, program: PathBuf| {
        Spec::new(name, program)
            .log(logs.join(format!("{name}.log")))
            .env("HOME", folder.display())
    };
    let at = kubeconfig.display();
    let kubelet = Process::start(spec("kubelet", runtime.bin.join("kubelet")).args([
        format!("--config={}", configuration.display()),
        format!("--kubeconfig={at}"),
        format!("--root-dir={}", folder.join("kubelet").display()),
        format!("--hostname-override={NODE}"),
        format!("--node-ip={ADDRESS}"),
    ]))
    .await?;
    let proxy = Process::start(spec("kube-proxy", runtime.bin.join("kube-proxy")).args([
        format!("--kubeconfig={at}"),
        "--proxy-mode=nftables".to_owned(),
        format!("--hostname-override={NODE}"),
        format!("--bind-address={ADDRESS}"),
        format!("--healthz-bind-address=127.0.0.1:{}", ports::free()?),
        format!("--metrics-bind-address=127.0.0.1:{}", ports::free()?),
        "--cluster-cidr=203.0.113.0/25".to_owned(),
        "--conntrack-max-per-core=0".to_owned(),
    ]))
    .await?;
    let dns = spec("coredns", dns.join("coredns")).arg("-conf");
    let dns = Process::start(dns.arg(corefile.display())).await?;
    let nodes = Api::<Node>::all(client.clone());
    let ready = eventually("the real node is ready", START, async || {
        let conditions = nodes.get(NODE).await?.status.unwrap_or_default().conditions;
        let conditions = conditions.unwrap_or_default();
        let ready = conditions.iter().find(|it| it.type_ == "Ready");
        check(
            ready.is_some_and(|it| it.status == "True"),
            format_args!("{ready:?}"),
        )
    });
    kubelet.alive_while(ready).await?;
    Ok(vec![runtime.containerd, kubelet, proxy, dns])
}

fn containerd(folder: &Path, network: &Path, plugins: &Path) -> String {
    format!(
        r#"version = 2
root = "{root}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network}"
"#,
        root = folder.join("containerd").display(),
        plugins = plugins.display(),
        network = network.display(),
    )
}

fn pod_network() -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/ipam",
                "ranges": [[{"subnet": "203.0.113.0/25", "rangeStart": "203.0.113.10", "gateway": ADDRESS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn kubelet_configuration(certificates: &Path) -> Value {
    let file = |name: &str| certificates.join(name);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": false}, "x509": {"clientCAFile": file("ca.crt")}},
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": file("api.crt"),
        "tlsPrivateKeyFile": file("api.key"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [ADDRESS],
        // Bytes, not a percentage: 1 % of a large disk is gigabytes, and under disk pressure a node runs no pods and
        // deletes images.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "100Mi", "imagefs.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        // Watch, so that `ConfigMap` changes reach pods at once.
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": CRASH_LOOP_BACK_OFF},
    })
}

fn dns_configuration(kubeconfig: &Path) -> String {
    let path = kubeconfig.display();
    format!(
        ".:53 {{\n  bind {ADDRESS}\n  kubernetes cluster.local {{\n    kubeconfig {path} test\n    ttl 1\n  }}\n}}\n"
    )
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).context(format_args!("write {}", path.display()))
}
