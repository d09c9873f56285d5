//! A pod in an admission review, decoded by borrowing and only as far as decisions need it (ADM-8).

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::names::annotation;
use crate::quantity::Quantity;
use crate::resolve::{ContainerShape, Controller, DEFAULT_CONTAINER};

/// The fields of a pod that decisions depend on. Everything else stays undecoded in the raw text.
#[derive(Debug)]
pub struct PodView<'a> {
    pub(super) raw: &'a str,
    pub(super) metadata: Option<Metadata<'a>>,
    pub(super) spec: Spec<'a>,
    dry_run: bool,
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow, default)]
    pub(super) labels: Option<Labels<'a>>,
    #[serde(borrow, default)]
    pub(super) annotations: Option<Annotations<'a>>,
    #[serde(borrow, default)]
    owner_references: Option<Vec<OwnerReference<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow, default)]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub(super) containers: Vec<Container<'a>>,
    #[serde(borrow, default)]
    pub(super) init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow, default)]
    pub(super) volumes: Option<Vec<Named<'a>>>,
    #[serde(default)]
    pub(super) host_network: Option<bool>,
    #[serde(borrow, default)]
    os: Option<Named<'a>>,
    #[serde(borrow, default)]
    node_selector: Option<NodeSelector<'a>>,
    #[serde(borrow, default)]
    restart_policy: Text<'a>,
    #[serde(default)]
    security_context: Option<SecurityContext>,
    #[serde(default)]
    pub(super) termination_grace_period_seconds: Option<i64>,
    #[serde(default)]
    pub(super) resources: Option<Resources>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    image: Text<'a>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
    #[serde(borrow, default)]
    readiness_probe: Option<Probe<'a>>,
    #[serde(borrow, default)]
    liveness_probe: Option<Probe<'a>>,
    #[serde(borrow, default)]
    startup_probe: Option<Probe<'a>>,
    #[serde(default)]
    pub(super) resources: Option<Resources>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe<'a> {
    #[serde(borrow, default)]
    http_get: Option<HttpGet<'a>>,
}

#[derive(Debug, Deserialize)]
struct HttpGet<'a> {
    #[serde(borrow, default)]
    scheme: Text<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    container_port: Option<u16>,
    #[serde(default)]
    host_port: Option<u16>,
}

/// CPU and memory quantities.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Resources {
    #[serde(default)]
    pub(super) requests: Option<Amounts>,
    #[serde(default)]
    pub(super) limits: Option<Amounts>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Amounts {
    #[serde(default, deserialize_with = "quantity")]
    pub(super) cpu: Option<Quantity>,
    #[serde(default, deserialize_with = "quantity")]
    pub(super) memory: Option<Quantity>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
}

#[derive(Debug, Deserialize)]
struct NodeSelector<'a> {
    #[serde(borrow, default, rename = "kubernetes.io/os")]
    os: Text<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecurityContext {
    #[serde(default)]
    run_as_user: Option<i64>,
}

impl<'a> PodView<'a> {
    /// Decodes a pod.
    ///
    /// # Errors
    /// When the JSON does not have the shape of a pod.
    pub fn decode(raw: &'a str) -> Result<Self, serde_json::Error> {
        let Pod { metadata, spec } = serde_json::from_str(raw)?;
        Ok(Self {
            raw,
            metadata,
            spec,
            dry_run: false,
        })
    }

    /// Marks the review as a dry run, in which the pod is not persisted.
    #[must_use]
    pub fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Whether it is the probe of the actor with this UID (SAFE-2). The annotation has no effect on a pod that is
    /// persisted.
    pub(super) fn is_probe_of(&self, uid: &str) -> bool {
        self.dry_run && self.annotation(annotation::PROBE) == Some(uid)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = self.metadata.as_ref()?.labels.as_ref()?;
        labels
            .0
            .iter()
            .rev()
            .find(|(name, _)| name.as_ref() == key)
            .map(|(_, value)| value.as_ref())
    }

    /// The pod's controller owner, on which an Event can be recorded while the pod has no name yet (OBS-2).
    #[must_use]
    pub fn controller(&self) -> Option<Controller<'_>> {
        self.controller_reference().map(|owner| Controller {
            api_version: owner.api_version.as_ref(),
            kind: owner.kind.as_ref(),
            name: owner.name.as_ref(),
        })
    }

    /// The UID of [`PodView::controller`].
    #[must_use]
    pub fn controller_uid(&self) -> Option<&str> {
        self.controller_reference().map(|owner| owner.uid.as_ref())
    }

    fn controller_reference(&self) -> Option<&OwnerReference<'a>> {
        let owners = self.metadata.as_ref()?.owner_references.as_ref()?;
        owners.iter().find(|it| it.controller == Some(true))
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.as_ref()?.annotations.as_ref()?;
        let at = Annotations::WANTED.iter().position(|it| *it == key)?;
        annotations.0[at].as_ref().map(Text::as_ref)
    }

    pub(super) fn is_windows(&self) -> bool {
        let spec = &self.spec;
        let os = spec.os.as_ref().map(|it| it.name.as_ref());
        let node = spec.node_selector.as_ref().map(|it| it.os.as_ref());
        os == Some("windows") || node == Some("windows")
    }

    /// The API server defaults an unset policy to `Always`.
    pub(super) fn restarts_always(&self) -> bool {
        matches!(self.spec.restart_policy.as_ref(), "" | "Always")
    }

    pub(super) fn run_as_user(&self) -> Option<i64> {
        self.spec.security_context.as_ref()?.run_as_user
    }

    /// The containers of both lists.
    pub(super) fn containers(&self) -> impl Iterator<Item = &Container<'a>> {
        let init = self.spec.init_containers.as_deref().unwrap_or_default();
        self.spec.containers.iter().chain(init)
    }

    /// Whether a container declares this port.
    pub(super) fn declares(&self, port: u16) -> bool {
        self.containers()
            .flat_map(|it| it.ports.iter().flatten())
            .any(|it| it.container_port == Some(port) || it.host_port == Some(port))
    }
}

impl Container<'_> {
    pub(super) fn shape(&self) -> ContainerShape<'_> {
        ContainerShape {
            name: self.name.as_ref(),
            image: self.image.as_ref(),
            port: self.ports.iter().flatten().find_map(|it| it.container_port),
            https: self.is_probed_over_https(),
        }
    }

    fn is_probed_over_https(&self) -> bool {
        let probes = [
            &self.readiness_probe,
            &self.liveness_probe,
            &self.startup_probe,
        ];
        let http_gets = probes
            .into_iter()
            .flatten()
            .filter_map(|it| it.http_get.as_ref());
        http_gets
            .into_iter()
            .any(|it| it.scheme.as_ref() == "HTTPS")
    }
}

/// A string that borrows unless it contains escapes; null reads as empty.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;
        impl<'de> Visitor<'de> for Borrowed {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(Borrowed)
    }
}

/// The labels, in their original order.
#[derive(Debug, Default)]
pub(super) struct Labels<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Labels(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Only the annotations that decisions depend on; others may be large.
#[derive(Debug, Default)]
pub(super) struct Annotations<'a>([Option<Text<'a>>; Annotations::WANTED.len()]);

impl Annotations<'_> {
    const WANTED: [&'static str; 7] = [
        annotation::INJECTED_BY,
        annotation::INJECTED_HASH,
        annotation::NOT_INJECTED,
        annotation::PROBE,
        annotation::LOCAL_VOLUMES,
        annotation::SAFE_TO_EVICT,
        DEFAULT_CONTAINER,
    ];
}

impl<'de: 'a, 'a> Deserialize<'de> for Annotations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Wanted;
        impl<'de> Visitor<'de> for Wanted {
            type Value = Annotations<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = Annotations::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match Annotations::WANTED
                        .iter()
                        .position(|it| *it == key.as_ref())
                    {
                        Some(at) => found.0[at] = Some(map.next_value()?),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Wanted)
    }
}

/// A quantity as string or number; `None` if it cannot be parsed.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(Quantity::of(&value))
}
