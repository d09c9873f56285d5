//! Deployments and `StatefulSet`s, which are workloads themselves (RES-10 to RES-12).

use serde_json::Value;

use super::fields::waiting;
use super::owned::{APPS, of_deployment, of_stateful_set};
use super::owner::roll_and_scale;
use super::server::{main_container, template_server};
use super::{
    ContainerShape, GroupKind, ObjectRef, OwnerRule, PodMatch, Related, Resolution, Resolver,
    Selector, Server, Target, controller_of,
};

pub(super) static DEPLOYMENT: Plain = Plain("Deployment", |name| of_deployment(name));
pub(super) static STATEFUL_SET: Plain = Plain("StatefulSet", |name| of_stateful_set(name));

/// Image name prefixes of servers with a known port and protocol (RES-11, RES-12).
const KNOWN_IMAGES: [(&str, u16, &str); 2] = [
    ("vllm", 8000, "openai_chat"),
    ("tritonserver", 8000, "kserve_v2"),
];

/// A kind whose objects create pods themselves, with the owner rule for these pods.
pub(super) struct Plain(&'static str, fn(&str) -> OwnerRule);

impl Resolver for Plain {
    fn group_kind(&self) -> GroupKind<'static> {
        GroupKind {
            group: APPS,
            kind: self.0,
        }
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::default(),
            owner: (self.1)(name),
        }
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        let kind = self.0;
        let unread = |what: &str| {
            waiting(format!(
                "{kind}: cannot read {what}; waiting until it is valid"
            ))
        };
        let Some(workload) = ObjectRef::of(target) else {
            return unread("metadata.name");
        };
        let selector = target.pointer("/spec/selector");
        let Some(labels) = selector.and_then(|it| Selector::from_json(it).ok()) else {
            return unread("spec.selector");
        };
        if target.pointer("/spec/template").is_none() {
            return unread("spec.template");
        }
        let owner = controller_of(target);
        let followed = match roll_and_scale(target, &workload, owner.as_ref(), related) {
            Ok(followed) => followed,
            Err(finding) => return Resolution::Refused(finding),
        };
        Resolution::Found(Box::new(Target {
            pods: PodMatch {
                labels,
                owner: (self.1)(&workload.name),
            },
            chain: vec![workload.clone()],
            owner,
            roll: followed.roll,
            scale: followed.scale,
            server: template_server(self, target),
            adapter: None,
            warnings: followed.warnings,
            workload,
        }))
    }

    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server {
        server(containers, main)
    }
}

/// Recognises the server by image, otherwise uses the first declared port.
pub(super) fn server(containers: &[ContainerShape<'_>], main: Option<&str>) -> Server {
    let Some(container) = main_container(containers, main) else {
        return Server::on_port(None, "rest");
    };
    let image = container.image_name();
    let known = KNOWN_IMAGES
        .iter()
        .find(|(name, ..)| image.starts_with(name));
    match known {
        Some((_, port, adapter)) => Server::on_port(Some(*port), adapter),
        None => Server::on_port(container.port, "rest"),
    }
}
