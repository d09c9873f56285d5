//! CPU and memory of our containers in other controllers' pods (BIND-27).

use serde_json::{Map, Value, json};

use super::pod::{Amounts, Container, PodView};
use crate::api::Resources;
use crate::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER};
use crate::quantity::Quantity;

/// An HPA on CPU fails for a pod with a container that has no request, and a large request dilutes its utilisation.
const REQUESTS: [(&str, &str); 2] = [("cpu", "10m"), ("memory", "32Mi")];
/// In a Guaranteed pod the request is also the limit, so it must suffice.
const GUARANTEED: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "128Mi")];

/// The quality of service of a pod, which our containers must preserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QosClass {
    /// Every container has limits equal to its requests.
    Guaranteed,
    /// Resources are set at pod level; the containers' requests must fit in.
    PodLevel,
    /// Burstable or `BestEffort`.
    Other,
}

/// The quality of service of a pod, ignoring our containers.
pub(super) fn qos_class(pod: &PodView<'_>) -> QosClass {
    if pod.spec.resources.is_some() {
        return QosClass::PodLevel;
    }
    let mut others = pod
        .containers()
        .filter(|it| ![RUNTIME_CONTAINER, SIDECAR_CONTAINER].contains(&it.name.as_ref()))
        .peekable();
    if others.peek().is_some() && others.all(is_guaranteed) {
        QosClass::Guaranteed
    } else {
        QosClass::Other
    }
}

fn is_guaranteed(container: &Container<'_>) -> bool {
    let none = Amounts::default();
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|it| it.limits.as_ref()).unwrap_or(&none);
    let requests = resources
        .and_then(|it| it.requests.as_ref())
        .unwrap_or(&none);
    // an omitted request defaults to the limit
    let fixed = |limit: Option<Quantity>, request: Option<Quantity>| {
        limit.is_some_and(Quantity::is_positive) && request.is_none_or(|it| Some(it) == limit)
    };
    fixed(limits.cpu, requests.cpu) && fixed(limits.memory, requests.memory)
}

/// The limit to set on an injected container where a quota requires one.
pub(super) fn limit(name: &str, installed: &Resources) -> Option<Value> {
    let set = installed.0.get("limits").and_then(|all| all.get(name));
    let enough = || GUARANTEED.iter().find(|(known, _)| *known == name);
    set.filter(|it| !it.is_null())
        .cloned()
        .or_else(|| Some(json!(enough()?.1)))
}

/// The resources of an injected container; `given` is set by the user, `limits` are required by quotas.
pub(super) fn injected_resources(
    given: Option<&Resources>,
    quality: QosClass,
    limits: &[(String, Value)],
) -> Value {
    let mut resources = given.map(|it| it.0.clone()).unwrap_or_default();
    let amount_of = |resources: &Map<String, Value>, list: &str, name: &str| {
        let quantity = resources.get(list)?.get(name)?;
        (!quantity.is_null()).then(|| quantity.clone())
    };
    match quality {
        QosClass::PodLevel => {}
        QosClass::Other => {
            for (name, least) in REQUESTS {
                if amount_of(&resources, "requests", name).is_none() {
                    let limit = amount_of(&resources, "limits", name);
                    put(
                        &mut resources,
                        "requests",
                        name,
                        limit.unwrap_or(json!(least)),
                    );
                }
            }
            for (name, enough) in limits {
                if amount_of(&resources, "limits", name).is_none() {
                    let request = amount_of(&resources, "requests", name);
                    let larger = request
                        .filter(|request| Quantity::of(request) > Quantity::of(enough))
                        .unwrap_or_else(|| enough.clone());
                    put(&mut resources, "limits", name, larger);
                }
            }
        }
        QosClass::Guaranteed => {
            for (name, enough) in GUARANTEED {
                let limit = amount_of(&resources, "limits", name);
                let quantity = limit
                    .or_else(|| amount_of(&resources, "requests", name))
                    .unwrap_or(json!(enough));
                put(&mut resources, "limits", name, quantity.clone());
                put(&mut resources, "requests", name, quantity);
            }
        }
    }
    Value::Object(resources)
}

fn put(resources: &mut Map<String, Value>, list: &str, name: &str, quantity: Value) {
    if let Some(quantities) = crate::inject::object_at(resources, list) {
        quantities.insert(name.to_owned(), quantity);
    }
}
