//! Fake nodes and pods. The label [`MODE`] chooses how a pod behaves.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::error::{Context, Error, Result};
use crate::eventually::{NotYet, eventually};
use crate::ports;
use crate::process::{Process, Spec};
use crate::real;

/// The label with which a pod requests a mode; without it a pod becomes ready at once.
///
/// | mode | the pod |
/// |---|---|
/// | `hold` | is scheduled and stays Pending without a reason |
/// | `imagepull` | waits with `ImagePullBackOff` in all containers |
/// | `crashloop` | runs, its container [`CONTAINER`] in `CrashLoopBackOff`, the others ready |
/// | `notready` | runs and never becomes ready |
/// | `slowstop` | becomes ready, and takes 3 seconds to end when deleted |
pub const MODE: &str = "kwok.test/mode";

/// The label that names the container to which a mode applies.
pub const CONTAINER: &str = "kwok.test/container";

const OWN_STAGES: &str = include_str!("stages.yaml");

/// Starts kwok and `nodes` nodes. Beside a real node, only pods that tolerate [`real::FAKE_TAINT`] run on them.
pub(crate) async fn start(
    tools: &Path,
    folder: &Path,
    kubeconfig: &Path,
    client: &Client,
    (nodes, real): (u32, bool),
) -> Result<Process> {
    let stages = folder.join("stages.yaml");
    std::fs::write(&stages, stages_yaml(&tools.join("../stages"))?)
        .context(format_args!("write {}", stages.display()))?;
    let port = ports::free()?;
    let kwok = Spec::new("kwok", tools.join("kwok"))
        .log(folder.join("kwok.log"))
        .env("HOME", folder.display())
        .args([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--config={}", stages.display()),
            format!("--manage-all-nodes={}", !real),
            format!(
                "--cidr={}",
                if real {
                    "203.0.113.128/25"
                } else {
                    "203.0.113.0/24"
                }
            ),
            "--node-ip=127.0.0.1".to_owned(),
            "--node-name=kwok".to_owned(),
            format!("--node-port={port}"),
            format!("--server-address=127.0.0.1:{port}"),
            format!("--tls-cert-file={}", folder.join("api.crt").display()),
            format!(
                "--tls-private-key-file={}",
                folder.join("api.key").display()
            ),
            "--node-lease-duration-seconds=40".to_owned(),
        ]);
    let kwok = if real {
        kwok.arg("--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake")
    } else {
        kwok
    };
    let kwok = Process::start(kwok).await?;
    let api: Api<Node> = Api::all(client.clone());
    for number in 0..nodes {
        api.create(&PostParams::default(), &node(number, real)?)
            .await?;
    }
    let ready = eventually(
        "the fake nodes are ready",
        Duration::from_mins(1),
        async || {
            for number in 0..nodes {
                let node = api.get(&format!("node-{number}")).await?;
                let conditions = node
                    .status
                    .and_then(|status| status.conditions)
                    .unwrap_or_default();
                if !conditions
                    .iter()
                    .any(|condition| condition.type_ == "Ready" && condition.status == "True")
                {
                    return Err(NotYet::new(format!("node-{number} is not ready")));
                }
            }
            Ok(())
        },
    );
    kwok.alive_while(ready).await?;
    Ok(kwok)
}

fn node(number: u32, real: bool) -> Result<Node> {
    let name = format!("node-{number}");
    let resources = json!({"cpu": "1000", "memory": "1Ti", "pods": "100000"});
    let taint = json!({"key": real::FAKE_TAINT, "effect": "NoSchedule"});
    let taints: Vec<Value> = real.then_some(taint).into_iter().collect();
    Ok(serde_json::from_value(json!({
        "spec": {"taints": taints},
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "status": {"allocatable": resources, "capacity": resources},
    }))?)
}

/// kwok's stock stages, restricted to pods that request no mode, followed by ours.
fn stages_yaml(stock: &Path) -> Result<String> {
    let mut texts = BTreeMap::new();
    for entry in std::fs::read_dir(stock)
        .context(format_args!("read {}", stock.display()))?
        .flatten()
    {
        let text = std::fs::read_to_string(entry.path())
            .context(format_args!("read {}", entry.path().display()))?;
        texts.insert(entry.file_name().to_string_lossy().into_owned(), text);
    }
    let key = format!(".metadata.labels[\"{MODE}\"]");
    let mut documents = Vec::new();
    for (file, text) in texts {
        let mut stage: Value = serde_saphyr::from_str(&text)
            .map_err(|error| Error::Other(format!("{file}: {error}")))?;
        let own_way = match stage["metadata"]["name"].as_str() {
            Some("pod-ready") => Some(
                json!({"key": key, "operator": "NotIn", "values": ["hold", "imagepull", "crashloop", "notready"]}),
            ),
            Some("pod-delete") => {
                Some(json!({"key": key, "operator": "NotIn", "values": ["slowstop"]}))
            }
            _ => None,
        };
        if let Some(own_way) = own_way {
            let expressions = stage["spec"]["selector"]["matchExpressions"].as_array_mut();
            expressions
                .ok_or_else(|| Error::Other(format!("{file} has no selector")))?
                .push(own_way);
        }
        documents.push(serde_json::to_string(&stage)?);
    }
    Ok(format!("{}\n---\n{OWN_STAGES}", documents.join("\n---\n")))
}
