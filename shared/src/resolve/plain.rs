//! Deployments and `StatefulSet`s, which are their own workloads (RES-10 to RES-12).

use serde_json::Value;

use super::server::shapes;
use super::{
    ContainerShape, DEFAULT_CONTAINER, Family, Finding, FindingReason, GroupKind, ObjectRef,
    OwnerRule, PodMatch, Related, Resolution, Resolver, Roll, Scale, Selector, Server, Target,
    controller_of, main_container,
};

pub(super) static DEPLOYMENT: Plain = Plain("Deployment", |name| OwnerRule::ReplicaSetOf {
    deployment: name.to_owned(),
});
pub(super) static STATEFUL_SET: Plain = Plain("StatefulSet", |name| OwnerRule::Named {
    kind: GroupKind {
        group: APPS,
        kind: "StatefulSet",
    },
    name: name.to_owned(),
});

const APPS: &str = "apps";

/// Images by the beginning of their name, whose server's port and protocol are known (RES-11, RES-12).
const KNOWN_IMAGES: [(&str, u16, &str); 2] = [
    ("vllm", 8000, "openai_chat"),
    ("tritonserver", 8000, "kserve_v2"),
];

/// A kind whose objects make their pods themselves, and whose pods these are.
pub(super) struct Plain(&'static str, fn(&str) -> OwnerRule);

impl Resolver for Plain {
    fn group_kind(&self) -> GroupKind<'static> {
        GroupKind {
            group: APPS,
            kind: self.0,
        }
    }

    fn convention(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::default(),
            owner: (self.1)(name),
        }
    }

    fn resolve(&self, target: &Value, _: &Related) -> Resolution {
        let kind = self.0;
        let waiting = |what: &str| {
            let message = format!("{kind}: {what} cannot be read; waiting until it can");
            Resolution::Waiting(Finding::new(FindingReason::TargetNotReady, message))
        };
        let Some(workload) = ObjectRef::of(target) else {
            return waiting("metadata.name");
        };
        let selector = target.pointer("/spec/selector");
        let Some(labels) = selector.and_then(|it| Selector::from_json(it).ok()) else {
            return waiting("spec.selector");
        };
        let Some(template) = target.pointer("/spec/template") else {
            return waiting("spec.template");
        };
        let main = template
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get(DEFAULT_CONTAINER)?.as_str());
        let owner = controller_of(target);
        let warning = owner.as_ref().map(|owner| has_owner(&workload, owner));
        Resolution::Found(Box::new(Target {
            pods: PodMatch {
                labels,
                owner: (self.1)(&workload.name),
            },
            chain: vec![workload.clone()],
            owner,
            roll: Roll::AnnotateTemplate(vec![workload.clone()]),
            scale: Scale::Object(workload.clone()),
            server: self.server(&shapes(template), main),
            warnings: warning.into_iter().collect(),
            workload,
        }))
    }

    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server {
        let Some(container) = main_container(containers, main) else {
            return Server::on_port(None, "rest");
        };
        let image = name_of(container.image);
        let known = KNOWN_IMAGES
            .iter()
            .find(|(name, ..)| image.starts_with(name));
        match known {
            Some((_, port, adapter)) => Server::on_port(Some(*port), adapter),
            None => Server::on_port(container.port, "rest"),
        }
    }
}

/// An image's name, without registry, folders, tag and digest.
fn name_of(image: &str) -> &str {
    image.rsplit('/').next().unwrap_or(image)
}

/// RES-4.
fn has_owner(workload: &ObjectRef, owner: &ObjectRef) -> Finding {
    let advice = match Family::of(owner.group_kind()) {
        Family::Generic => "it may take back what is changed there".to_owned(),
        _ => format!("set spec.workloadRef to {owner} instead, in a new AsyncActor"),
    };
    Finding::new(
        FindingReason::HasOwner,
        format!("{workload} belongs to {owner}: {advice}"),
    )
}
