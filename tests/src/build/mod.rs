//! The parts of a cluster, each built once into a cache.

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

/// A part that is built or installed before a cluster can use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
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

impl Part {
    /// All parts.
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

    /// The parts that only a real node needs.
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

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|part| part.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                Error::Other(format!("there is no part `{name}`; the parts are {names}"))
            })
    }
}

/// Builds a part unless it is cached, and returns the folder of its programs (`bin/` of the cache entry, or where the
/// package installed them).
///
/// # Errors
/// When a toolchain or package is missing (one line that says what to install), or when the build fails.
pub async fn ensure(part: Part) -> Result<PathBuf> {
    match part {
        Part::ControlPlane => go::control_plane().await,
        Part::Tools => go::tools().await,
        Part::Helm3 => go::helm3().await,
        Part::ArgoCd => go::argocd().await,
        Part::RabbitMq => rabbitmq::ensure().await,
        Part::Sqs => sqs::ensure().await,
        Part::Keda => go::keda().await,
        Part::Node => go::node().await,
        Part::Dns => go::dns().await,
        Part::Containers => containers::ensure().await,
        Part::Python => python::ensure().await,
    }
}
