//! Runtime and sidecar of a fake pod, as processes on this host.

use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::Api;
use kube::api::ListParams;

use crate::cluster::Cluster;
use crate::command::{self, Host};
use crate::error::Result;
use crate::eventually::{NotYet, SOON, check, eventually};
use crate::process::{Folder, Process, Spec};
use crate::{operator, ports};

const RUNTIME: &str = "asya-runtime";
const SIDECAR: &str = "asya-sidecar";

/// What the pod's image and network would provide to its containers.
#[derive(Debug, Default, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The folder of the handler's module.
    pub handlers: Option<&'a Path>,
    /// Where the model of a bound pod listens.
    pub model_url: Option<&'a str>,
}

/// Runtime and sidecar of a pod, with the commands, environment and mounts that the pod specifies (SC-10, SC-111).
/// Dropping it kills both.
#[derive(Debug)]
pub struct PodProcess {
    name: String,
    runtime: Process,
    sidecar: Process,
    metrics: String,
    _folder: Folder,
}

impl PodProcess {
    /// Starts the containers of one of the pods that the selector matches, and waits until the sidecar consumes.
    ///
    /// # Errors
    /// When no such pod has a sidecar, a Secret or `ConfigMap` is missing, or a process ends.
    pub async fn start(
        cluster: &Cluster,
        namespace: &str,
        selector: &str,
        surroundings: Surroundings<'_>,
    ) -> Result<Self> {
        let (name, pod) = pod_with_sidecar(cluster, namespace, selector).await?;
        // A short path, because that of a Unix socket is limited.
        let folder = Folder::create("pod")?;
        let host = Host {
            client: cluster.client(),
            namespace,
            pod_name: &name,
            folder: folder.path(),
            bin: &operator::bin_folder()?,
        };
        let metrics = format!("127.0.0.1:{}", ports::free()?);
        let runtime = spec(&pod, RUNTIME, &host).await?;
        let runtime = Process::start(surroundings.complete(runtime)).await?;
        let sidecar = spec(&pod, SIDECAR, &host).await?;
        let sidecar = Process::start(sidecar.env("ASYA_METRICS_ADDR", &metrics)).await?;
        let started = Self {
            name,
            runtime,
            sidecar,
            metrics,
            _folder: folder,
        };
        started.while_alive(started.consumes()).await?;
        Ok(started)
    }

    /// The pod's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work`, but fails as soon as one of the processes exits.
    ///
    /// # Errors
    /// The failure of `work`, or the exit of a process.
    pub async fn while_alive<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let work = self.sidecar.alive_while(Box::pin(work));
        self.runtime.alive_while(work).await
    }

    /// Stops both as the kubelet does: SIGTERM to both at once.
    ///
    /// # Errors
    /// When one has not ended in time or reports a failure.
    pub async fn stop(self) -> Result<()> {
        let ended = tokio::try_join!(self.sidecar.stop(SOON), self.runtime.stop(SOON))?;
        for (process, status) in [(&self.sidecar, ended.0), (&self.runtime, ended.1)] {
            if !status.success() {
                return Err(process.death(status));
            }
        }
        Ok(())
    }

    async fn consumes(&self) -> Result<()> {
        let url = format!("http://{}/readyz", self.metrics);
        let client = crate::http_client()?;
        eventually(format_args!("{} consumes", self.name), SOON, async || {
            let answer = client.get(&url).send().await?;
            check(answer.status().is_success(), answer.text().await?)
        })
        .await
    }
}

impl Surroundings<'_> {
    fn complete(self, mut runtime: Spec) -> Spec {
        if let Some(folder) = self.handlers {
            // The folder must not change.
            runtime = runtime
                .env("PYTHONPATH", folder.display())
                .env("PYTHONDONTWRITEBYTECODE", "1");
        }
        if let Some(url) = self.model_url {
            runtime = runtime.env("ASYA_TARGET_URL", url);
        }
        runtime
    }
}

async fn pod_with_sidecar(
    cluster: &Cluster,
    namespace: &str,
    selector: &str,
) -> Result<(String, PodSpec)> {
    let pods = Api::<Pod>::namespaced(cluster.client(), namespace);
    let what = format!("a pod {selector} has the sidecar");
    eventually(what, SOON, async || {
        let found = pods.list(&ListParams::default().labels(selector)).await?;
        let alive = found
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        alive
            .filter_map(|pod| Some((pod.metadata.name?, pod.spec?)))
            .find(|(_, pod)| has_sidecar(pod))
            .ok_or_else(|| NotYet::new("no such pod"))
    })
    .await
}

/// A native sidecar is an init container.
fn has_sidecar(pod: &PodSpec) -> bool {
    let native = pod.init_containers.iter().flatten();
    let mut all = pod.containers.iter().chain(native);
    all.any(|container| container.name == SIDECAR)
}

async fn spec(pod: &PodSpec, container: &str, host: &Host<'_>) -> Result<Spec> {
    let command = Box::pin(command::from_pod(pod, container, host)).await?;
    let name = format!("{container} of {}", host.pod_name);
    let spec = Spec::new(name, command.program)
        .args(command.args)
        .log(host.folder.join(format!("{container}.log")));
    let env = command.env.into_iter();
    Ok(env.fold(spec, |spec, (name, value)| spec.env(name, value)))
}
