//! A real node: kubelet, containerd, kube-proxy and `CoreDNS`, in a box of namespaces (`box/box.sh`) in which the whole
//! cluster runs. Pods reach what listens on [`ADDRESS`], and each other.

mod images;
mod node;
mod readme;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::process::{self, Spec};
use crate::scenario::Scenario;

pub(crate) use node::{Runtime, start};
pub use readme::Readme;

/// The node's address, that of the bridge which its pods hang on.
pub const ADDRESS: &str = "203.0.113.1";
/// The first address of Services, which is the API server's.
pub(crate) const API_SERVICE: &str = "198.51.100.1";
/// The node's name.
pub const NODE: &str = "real";
/// The taint of fake nodes beside it, so that only pods go there that ask for that.
pub const FAKE_TAINT: &str = "kwok.test/fake";

/// Python with the programs of `pods/`; `PYTHONPATH` leads to these.
pub const PYTHON_IMAGE: &str = "localhost/python:1";
/// The stand-in of the sidecar.
pub const SIDECAR_IMAGE: &str = "localhost/asya-sidecar:1";
/// The same under another name, for upgrades.
pub const NEXT_SIDECAR_IMAGE: &str = "localhost/asya-sidecar:2";
/// The operator's repository and tag.
pub const OPERATOR_IMAGE: (&str, &str) = ("localhost/asya-operator", "1");
/// What holds the namespaces of a pod.
pub(crate) const PAUSE_IMAGE: &str = "localhost/pause:1";

/// The folder of the box that this process runs in.
///
/// # Errors
/// When it runs in none.
pub fn box_folder() -> Result<PathBuf> {
    let folder = std::env::var_os("ASYA_BOX").map(PathBuf::from);
    folder.ok_or_else(|| {
        Error::Missing(
            "ASYA_BOX is not set: a real node runs by `make test-real` (or `asya-cluster real -- COMMAND`)".to_owned(),
        )
    })
}

/// The script that runs a command in a box.
#[must_use]
pub fn box_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("box/box.sh")
}

/// Prints what a scenario's pods and the operator's say.
pub(crate) async fn tell(scenario: &Scenario) {
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

/// Why no box can be made here.
pub async fn impossible() -> Option<String> {
    if !rustix::process::getuid().is_root() {
        return Some("real pods need root".to_owned());
    }
    fails(&["true"]).await
}

/// What a box lacks in which programs of packages are there.
pub async fn insufficient() -> Option<String> {
    fails(&["nft", "add", "table", "ip", "probe"]).await
}

/// Why a command fails in a box.
async fn fails(command: &[&str]) -> Option<String> {
    let inside = Spec::new("box.sh", box_script()).inherit_env();
    let error = process::output(inside.args(command)).await.err()?;
    let text = error.to_string();
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    Some(format!("no real pods here: {}", last.unwrap_or_default()))
}
