//! Where a model answers in its pod.

use serde_json::Value;

use super::Resolver;
use super::owned::template;
use crate::api::ResolvedTarget;

/// Annotation that names a pod's main container; injectors that insert their own container first set it.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Containers that other systems inject into pods, possibly as the first one.
const OF_INJECTORS: [&str; 6] = [
    "istio-proxy",
    "linkerd-proxy",
    "vault-agent",
    "otc-container",
    "daprd",
    "queue-proxy",
];

/// The properties of a container that show where the model listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerShape<'a> {
    /// Name of the container.
    pub name: &'a str,
    /// Image of the container.
    pub image: &'a str,
    /// The first port that the container declares.
    pub port: Option<u16>,
    /// Whether its probes use HTTPS.
    pub https: bool,
}

impl ContainerShape<'_> {
    /// The image's name without registry, path, tag and digest.
    pub(super) fn image_name(&self) -> &str {
        self.image.rsplit('/').next().unwrap_or(self.image)
    }
}

/// Where the model answers, and by which protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// URL of the model; `None` means `TargetURLUnknown`, unless the actor sets the URL.
    pub url: Option<String>,
    /// The adapter for the model's protocol: a function in `asya_adapters`.
    pub adapter: &'static str,
}

/// Adapters that a target's own protocol setting may select.
const OF_TARGETS: [&str; 2] = ["kserve_v1", "kserve_v2"];

/// The adapter recorded in status; `None` if this release does not know it.
#[must_use]
pub fn adapter_of(resolved: Option<&ResolvedTarget>) -> Option<&'static str> {
    let named = resolved?.adapter.as_deref()?;
    OF_TARGETS.into_iter().find(|it| *it == named)
}

impl Server {
    /// A server on this port of the same pod. Bypasses any Service, because each pod has its own sidecar.
    #[must_use]
    pub fn on_port(port: Option<u16>, adapter: &'static str) -> Self {
        Self {
            url: port.map(|port| format!("http://127.0.0.1:{port}")),
            adapter,
        }
    }
}

/// The model's container: the one that the pod's annotation names, otherwise the first that is not from an injector.
#[must_use]
pub fn main_container<'c, 'a>(
    containers: &'c [ContainerShape<'a>],
    named: Option<&str>,
) -> Option<&'c ContainerShape<'a>> {
    let own = |it: &&ContainerShape<'_>| !OF_INJECTORS.contains(&it.name);
    // one injector may name the container that another has put first
    let by_name = named.and_then(|name| containers.iter().filter(own).find(|it| it.name == name));
    by_name
        .or_else(|| containers.iter().find(own))
        .or_else(|| containers.first())
}

/// Where the pods of a workload answer, according to its pod template.
pub(super) fn template_server(resolver: &dyn Resolver, workload: &Value) -> Server {
    let template = template(workload);
    let main = template
        .and_then(|it| it.pointer("/metadata/annotations"))
        .and_then(|annotations| annotations.get(DEFAULT_CONTAINER)?.as_str());
    resolver.server(&template.map(shapes).unwrap_or_default(), main)
}

fn shapes(template: &Value) -> Vec<ContainerShape<'_>> {
    let containers = template
        .pointer("/spec/containers")
        .and_then(Value::as_array);
    containers
        .into_iter()
        .flatten()
        .map(|container| ContainerShape {
            name: text(container, "name"),
            image: text(container, "image"),
            port: container
                .pointer("/ports/0/containerPort")
                .and_then(Value::as_u64)
                .and_then(|port| u16::try_from(port).ok()),
            https: PROBES.into_iter().any(|probe| {
                let scheme = container.pointer(&format!("/{probe}/httpGet/scheme"));
                scheme.and_then(Value::as_str) == Some("HTTPS")
            }),
        })
        .collect()
}

const PROBES: [&str; 3] = ["readinessProbe", "livenessProbe", "startupProbe"];

fn text<'a>(container: &'a Value, key: &str) -> &'a str {
    container
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
