//! Composes the tree of an actor.

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::names::{RUNTIME_CONFIG_MAP, annotation};
use serde::Serialize;
use serde_json::Value;

use crate::actor::{condition, retired_outcome, status_of};
use crate::cluster::{has_sidecar, is_ready};
use crate::queue::QueueState;
use crate::status::is_transient;

/// Objects related to an actor, if they could be read.
#[derive(Debug, Default)]
pub struct RelatedObjects {
    pub pods: Vec<Value>,
    pub autoscaler: Option<Value>,
    /// Whether the `ConfigMap` with the runtime script exists; `None` if unknown.
    pub has_script: Option<bool>,
    /// The queue as reported by the broker; `None` if unknown.
    pub queue: Option<QueueState>,
}

/// An object, or a part of one, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Kind/name, or a description.
    pub name: String,
    pub state: NodeState,
    pub detail: String,
    pub children: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    Good,
    /// Something else must happen first.
    Waiting,
    Bad,
    /// It has no state, or an unknown one.
    Plain,
}

impl Node {
    fn new(name: impl Into<String>, state: NodeState, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state,
            detail: detail.into(),
            children: Vec::new(),
        }
    }

    fn with(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    /// Whether the tree contains no problem.
    pub fn is_sound(&self) -> bool {
        self.state != NodeState::Bad && self.children.iter().all(Self::is_sound)
    }
}

/// The tree: target with workload and pods, queue, scaling, and the runtime script.
pub fn tree(actor: &Value, related: &RelatedObjects) -> Node {
    let status = status_of(actor);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (
        text(&actor["metadata"]["namespace"]),
        text(&actor["metadata"]["name"]),
    );
    let word = actor["status"]["status"]
        .as_str()
        .unwrap_or("not reconciled yet");
    let (state, detail) = of_condition(&status, "Ready");
    let detail = if state == NodeState::Good {
        word.to_owned()
    } else {
        format!("{word}: {detail}")
    };
    Node::new(format!("AsyncActor/{namespace}/{name}"), state, detail)
        .with([workload(actor, &status, &related.pods)])
        .with([queue(actor, &status, related.queue.as_ref())])
        .with(scaling(&status, related))
        .with(related.has_script.map(script))
}

/// The state and text of a condition.
fn of_condition(status: &AsyncActorStatus, kind: &str) -> (NodeState, String) {
    let Some(condition) = condition(status, kind) else {
        return (NodeState::Plain, String::new());
    };
    let text = format!("{}: {}", condition.reason, condition.message);
    match &*condition.status {
        "True" => (NodeState::Good, condition.reason.clone()),
        "False" if is_transient(&condition.reason) => (NodeState::Waiting, text),
        "False" => (NodeState::Bad, text),
        _ => (NodeState::Waiting, text),
    }
}

/// The target and what it resolves to, or the actor's own workload, and the pods.
fn workload(actor: &Value, status: &AsyncActorStatus, pods: &[Value]) -> Node {
    let pods = pods.iter().map(pod);
    let reference = &actor["spec"]["workloadRef"];
    let (Some(kind), Some(name)) = (reference["kind"].as_str(), reference["name"].as_str()) else {
        let (state, detail) = of_condition(status, "WorkloadReady");
        let name = status.workload_ref.as_ref().map_or_else(
            || "workload".to_owned(),
            |it| format!("{}/{}", it.kind, it.name),
        );
        return Node::new(name, state, detail).with(pods);
    };
    let (state, detail) = of_condition(status, "TargetResolved");
    let target = format!("{kind}/{name}");
    let (injected, injected_detail) = of_condition(status, "Injected");
    let sidecars = Node::new("sidecars", injected, injected_detail).with(pods);
    let chain = status
        .resolved_target
        .as_ref()
        .map_or(&[][..], |it| &it.chain);
    let links = chain.iter().filter(|link| **link != target).rev();
    let below = links.fold(sidecars, |below, link| {
        Node::new(link, NodeState::Plain, "").with([below])
    });
    Node::new(target, state, detail).with([below])
}

fn pod(pod: &Value) -> Node {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    let has_sidecar = has_sidecar(pod);
    let is_ready = is_ready(pod);
    let phase = status["phase"].as_str().unwrap_or("Unknown");
    let skipped = metadata["annotations"]
        .get(annotation::NOT_INJECTED)
        .and_then(Value::as_str);
    let sidecar = match (has_sidecar, skipped) {
        (true, _) => "with the sidecar".to_owned(),
        (false, Some(reason)) => format!("without the sidecar ({reason})"),
        (false, None) => "without the sidecar".to_owned(),
    };
    let state = match (
        metadata["deletionTimestamp"].is_string(),
        has_sidecar,
        is_ready,
    ) {
        (false, false, _) => NodeState::Bad,
        (false, true, true) => NodeState::Good,
        (true, ..) | (false, true, false) => NodeState::Waiting,
    };
    let word = match (metadata["deletionTimestamp"].is_string(), is_ready) {
        (true, _) => "Terminating",
        (false, true) => "Ready",
        (false, false) => phase,
    };
    let name = metadata["name"].as_str().unwrap_or_default();
    Node::new(format!("Pod/{name}"), state, format!("{word}, {sidecar}"))
}

fn queue(actor: &Value, status: &AsyncActorStatus, reported: Option<&QueueState>) -> Node {
    let (state, detail) = of_condition(status, "TransportReady");
    let Some(queue) = &status.queue else {
        let transport = actor["spec"]["transport"].as_str().unwrap_or("-");
        return Node::new(format!("queue on {transport}"), state, detail);
    };
    let count = |number: Option<i64>| number.map_or_else(|| "?".to_owned(), |it| it.to_string());
    let (queued, processing) = (
        count(status.queued_messages),
        count(status.processing_messages),
    );
    let mut counts = format!("{detail}, {queued} queued, {processing} in process");
    let consumers = reported.and_then(|it| it.consumers);
    counts.extend(consumers.map(|count| format!(", {count} consumers")));
    let findings = reported.map_or_else(Vec::new, |it| it.findings(actor));
    let stuck = findings.iter().filter(|it| it.is_failure);
    let stuck = stuck.map(|it| {
        Node::new(
            "messages",
            NodeState::Bad,
            format!("{}: {}", it.id, it.text),
        )
    });
    let dead_letters = dead_letters(actor, queue, reported);
    let retired = status.retired_queues.iter().map(|queue| {
        let name = format!("retired queue {} on {}", queue.name, queue.transport);
        Node::new(name, NodeState::Waiting, retired_outcome(queue))
    });
    let name = format!("queue {} on {}", queue.name, queue.transport);
    Node::new(name, state, counts)
        .with(stuck)
        .with(dead_letters)
        .with(retired)
}

/// The dead letter queues, with message counts if the broker could be asked.
fn dead_letters(actor: &Value, queue: &QueueStatus, state: Option<&QueueState>) -> Vec<Node> {
    let reported = state.and_then(|it| Some((it.dead_letter_queue.as_ref()?, it.dead_letters)));
    let Some((name, count)) = reported else {
        let names = queue.dead_letters.iter();
        let node = |name| Node::new(format!("dead letters {name}"), NodeState::Plain, "");
        return names.map(node).collect();
    };
    let actor = actor["metadata"]["name"].as_str().unwrap_or_default();
    let (state, detail) = match count {
        None => (NodeState::Waiting, "missing at the broker".to_owned()),
        Some(0) => (NodeState::Good, "none".to_owned()),
        Some(count) => (
            NodeState::Waiting,
            format!("{count} messages; `kubectl asya dlq {actor} list` shows them"),
        ),
    };
    vec![Node::new(format!("dead letters {name}"), state, detail)]
}

/// KEDA's `ScaledObject` and its autoscaler; `None` while scaling is off.
fn scaling(status: &AsyncActorStatus, related: &RelatedObjects) -> Option<Node> {
    let (state, detail) = of_condition(status, "ScalingReady");
    let reference = status.scaled_object_ref.as_ref();
    if reference.is_none() && condition(status, "ScalingReady").is_none() {
        return None;
    }
    let name = reference.map_or_else(
        || "scaling".to_owned(),
        |it| format!("ScaledObject/{}", it.name),
    );
    let autoscaler = related.autoscaler.as_ref().map(|autoscaler| {
        let name = autoscaler["metadata"]["name"].as_str().unwrap_or_default();
        let count = |field: &str| autoscaler["status"][field].as_i64().unwrap_or_default();
        let detail = format!(
            "{} replicas, {} desired",
            count("currentReplicas"),
            count("desiredReplicas")
        );
        Node::new(
            format!("HorizontalPodAutoscaler/{name}"),
            NodeState::Plain,
            detail,
        )
    });
    Some(Node::new(name, state, detail).with(autoscaler))
}

fn script(exists: bool) -> Node {
    let (state, detail) = if exists {
        (NodeState::Good, "exists")
    } else {
        (NodeState::Bad, "missing")
    };
    Node::new(format!("ConfigMap/{RUNTIME_CONFIG_MAP}"), state, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::render;
    use super::*;

    fn actor() -> Value {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "text",
                "lastTransitionTime": "2026-11-23T12:00:00Z",
            })
        };
        json!({
            "metadata": {"namespace": "models", "name": "embed"},
            "spec": {"transport": "mq", "workloadRef": {"kind": "Workspace", "name": "phi"}},
            "status": {
                "status": "Running",
                "queuedMessages": 12, "processingMessages": 3,
                "queue": {"transport": "mq", "name": "asya-embed", "deadLetters": ["asya-embed-dlq"]},
                "resolvedTarget": {
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "phi", "podSelector": "app=phi",
                    "chain": ["Workspace/phi", "InferenceSet/phi", "StatefulSet/phi"],
                },
                "conditions": [
                    condition("Ready", "True", "AllReady"),
                    condition("TransportReady", "True", "QueueReady"),
                    condition("TargetResolved", "True", "Resolved"),
                    condition("Injected", "True", "AllPodsInjected"),
                ],
            },
        })
    }

    fn pod_named(name: &str, container: &str, ready: &str) -> Value {
        json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "model"}, {"name": container}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    fn plain(tree: &Node) -> String {
        let text = render::text(tree, None);
        ["\x1b[0m", "\x1b[32m", "\x1b[31m", "\x1b[33m"]
            .iter()
            .fold(text, |text, code| text.replace(code, ""))
    }

    #[test]
    fn tree_leads_from_the_actor_to_its_pods_and_queue() {
        let related = RelatedObjects {
            pods: vec![
                pod_named("phi-0", "asya-sidecar", "True"),
                pod_named("phi-1", "asya-sidecar", "False"),
            ],
            has_script: Some(true),
            ..RelatedObjects::default()
        };
        let tree = tree(&actor(), &related);
        assert!(tree.is_sound());
        assert_eq!(
            plain(&tree),
            "AsyncActor/models/embed   Running\n\
             ├─ Workspace/phi   Resolved\n\
             │  └─ InferenceSet/phi\n\
             │     └─ StatefulSet/phi\n\
             │        └─ sidecars   AllPodsInjected\n\
             │           ├─ Pod/phi-0   Ready, with the sidecar\n\
             │           └─ Pod/phi-1   Running, with the sidecar\n\
             ├─ queue asya-embed on mq   QueueReady, 12 queued, 3 in process\n\
             │  └─ dead letters asya-embed-dlq\n\
             └─ ConfigMap/asya-runtime   exists\n"
        );
    }

    #[test]
    fn broker_adds_consumers_and_dead_letters() {
        let mut actor = actor();
        actor["status"]["readyReplicas"] = json!(1);
        let queue = QueueState {
            queue: "asya-embed".to_owned(),
            waiting: Some(3),
            consumers: Some(0),
            dead_letter_queue: Some("asya-embed-dlq".to_owned()),
            dead_letters: Some(2),
            has_shared_dead_letters: false,
        };
        let related = RelatedObjects {
            queue: Some(queue),
            ..RelatedObjects::default()
        };
        let tree = tree(&actor, &related);
        assert!(!tree.is_sound());
        assert!(
            plain(&tree).contains(
                "└─ queue asya-embed on mq   QueueReady, 12 queued, 3 in process, 0 consumers\n   \
                 ├─ messages   ASYA-NoConsumers: 3 wait in asya-embed, which has no consumers.\n   \
                 └─ dead letters asya-embed-dlq   2 messages; `kubectl asya dlq embed list` shows them\n"
            ),
            "{}",
            plain(&tree)
        );
    }

    /// docs/cli.md: exit code 1 means findings, and `status` has none in this case either.
    #[test]
    fn what_is_under_way_is_waited_for_and_no_problem() {
        for (reason, is_sound) in [("RollingOut", true), ("PodsNotInjected", false)] {
            let mut actor = actor();
            let conditions = actor["status"]["conditions"].as_array_mut().unwrap();
            for condition in conditions.iter_mut().filter(|it| it["type"] == "Ready") {
                condition["status"] = json!("False");
                condition["reason"] = json!(reason);
            }
            let tree = tree(&actor, &RelatedObjects::default());
            assert_eq!(tree.is_sound(), is_sound, "{reason}");
        }
    }

    #[test]
    fn pod_without_the_sidecar_is_not_sound() {
        let related = RelatedObjects {
            pods: vec![pod_named("phi-0", "other", "True")],
            ..RelatedObjects::default()
        };
        let tree = tree(&actor(), &related);
        assert!(!tree.is_sound());
        assert!(plain(&tree).contains("Pod/phi-0   Ready, without the sidecar\n"));
    }
}
