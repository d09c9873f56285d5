//! A real node: kubelet, containerd, kube-proxy and `CoreDNS`. The whole cluster runs in a sandbox of Linux namespaces
//! (`sandbox/sandbox.sh`). Pods can reach each other, and everything that listens on [`ADDRESS`].

mod images;
mod node;
mod page;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::process::{self, Spec};
use crate::scenario::Scenario;

pub(crate) use node::{Runtime, start};
pub use page::Page;

/// The node's address, which is also that of its pod bridge.
pub const ADDRESS: &str = "203.0.113.1";
/// The API server's address: the first in the Service range.
pub(crate) const API_SERVICE: &str = "198.51.100.1";
/// The node's name.
pub const NODE: &str = "real";
/// The taint of the fake nodes, so that only pods that tolerate it are scheduled there.
pub const FAKE_TAINT: &str = "kwok.test/fake";

/// Python with the programs of `pods/`, which are on its `PYTHONPATH`.
pub const PYTHON_IMAGE: &str = "localhost/python:1";
/// A sidecar in Python that can be made to crash.
pub const CRASHING_SIDECAR_IMAGE: &str = "localhost/python-sidecar:1";
/// The sidecar's image under another name, for upgrades.
pub const NEXT_SIDECAR_IMAGE: &str = "localhost/asya-sidecar:2";
/// The registry of our images. Nothing is pulled from it.
pub const REGISTRY: &str = "localhost";
/// The repository and tag of the operator's image. The sidecars' default image is next to it.
pub const OPERATOR_IMAGE: (&str, &str) = ("localhost/asya-operator", "1");
/// The image that holds a pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "localhost/pause:1";

/// Returns the folder of the sandbox that this process runs in.
///
/// # Errors
/// When this process does not run in a sandbox.
pub fn sandbox_folder() -> Result<PathBuf> {
    let folder = std::env::var_os("ASYA_SANDBOX").map(PathBuf::from);
    folder.ok_or_else(|| {
        Error::Missing(
            "ASYA_SANDBOX is not set: a real node runs by `make test-real` (or `asya-cluster real -- COMMAND`)".to_owned(),
        )
    })
}

/// The script that runs a command in a sandbox.
#[must_use]
pub fn sandbox_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/sandbox.sh")
}

/// Prints the state and logs of the scenario's pods and of the operator's.
pub(crate) async fn print_diagnostics(scenario: &Scenario) {
    let pods = scenario.kubectl(&["get", "pods", "--output=wide"]).await;
    let events = scenario.kubectl(&["get", "events", "--sort-by=.lastTimestamp"]);
    let events = events.await.unwrap_or_default();
    let last: Vec<&str> = events.lines().collect();
    let last = last[last.len().saturating_sub(30)..].join("\n");
    eprintln!("{}\n{last}", pods.unwrap_or_default());
    let logs = [
        "logs",
        "--prefix",
        "--all-containers",
        "--tail=15",
        "--max-log-requests=50",
    ];
    let of_actors = [logs.as_slice(), &["--selector=asya.sh/asya"]].concat();
    eprintln!("{}", scenario.kubectl(&of_actors).await.unwrap_or_default());
    let before_restarts = [of_actors.as_slice(), &["--previous", "--ignore-errors"]].concat();
    eprintln!(
        "before they were started again:\n{}",
        scenario.kubectl(&before_restarts).await.unwrap_or_default()
    );
    let of_operator = [
        "--namespace=asya-system",
        "--selector=app.kubernetes.io/instance",
    ];
    let of_operator = [logs.as_slice(), &of_operator].concat();
    eprintln!(
        "{}",
        scenario
            .cluster()
            .kubectl(&of_operator)
            .await
            .unwrap_or_default()
    );
}

/// Returns why no sandbox can be created on this machine, if so.
pub async fn impossible() -> Option<String> {
    if !rustix::process::getuid().is_root() {
        return Some("real pods need root".to_owned());
    }
    fails(&["true"]).await
}

/// Returns why nftables does not work in a sandbox, if so; needs the packages to be installed.
pub async fn insufficient() -> Option<String> {
    fails(&["nft", "add", "table", "ip", "probe"]).await
}

/// Runs a command in a sandbox and returns why it failed, if it did.
async fn fails(command: &[&str]) -> Option<String> {
    let inside = Spec::new("sandbox.sh", sandbox_script()).inherit_env();
    let error = process::output(inside.args(command)).await.err()?;
    let text = error.to_string();
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    Some(format!("no real pods here: {}", last.unwrap_or_default()))
}
