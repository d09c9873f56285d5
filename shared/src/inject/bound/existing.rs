//! Containers and volumes of a pod that have our names.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::JsonPointer;
use super::names::volume_names;
use super::pod::PodView;
use crate::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER};

/// The containers and volumes of a pod that have our names.
#[derive(Default)]
pub(super) struct ExistingItems {
    pub(super) containers: Vec<ExistingContainer>,
    pub(super) volumes: Vec<ExistingVolume>,
}

/// A container in one of the pod's container lists.
pub(super) struct ExistingContainer {
    pub(super) list: ContainerList,
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) value: Value,
}

impl ExistingContainer {
    /// Where it is in the pod.
    pub(super) fn pointer(&self) -> JsonPointer {
        JsonPointer::of("spec")
            .then(self.list.name())
            .item(self.index)
    }
}

/// A volume of the pod.
pub(super) struct ExistingVolume {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) value: Value,
}

/// One of the pod's container lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerList {
    Containers,
    InitContainers,
}

impl ContainerList {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
        }
    }
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    containers: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    init_containers: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    volumes: Option<Vec<&'a RawValue>>,
}

impl ExistingItems {
    /// Finds them in a pod. Only a pod that has any is parsed a second time.
    ///
    /// # Errors
    /// Never for a pod that [`PodView::decode`] has read.
    pub(super) fn of(pod: &PodView<'_>) -> Result<Self, serde_json::Error> {
        let is_container = |name: &str| [RUNTIME_CONTAINER, SIDECAR_CONTAINER].contains(&name);
        let is_volume = |name: &str| volume_names().any(|it| it == name);
        let volumes = pod.spec.volumes.as_deref().unwrap_or_default();
        let any = pod.containers().any(|it| is_container(it.name.as_ref()))
            || volumes.iter().any(|it| is_volume(it.name.as_ref()));
        if !any {
            return Ok(Self::default());
        }
        let raw: Pod<'_> = serde_json::from_str(pod.raw)?;
        let mut existing = Self::default();
        let init = pod.spec.init_containers.as_deref().unwrap_or_default();
        for (list, views, texts) in [
            (
                ContainerList::Containers,
                pod.spec.containers.as_slice(),
                raw.spec.containers,
            ),
            (
                ContainerList::InitContainers,
                init,
                raw.spec.init_containers.unwrap_or_default(),
            ),
        ] {
            for (index, (view, text)) in views.iter().zip(texts).enumerate() {
                let name = view.name.as_ref();
                if is_container(name) {
                    existing.containers.push(ExistingContainer {
                        list,
                        index,
                        name: name.to_owned(),
                        value: serde_json::from_str(text.get())?,
                    });
                }
            }
        }
        let texts = raw.spec.volumes.unwrap_or_default();
        for (index, (view, text)) in volumes.iter().zip(texts).enumerate() {
            let name = view.name.as_ref();
            if is_volume(name) {
                existing.volumes.push(ExistingVolume {
                    index,
                    name: name.to_owned(),
                    value: serde_json::from_str(text.get())?,
                });
            }
        }
        Ok(existing)
    }

    pub(super) fn first(&self, container: &str) -> Option<&ExistingContainer> {
        self.containers.iter().find(|it| it.name == container)
    }

    /// The kind and name of one of these items, for a message.
    pub(super) fn describe_first(&self) -> Option<String> {
        let container = self.containers.first();
        let volume = self.volumes.first();
        container
            .map(|it| format!("container {}", it.name))
            .or_else(|| volume.map(|it| format!("volume {}", it.name)))
    }

    /// Whether both containers are missing; the remaining annotations then prove nothing (INJ-9).
    pub(super) fn has_no_container(&self) -> bool {
        self.containers.is_empty()
    }
}

/// The value of a container's environment variable, as the process sees it.
pub(super) fn variable(container: &Value, name: &str) -> Option<String> {
    let env = container.get("env")?.as_array()?;
    let entry = env.iter().rfind(|entry| entry["name"] == name)?;
    Some(entry.get("value")?.as_str()?.replace("$$", "$"))
}
