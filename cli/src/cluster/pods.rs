//! Pods: their readiness, logs and metrics, and connections to them.

use asya_shared::names::SIDECAR_CONTAINER;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{ApiFailure, Cluster};

/// Maximum number of log lines to read.
const LOG_LINES: i64 = 10_000;

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Whether a pod has the sidecar, as a regular container or as a native sidecar.
pub fn has_sidecar(pod: &Value) -> bool {
    let lists = ["containers", "initContainers"].into_iter();
    let mut containers = lists.flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    containers.any(|container| container["name"] == SIDECAR_CONTAINER)
}

impl Cluster {
    /// Connects to a port of a pod.
    pub async fn port_forward(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>, ApiFailure> {
        let forwarded = self.pods(namespace).portforward(pod, &[port]).await;
        let stream = forwarded.map(|mut it| it.take_stream(port));
        let closed = || kube::Error::Service("the port-forward was closed".into());
        let stream = stream.and_then(|stream| stream.ok_or_else(closed));
        stream.map_err(|error| {
            let action = format!("forward port {port} of pod {namespace}/{pod}");
            ApiFailure::new(&action, &self.server, error)
        })
    }

    /// The last lines of a container's log; with `previous`, those of its previous run.
    pub async fn log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Result<String, ApiFailure> {
        let params = LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: Some(LOG_LINES),
            timestamps: true,
            ..LogParams::default()
        };
        let log = self.pods(namespace).logs(pod, &params).await;
        log.map_err(|error| {
            let action = format!("read the log of pod {namespace}/{pod}, container {container}");
            ApiFailure::new(&action, &self.server, error)
        })
    }

    /// The metrics that a pod serves on a port, read through the API server.
    pub async fn metrics(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
    ) -> Result<String, ApiFailure> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics");
        let request = http::Request::get(path).body(Vec::new());
        let text = match request {
            Ok(request) => self.client.request_text(request).await,
            Err(error) => Err(kube::Error::HttpError(error)),
        };
        text.map_err(|error| {
            let action = format!("read the metrics of pod {namespace}/{pod}");
            ApiFailure::new(&action, &self.server, error)
        })
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }
}
