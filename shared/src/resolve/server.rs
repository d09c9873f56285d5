//! Where a model answers inside a pod.

use serde_json::Value;

use super::Resolver;
use super::owned::template;
use crate::api::ResolvedTarget;

/// Annotation by which a pod names the container that matters; injectors that put theirs first set it.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Containers that other systems add to pods and may put first.
const OF_INJECTORS: [&str; 6] = [
    "istio-proxy",
    "linkerd-proxy",
    "vault-agent",
    "otc-container",
    "daprd",
    "queue-proxy",
];

/// A container, as far as it tells where the model answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerShape<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its image.
    pub image: &'a str,
    /// The first port that it declares.
    pub port: Option<u16>,
    /// Whether its probes ask by HTTPS.
    pub https: bool,
}

impl ContainerShape<'_> {
    /// The image's name, without registry, folders, tag and digest.
    pub(super) fn image_name(&self) -> &str {
        self.image.rsplit('/').next().unwrap_or(self.image)
    }
}

/// Where the model answers, and in which protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its URL; `None`: `TargetURLUnknown`, unless the actor says it.
    pub url: Option<String>,
    /// The adapter that speaks its protocol: a function of `asya_adapters`.
    pub adapter: &'static str,
}

/// Adapters that a target itself may ask for, by what it says of its protocol.
const OF_TARGETS: [&str; 2] = ["kserve_v1", "kserve_v2"];

/// The adapter that status names for a target. A name that this release does not know is none.
#[must_use]
pub fn adapter_of(resolved: Option<&ResolvedTarget>) -> Option<&'static str> {
    let named = resolved?.adapter.as_deref()?;
    OF_TARGETS.into_iter().find(|it| *it == named)
}

impl Server {
    /// One that answers on this port of the same pod: by no Service, since each pod has its own sidecar.
    #[must_use]
    pub fn on_port(port: Option<u16>, adapter: &'static str) -> Self {
        Self {
            url: port.map(|port| format!("http://127.0.0.1:{port}")),
            adapter,
        }
    }
}

/// The container with the model: the one that the pod itself names, else the first that no injector put there.
#[must_use]
pub fn main_container<'c, 'a>(
    containers: &'c [ContainerShape<'a>],
    named: Option<&str>,
) -> Option<&'c ContainerShape<'a>> {
    let own = |it: &&ContainerShape<'_>| !OF_INJECTORS.contains(&it.name);
    // an injector may name what another one has put first
    let by_name = named.and_then(|name| containers.iter().filter(own).find(|it| it.name == name));
    by_name
        .or_else(|| containers.iter().find(own))
        .or_else(|| containers.first())
}

/// Where the pods of a workload answer, by its template.
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
