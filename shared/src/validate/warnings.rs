//! Warnings about settings that are allowed but probably unintended (VAL-17).

use std::fmt;

use asya_wire::env::MAX_SQS_VISIBILITY_TIMEOUT;

use super::template::{pod_spec, runtime_containers};
use super::{Subject, Write};
use crate::config::TransportKind;
use crate::transport::rabbitmq::queue_with_same_key;

/// Maximum visibility timeout of SQS, in seconds.
const LONGEST_VISIBILITY_SECONDS: u64 = MAX_SQS_VISIBILITY_TIMEOUT as u64;

/// Something allowed but probably unintended, written as `<path>: <text>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// Path of the field from the object's root.
    pub path: String,
    /// The consequence.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// All warnings, sorted by path. Warnings never reject an actor.
#[must_use]
pub fn warnings(subject: &Subject<'_>) -> Vec<Warning> {
    let rules = [
        transport_cannot_be_used,
        transport_changed,
        other_queue_has_its_key,
        handler_is_missing,
        two_grace_periods,
        replicas_have_no_effect,
        visibility_is_cut,
        pods_idle_below_their_concurrency,
    ];
    let mut found: Vec<Warning> = rules
        .iter()
        .filter_map(|rule| rule(subject))
        .map(|(path, text)| Warning { path, text })
        .collect();
    found.sort();
    found
}

type Found = Option<(String, String)>;

fn transport_cannot_be_used(subject: &Subject<'_>) -> Found {
    let unusable = subject.transports.usable(&subject.spec.transport).err()?;
    let enabled: Vec<&str> = subject
        .transports
        .iter()
        .filter(|it| it.enabled)
        .map(|it| it.name.as_str())
        .collect();
    let enabled = if enabled.is_empty() {
        "none".to_owned()
    } else {
        enabled.join(", ")
    };
    (!subject.spec.transport.is_empty()).then(|| {
        (
            "spec.transport".to_owned(),
            format!("{unusable}; enabled: {enabled}"),
        )
    })
}

fn transport_changed(subject: &Subject<'_>) -> Found {
    let old = &subject.old()?.transport;
    let new = &subject.spec.transport;
    (old != new).then(|| {
        let text = format!("messages in the queue on {old} are not moved to {new}");
        ("spec.transport".to_owned(), text)
    })
}

/// Only for new queues: the routing keys of existing ones stay (RMQ-4).
fn other_queue_has_its_key(subject: &Subject<'_>) -> Found {
    let is_new = match subject.write {
        Write::Create => true,
        Write::Update { old } => old.transport != subject.spec.transport,
        Write::Stored(_) => false,
    };
    let transport = subject.transports.usable(&subject.spec.transport).ok()?;
    let TransportKind::Rabbitmq(_) = &transport.kind else {
        return None;
    };
    let queue = transport.names_of(subject.namespace, subject.name).queue;
    let other = queue_with_same_key(&queue).filter(|_| is_new)?;
    let text = format!(
        "queue {queue} has the routing key {other}, which queue {other} has as well: one of that name gets copies of \
         this actor's messages from senders that publish to the exchange; let them publish to the default exchange by \
         the queue's name, or choose a name with which the queue does not begin with asya-asya-"
    );
    Some(("metadata.name".to_owned(), text))
}

/// KEDA counts messages in process, too: with fewer messages per pod than it can process, pods are added that stay
/// partly idle (VAL-17).
fn pods_idle_below_their_concurrency(subject: &Subject<'_>) -> Found {
    let concurrency = subject.spec.effective_concurrency()?;
    let queue_length = subject.spec.effective_scaling()?.queue_length;
    (queue_length < concurrency).then(|| {
        let text = format!(
            "{queue_length} is below spec.concurrency {concurrency}: pods are added before the existing ones are busy"
        );
        ("spec.scaling.queueLength".to_owned(), text)
    })
}

fn handler_is_missing(subject: &Subject<'_>) -> Found {
    let container = runtime_containers(subject).into_iter().next()?;
    let set = container
        .items("env")
        .iter()
        .any(|it| it.text("name") == Some("ASYA_HANDLER"));
    (!set && container.items("envFrom").is_empty()).then(|| {
        let text = "ASYA_HANDLER is not set: asya-runtime exits at once unless its image sets it";
        (container.path_of("env"), text.to_owned())
    })
}

fn two_grace_periods(subject: &Subject<'_>) -> Found {
    let of_pod = pod_spec(subject)?.get("terminationGracePeriodSeconds")?;
    let of_actor = subject
        .spec
        .timeout
        .as_ref()?
        .graceful_shutdown
        .filter(|it| *it > 0)?;
    (of_pod.value.as_i64() != Some(i64::from(of_actor))).then(|| {
        let text =
            format!("takes precedence over timeout.gracefulShutdown ({of_actor}); set only one");
        (of_pod.path, text)
    })
}

fn replicas_have_no_effect(subject: &Subject<'_>) -> Found {
    subject.spec.workload.as_ref()?.replicas?;
    subject.spec.effective_scaling()?;
    Some((
        "spec.workload.replicas".to_owned(),
        "has no effect while scaling is enabled".to_owned(),
    ))
}

fn visibility_is_cut(subject: &Subject<'_>) -> Found {
    let transport = subject.transports.usable(&subject.spec.transport).ok()?;
    let TransportKind::Sqs(config) = &transport.kind else {
        return None;
    };
    let processing = u64::from(subject.spec.effective_timeout().processing_for_broker());
    let path = "spec.timeout.processing".to_owned();
    if processing > LONGEST_VISIBILITY_SECONDS {
        let text = format!(
            "exceeds the maximum SQS visibility timeout: the sidecar gives a message up after \
             {LONGEST_VISIBILITY_SECONDS} s"
        );
        return Some((path, text));
    }
    let is_cut = config.visibility_timeout.is_none() && 2 * processing > LONGEST_VISIBILITY_SECONDS;
    is_cut.then(|| {
        let text = format!(
            "twice this value exceeds the maximum SQS visibility timeout, {LONGEST_VISIBILITY_SECONDS} s: a message \
             that takes longer is redelivered"
        );
        (path, text)
    })
}

#[cfg(test)]
mod tests;
