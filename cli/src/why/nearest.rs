//! The actor that comes closest to binding a pod, and what is missing.

use asya_shared::inject::bound::{BoundActor, PodView};
use asya_shared::resolve::{OwnerRule, Selector};
use serde::Serialize;

/// An actor that does not bind the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nearest {
    pub actor: String,
    /// Each requirement that the pod does not meet.
    pub missing: Vec<String>,
}

/// The binding of which the pod misses the fewest requirements; the first one if there are several.
pub fn nearest<'a>(
    bindings: impl IntoIterator<Item = &'a BoundActor>,
    pod: &PodView<'_>,
) -> Option<Nearest> {
    let all = bindings.into_iter().map(|binding| Nearest {
        actor: binding.to_string(),
        missing: missing(binding, pod),
    });
    all.min_by_key(|nearest| nearest.missing.len())
}

fn missing(binding: &BoundActor, pod: &PodView<'_>) -> Vec<String> {
    let mut missing = Vec::new();
    let owner = &binding.pods.owner;
    match pod.controller() {
        None => missing.push(format!(
            "the pod has no controller, and {} is needed",
            described(owner)
        )),
        Some(controller) if !owner.is_met_by(&controller) => missing.push(format!(
            "the pod's controller is {}/{}, and {} is needed",
            controller.kind,
            controller.name,
            described(owner)
        )),
        Some(_) => {}
    }
    for requirement in binding.pods.labels.requirements() {
        let alone = Selector::new([requirement.clone()]);
        if !alone.matches(&|key: &str| pod.label(key)) {
            let key = &requirement.key;
            let found = pod.label(key).map_or_else(
                || format!("no label {key}"),
                |value| format!("{key}={value}"),
            );
            missing.push(format!("the pod has {found}, and {requirement} is needed"));
        }
    }
    missing
}

fn described(rule: &OwnerRule) -> String {
    match rule {
        OwnerRule::Kind(kind) => format!("any {}", kind.kind),
        OwnerRule::Named { kind, name } => format!("{}/{name}", kind.kind),
        OwnerRule::ReplicaSetOf { deployment } => {
            format!("a ReplicaSet of Deployment/{deployment}")
        }
        OwnerRule::AnyOf(rules) if rules.is_empty() => {
            "an object that the target does not have yet".to_owned()
        }
        OwnerRule::AnyOf(rules) => {
            let rules: Vec<_> = rules.iter().map(described).collect();
            rules.join(" or ")
        }
    }
}
