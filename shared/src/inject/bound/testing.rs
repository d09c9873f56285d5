//! Fixtures shared by the tests of several modules.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::{
    Action, ActorInputs, BoundActor, Decision, InjectionReason, InjectionState, Patch, PodView,
    decide,
};
use crate::api::{AsyncActorSpec, EnvVar, InjectionStatus, ResolvedTarget};
use crate::config::testing::parse;
use crate::config::{Settings, TransportsConfig};
use crate::transport::testing::lines;

/// A binding to Deployment `phi` in `team-a`, and the configuration around it.
pub(crate) struct Binding {
    pub(crate) name: &'static str,
    pub(crate) uid: &'static str,
    pub(crate) created: Option<&'static str>,
    pub(crate) deleting: bool,
    pub(crate) bound: bool,
    pub(crate) spec: AsyncActorSpec,
    pub(crate) role_arn: Option<&'static str>,
    pub(crate) injection: Option<InjectionStatus>,
    pub(crate) resolved: Option<ResolvedTarget>,
    pub(crate) transports: TransportsConfig,
    pub(crate) settings: Settings,
    pub(crate) scripts_hash: &'static str,
}

impl Binding {
    /// A binding with these fields in its spec.
    pub(crate) fn new(spec: &Value) -> Self {
        let mut all = json!({
            "transport": "rabbit",
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "phi"},
        });
        all.as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        Self {
            name: "embed",
            uid: "uid-1",
            created: Some("2026-05-04T10:00:00Z"),
            deleting: false,
            bound: true,
            spec: serde_json::from_value(all).unwrap(),
            role_arn: None,
            injection: None,
            resolved: None,
            transports: parse(&json!({
                "rabbit": {"type": "rabbitmq", "enabled": true, "config": {"host": "broker"}},
                "cloud": {"type": "sqs", "enabled": true, "config": {"region": "eu-west-1"}},
                "off": {"type": "sqs", "enabled": false},
            }))
            .unwrap(),
            settings: Settings::parse(None, None, None).unwrap(),
            scripts_hash: "0123456789abcdef",
        }
    }

    pub(crate) fn required() -> Self {
        Self::new(&json!({"binding": {"required": true}}))
    }

    pub(crate) fn actor(&self) -> BoundActor {
        let created = self
            .created
            .map(|time| serde_json::from_value(json!(time)).unwrap());
        BoundActor::new(&ActorInputs {
            namespace: "team-a",
            name: self.name,
            uid: self.uid,
            created: created.as_ref(),
            deleting: self.deleting,
            spec: &self.spec,
            role_arn: self.role_arn,
            bound: self.bound,
            injection: self.injection.as_ref(),
            resolved: self.resolved.as_ref(),
            transports: &self.transports,
            settings: &self.settings,
            scripts_hash: self.scripts_hash,
            clusters: None,
        })
        .unwrap()
    }
}

/// A pod of Deployment `phi` as in a review, with these fields in its spec.
pub(crate) fn pod(spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "phi-5d8f7c-",
            "labels": {"app": "phi", "pod-template-hash": "5d8f7c"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "phi-5d8f7c", "uid": "u", "controller": true}],
        },
        "spec": {
            "containers": [{"name": "model", "image": "me/model:1", "ports": [{"containerPort": 8090}]}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
        },
    });
    let fields = spec.as_object().unwrap().clone();
    pod["spec"].as_object_mut().unwrap().extend(fields);
    pod
}

/// Reviews a pod.
pub(crate) fn review<'a>(actor: &'a BoundActor, pod: &Value) -> Decision<'a> {
    review_by([actor], pod)
}

pub(crate) fn review_by<'a>(
    actors: impl IntoIterator<Item = &'a BoundActor>,
    pod: &Value,
) -> Decision<'a> {
    let raw = pod.to_string();
    decide(actors, &PodView::decode(&raw).unwrap())
}

/// The pod after the patch.
pub(crate) fn patched(pod: &Value, patch: &Patch) -> Value {
    let patch: json_patch::Patch = serde_json::from_str(&patch.to_json().unwrap()).unwrap();
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &patch).unwrap();
    pod
}

/// The pod after its review.
pub(crate) fn reviewed(actor: &BoundActor, pod: &Value) -> Value {
    match review(actor, pod).action {
        Action::Annotate(patch) | Action::Inject(patch) => patched(pod, &patch),
        Action::Allow => pod.clone(),
        Action::Deny(text) => panic!("{text}"),
    }
}

/// The pod with everything that the actor adds.
pub(crate) fn injected(actor: &BoundActor, pod: &Value) -> Value {
    let decision = review(actor, pod);
    assert_eq!(decision.reason, InjectionReason::Injected, "{decision:?}");
    reviewed(actor, pod)
}

/// A container from either list.
pub(crate) fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let mut found = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten()
        .filter(|it| it["name"] == name);
    let one = found.next().unwrap_or_else(|| panic!("no {name} in {pod}"));
    assert_eq!(found.next(), None, "{name} twice");
    one
}

/// The names in a list of the pod's spec.
pub(crate) fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    let items = pod["spec"][list].as_array().into_iter().flatten();
    items.map(|it| it["name"].as_str().unwrap()).collect()
}

/// The value of a container's environment variable.
pub(crate) fn env<'a>(pod: &'a Value, name: &str, variable: &str) -> Option<&'a str> {
    let env = container(pod, name)["env"].as_array()?;
    let entry = env.iter().find(|it| it["name"] == variable)?;
    entry["value"].as_str()
}

pub(crate) fn hash_of(actor: &BoundActor) -> (String, String) {
    let InjectionState::InEffect(plan) = &actor.state else {
        panic!("{actor:?}");
    };
    (plan.hash().actor.clone(), plan.hash().platform.clone())
}

/// A pod of a binding with these fields in its spec, after injection.
pub(crate) fn injected_pod(spec: &Value) -> Value {
    injected(&Binding::new(spec).actor(), &pod(&json!({})))
}

/// The variables of a container, one `NAME=value` each.
pub(crate) fn env_lines(pod: &Value, name: &str) -> Vec<String> {
    let env: Vec<EnvVar> = serde_json::from_value(container(pod, name)["env"].clone()).unwrap();
    lines(&env)
}
