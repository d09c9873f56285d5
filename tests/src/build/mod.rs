//! The components of a cluster, each built once into a cache.

mod cache;
mod containers;
mod go;
mod packages;
mod python;
mod rabbitmq;
mod sqs;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use cache::folder as cache_folder;
pub(crate) use python::tar;

use crate::error::{Error, Result};

/// A component that is built or installed before a cluster can use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl.
    ControlPlane,
    /// kwok with its stock stages, helm 4, kubeconform.
    Tools,
    /// helm 3.
    Helm3,
    /// Argo CD's engine.
    ArgoCd,
    /// RabbitMQ from the distribution.
    RabbitMq,
    /// An SQS server.
    Sqs,
    /// KEDA's operator and metrics adapter, with its CRDs beside them.
    Keda,
    /// kubelet, kube-proxy, and the pause program that holds a pod's namespaces.
    Node,
    /// `CoreDNS`.
    Dns,
    /// containerd, runc and the CNI plugins from the distribution.
    Containers,
    /// Python as an image layer.
    Python,
}

impl Component {
    /// All components.
    pub const ALL: [Self; 11] = [
        Self::ControlPlane,
        Self::Tools,
        Self::Helm3,
        Self::ArgoCd,
        Self::RabbitMq,
        Self::Sqs,
        Self::Keda,
        Self::Node,
        Self::Dns,
        Self::Containers,
        Self::Python,
    ];

    /// The components that only a real node needs.
    pub const REAL: [Self; 4] = [Self::Node, Self::Dns, Self::Containers, Self::Python];

    fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Tools => "tools",
            Self::Helm3 => "helm3",
            Self::ArgoCd => "argocd",
            Self::RabbitMq => "rabbitmq",
            Self::Sqs => "sqs",
            Self::Keda => "keda",
            Self::Node => "node",
            Self::Dns => "dns",
            Self::Containers => "containers",
            Self::Python => "python",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Component {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|component| component.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                Error::Other(format!(
                    "there is no component `{name}`; the components are {names}"
                ))
            })
    }
}

/// Builds a component unless it is cached, and returns the folder of its programs (`bin/` of the cache entry, or where
/// the package installed them).
///
/// # Errors
/// When a toolchain or package is missing (one line that says what to install), or when the build fails.
pub async fn ensure(component: Component) -> Result<PathBuf> {
    match component {
        Component::ControlPlane => go::control_plane().await,
        Component::Tools => go::tools().await,
        Component::Helm3 => go::helm3().await,
        Component::ArgoCd => go::argocd().await,
        Component::RabbitMq => rabbitmq::ensure().await,
        Component::Sqs => sqs::ensure().await,
        Component::Keda => go::keda().await,
        Component::Node => go::node().await,
        Component::Dns => go::dns().await,
        Component::Containers => containers::ensure().await,
        Component::Python => python::ensure().await,
    }
}
