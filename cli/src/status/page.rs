//! Everything about one actor.

use asya_shared::api::{AsyncActorStatus, NotInjected, QueueStatus};
use asya_shared::inject::bound::missing;
use asya_shared::names::annotation;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::decide::{ActorSummary, summary};
use crate::actor::{next_step, retired_outcome, roll_now, status_of, strategy};
use crate::catalogue;
use crate::cluster::{has_sidecar, is_ready};
use crate::output::{age, since};
use crate::queue::{QueueFinding, QueueState};

/// The page of an actor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    #[serde(flatten)]
    pub summary: ActorSummary,
    /// Name and text of each detail.
    #[serde(rename = "facts")]
    pub details: Vec<(String, String)>,
    pub conditions: Vec<ConditionLine>,
    pub events: Vec<EventLine>,
    /// Queue, consumers and dead letters as reported by the broker; absent if the broker could not be asked.
    pub broker: Option<QueueState>,
    /// Number of pods that are ready without the sidecar; absent if the pods could not be read, or all have it.
    pub ready_without_sidecar: Option<usize>,
    /// Findings from the broker's report.
    pub findings: Vec<QueueFinding>,
    /// The next steps, or what they wait for.
    pub next: Vec<String>,
}

/// The page's inputs besides the actor; those that could not be read are absent.
#[derive(Clone, Debug, Default)]
pub struct Around {
    pub events: Vec<Value>,
    /// Pods of the target.
    pub pods: Option<Vec<Value>>,
    pub queue: Option<QueueState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionLine {
    pub r#type: String,
    pub status: String,
    pub reason: String,
    pub age: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine {
    pub age: String,
    pub reason: String,
    pub message: String,
}

/// Composes the page.
pub fn page(actor: &Value, around: Around, now: Timestamp) -> Page {
    let status = status_of(actor);
    let ready_without_sidecar = around.pods.as_deref().map(ready_without_sidecar);
    let ready_without_sidecar = ready_without_sidecar.filter(|count| *count > 0);
    let findings = around.queue.as_ref().map(|queue| queue.findings(actor));
    let conditions = status.conditions.iter().map(|condition| ConditionLine {
        r#type: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        age: since(condition.last_transition_time.0, now),
        message: condition.message.clone(),
    });
    Page {
        summary: summary(actor, now),
        details: details(actor, &status, &around, ready_without_sidecar, now),
        conditions: conditions.collect(),
        events: around
            .events
            .iter()
            .map(|event| event_line(event, now))
            .collect(),
        broker: around.queue,
        ready_without_sidecar,
        findings: findings.unwrap_or_default(),
        next: next(actor, &status, now),
    }
}

impl Page {
    /// Whether the actor needs attention.
    pub fn needs_attention(&self) -> bool {
        self.summary.attention.is_some() || self.findings.iter().any(|it| it.is_failure)
    }
}

/// Whether pods run without the sidecar, so that the page shows whether they are ready.
pub fn has_pods_without_sidecar(actor: &Value) -> bool {
    let pods = status_of(actor).pods;
    pods.is_some_and(|pods| pods.matched > pods.injected)
}

/// How many pods are ready without the sidecar, which status counts as not ready (BIND-6).
fn ready_without_sidecar(pods: &[Value]) -> usize {
    let active = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    active
        .filter(|pod| is_ready(pod) && !has_sidecar(pod))
        .count()
}

fn details(
    actor: &Value,
    status: &AsyncActorStatus,
    around: &Around,
    ready_without_sidecar: Option<usize>,
    now: Timestamp,
) -> Vec<(String, String)> {
    let mut details = Vec::new();
    let mut add = |name: &str, text: Option<String>| {
        details.extend(text.map(|text| (name.to_owned(), text)));
    };
    add("target", target(actor, status));
    add("queue", Some(queue(actor, status)));
    if let Some(state) = &around.queue {
        add("", Some(at_the_broker(state)));
    }
    add("pods", pods(status));
    if let Some(count) = ready_without_sidecar {
        add("", Some(ready_pods(count)));
    }
    for reason in status.pods.iter().flat_map(|pods| &pods.reasons) {
        add("", Some(not_injected(reason)));
    }
    add("rollout", strategy(actor).map(str::to_owned));
    add("scaling", scaling(status, now));
    details
}

fn ready_pods(count: usize) -> String {
    let pods = if count == 1 { "pod is" } else { "pods are" };
    format!(
        "{count} {pods} ready, without the sidecar: the actor counts pods as ready once they have it"
    )
}

fn at_the_broker(state: &QueueState) -> String {
    let Some(waiting) = state.waiting else {
        return format!("the broker has no queue {}", state.queue);
    };
    let consumers = state.consumers.map(|count| format!(", {count} consumers"));
    let dead_letters = match (&state.dead_letter_queue, state.dead_letters) {
        (None, _) => "no dead letter queue".to_owned(),
        (Some(queue), None) => format!("no queue {queue} for dead letters"),
        (Some(queue), Some(count)) => format!("{count} dead letters in {queue}"),
    };
    format!(
        "at the broker: {waiting} waiting{}; {dead_letters}",
        consumers.unwrap_or_default()
    )
}

fn target(actor: &Value, status: &AsyncActorStatus) -> Option<String> {
    let reference = &actor["spec"]["workloadRef"];
    let (Some(kind), Some(name)) = (reference["kind"].as_str(), reference["name"].as_str()) else {
        let workload = status.workload_ref.as_ref()?;
        return Some(format!(
            "{}/{}, created by the operator",
            workload.kind, workload.name
        ));
    };
    let resolved = status.resolved_target.as_ref().map_or_else(
        || "not resolved".to_owned(),
        |resolved| {
            let selector = resolved.pod_selector.as_deref().unwrap_or("-");
            format!(
                "resolved to {}/{}, pods {selector}",
                resolved.kind, resolved.name
            )
        },
    );
    Some(format!("{kind}/{name}, {resolved}"))
}

fn queue(actor: &Value, status: &AsyncActorStatus) -> String {
    let Some(queue) = &status.queue else {
        let transport = actor["spec"]["transport"].as_str().unwrap_or("-");
        return format!("none yet, on transport {transport}");
    };
    let count = |number: Option<i64>| number.map_or_else(|| "?".to_owned(), |it| it.to_string());
    let (queued, processing) = (
        count(status.queued_messages),
        count(status.processing_messages),
    );
    format!(
        "{} on {}: {queued} queued, {processing} in process",
        queue.name, queue.transport
    )
}

fn pods(status: &AsyncActorStatus) -> Option<String> {
    let count = |number: Option<i32>| number.unwrap_or_default();
    let totals = format!(
        "{} ready of {} desired, {} in all, {} failing",
        count(status.ready_replicas.or(status.replicas)),
        count(status.desired_replicas),
        count(status.total_replicas),
        count(status.failing_pods)
    );
    let injected = status.pods.as_ref().map(|pods| {
        format!(
            "; {} of {} with the sidecar, {} outdated",
            pods.injected, pods.matched, pods.outdated
        )
    });
    status.total_replicas?;
    Some(totals + &injected.unwrap_or_default())
}

fn not_injected(reason: &NotInjected) -> String {
    let meaning = catalogue::entry(&reason.reason).map_or("", |it| it.meaning);
    let examples = reason.examples.join(", ");
    format!(
        "{} without the sidecar ({}): {examples}. {meaning}",
        reason.count, reason.reason
    )
}

fn scaling(status: &AsyncActorStatus, now: Timestamp) -> Option<String> {
    let mode = serde_json::to_value(status.scaling_mode?).ok()?;
    let mode = mode.as_str()?.to_owned();
    let range = status
        .min_replicas
        .zip(status.max_replicas)
        .map(|(min, max)| format!(", {min} to {max} pods"));
    let last = status
        .last_scale_time
        .as_ref()
        .zip(status.last_scale_direction.as_ref());
    let last =
        last.map(|(time, direction)| format!(", last {direction} {} ago", since(time.0, now)));
    Some(format!(
        "{mode}{}{}",
        range.unwrap_or_default(),
        last.unwrap_or_default()
    ))
}

/// The operator's next steps, or what they wait for, as recorded in status.
fn next(actor: &Value, status: &AsyncActorStatus, now: Timestamp) -> Vec<String> {
    let mut next = Vec::new();
    if actor["metadata"]["deletionTimestamp"].is_string() {
        next.push("the actor is being deleted".to_owned());
    }
    let mut reasons = status.pods.iter().flat_map(|pods| &pods.reasons);
    let needs_rollout = reasons.any(|it| missing::is_known(&it.reason));
    next.extend(
        next_step(actor)
            .filter(|_| needs_rollout)
            .map(|step| format!("pods without the sidecar: {step}")),
    );
    next.extend(roll_now_stays(actor).filter(|_| !needs_rollout));
    if let Some(rollout) = &status.rollout {
        next.push(match (rollout.halted, rollout.stalled) {
            (true, _) => "the rollout is halted until the spec of the actor or its target changes, or `kubectl asya roll`".to_owned(),
            (_, true) => "the rollout waits until the last replaced pod is ready".to_owned(),
            _ => format!("pods are being replaced, attempt {}", rollout.tries),
        });
    }
    for conflict in &status.conflicts {
        let retry = conflict
            .retry_time
            .as_ref()
            .filter(|_| conflict.is_waiting());
        if let Some(time) = retry {
            let seconds = time.0.duration_since(now).as_secs().max(0);
            next.push(format!(
                "{} of {} is written again in {seconds} s",
                conflict.field, conflict.object
            ));
        }
    }
    for queue in &status.retired_queues {
        let QueueStatus {
            name, transport, ..
        } = queue;
        next.push(format!(
            "queue {name} on {transport} {}",
            retired_outcome(queue)
        ));
    }
    next
}

/// A note that the annotation that rolls pods stays in effect after they are replaced (ROLL-8).
fn roll_now_stays(actor: &Value) -> Option<String> {
    let since = roll_now(actor)?;
    let text = |field: &str| actor["metadata"][field].as_str().unwrap_or_default();
    Some(format!(
        "annotation {annotation} (since {since}) stays in effect: pods that become outdated are replaced at once, \
         whatever spec.binding.rollout says; `kubectl annotate asyncactor {} -n {} {annotation}-` ends that",
        text("name"),
        text("namespace"),
        annotation = annotation::ROLL_NOW,
    ))
}

/// When an Event last occurred, as text that sorts by time.
pub fn event_time(event: &Value) -> String {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let time = times.into_iter().find_map(Value::as_str);
    time.unwrap_or_default().to_owned()
}

fn event_line(event: &Value, now: Timestamp) -> EventLine {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    EventLine {
        age: age(Some(&event_time(event)), now),
        reason: text("reason"),
        message: text("message"),
    }
}

#[cfg(test)]
mod tests;
