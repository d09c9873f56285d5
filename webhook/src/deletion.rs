//! Denies deletions that would lose what the user wants to keep: of an actor that may be deleted only with an empty
//! queue, or without its objects (QUE-40, FW-23), and of the `CustomResourceDefinition`, with which all actors and
//! their queues are deleted (QUE-49).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use asya_shared::admission::CRD_NAME;
use asya_shared::api::QueueDeletionPolicy;
use asya_shared::names::{FINALIZER, GROUP, annotation};
use asya_shared::validate::is_switched_on;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::actor::ValidationMode;
use crate::index::Index;
use crate::outcome::{ReviewOutcome, ReviewReason};
use crate::review::{AdmissionRequest, AdmissionResponse, Served};

const ACTORS: Served = Served {
    group: GROUP,
    version: "v1alpha1",
    kind: "AsyncActor",
    resource: "asyncactors",
    operations: &["DELETE"],
};

const DEFINITIONS: Served = Served {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    resource: "customresourcedefinitions",
    operations: &["DELETE"],
};

const FORBIDDEN: u16 = 403;
/// The garbage collector does not wait for the operator to remove its ownerReferences.
const KEEPS_CHILDREN: &str = "spec.deletionPolicy: Orphan keeps the workload, the ScaledObject and the other objects of \
    the actor, but the garbage collector deletes them if the propagation policy is Foreground, so the actor is not \
    deleted. Use propagation policy Background (kubectl delete --cascade=background, the default of kubectl)";
/// Number of actors named in a denial.
const MAX_NAMED_ACTORS: usize = 3;

/// Reviews deletions.
pub struct DeletionReviewer {
    /// How a deletion that would lose something is handled.
    pub mode: ValidationMode,
    pub index: Arc<Index>,
}

#[derive(Deserialize)]
struct DeletedObject<'a> {
    #[serde(borrow)]
    metadata: DeletedMetadata<'a>,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletedMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow, default)]
    finalizers: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
}

impl DeletedMetadata<'_> {
    fn is_enabled(&self, name: &str) -> bool {
        let value = self.annotations.as_ref().and_then(|all| all.get(name));
        is_switched_on(value.map(AsRef::as_ref))
    }
}

impl DeletedObject<'_> {
    /// `deletionPolicy: Orphan`.
    fn keeps_children(&self) -> bool {
        self.spec.get("deletionPolicy").and_then(Value::as_str) == Some("Orphan")
    }
}

impl DeletionReviewer {
    /// Reviews a deletion. An object that cannot be decoded is allowed, because the finalizer is the backstop.
    pub fn review(&self, request: &AdmissionRequest<'_>) -> ReviewOutcome {
        let is_actor = request.is_for(&ACTORS);
        if !is_actor && !request.is_for(&DEFINITIONS) {
            return ReviewOutcome::not_served(request);
        }
        if self.mode == ValidationMode::Off {
            return ReviewOutcome::allowed(ReviewReason::Off);
        }
        let raw = request.old_object.map(RawValue::get).unwrap_or_default();
        let Ok(object) = serde_json::from_str::<DeletedObject<'_>>(raw) else {
            return ReviewOutcome::allowed(ReviewReason::Unreadable);
        };
        let denial = if is_actor {
            actor_denial(&object, request)
        } else {
            self.crd_denial(&object)
                .map(|text| (ReviewReason::ActorsLeft, text))
        };
        let Some((reason, text)) = denial else {
            return ReviewOutcome::allowed(ReviewReason::Valid);
        };
        let response = match self.mode {
            ValidationMode::Warn => AdmissionResponse::warned(text),
            ValidationMode::Enforce | ValidationMode::Off => {
                AdmissionResponse::denied(FORBIDDEN, text)
            }
        };
        ReviewOutcome {
            response,
            reason,
            event: None,
        }
    }

    fn crd_denial(&self, object: &DeletedObject<'_>) -> Option<String> {
        if object.metadata.name != CRD_NAME
            || object.metadata.is_enabled(annotation::ALLOW_DELETION)
        {
            return None;
        }
        let mut with_queues = self.index.with_queues();
        with_queues.sort();
        let count = with_queues.len();
        let named: Vec<_> = with_queues
            .iter()
            .take(MAX_NAMED_ACTORS)
            .map(ToString::to_string)
            .collect();
        let dots = if count > MAX_NAMED_ACTORS {
            ", …"
        } else {
            ""
        };
        let have = if count == 1 {
            "AsyncActor has a queue"
        } else {
            "AsyncActors have queues"
        };
        (count > 0).then(|| {
            format!(
                "{count} {have} ({}{dots}): deleting their CustomResourceDefinition deletes them and \
                 their queues, messages included. Set spec.queue.deletionPolicy to Retain where messages matter, then \
                 delete the actors first; or annotate the CustomResourceDefinition with {}: \"true\"",
                named.join(", "),
                annotation::ALLOW_DELETION
            )
        })
    }
}

fn actor_denial(
    object: &DeletedObject<'_>,
    request: &AdmissionRequest<'_>,
) -> Option<(ReviewReason, String)> {
    if request.is_foreground_deletion() && object.keeps_children() {
        return Some((ReviewReason::LosesOrphans, KEEPS_CHILDREN.to_owned()));
    }
    queue_denial(object).map(|text| (ReviewReason::HoldsMessages, text))
}

/// Uses the message counts in the status; the finalizer protects messages that arrived since.
fn queue_denial(object: &DeletedObject<'_>) -> Option<String> {
    let DeletedObject {
        metadata,
        spec,
        status,
    } = object;
    let policy = QueueDeletionPolicy::from_raw(spec.get("queue"));
    let has_finalizer = metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER);
    let keeps_queue =
        metadata.is_enabled(annotation::SKIP_QUEUE_DELETION) || object.keeps_children();
    if policy != QueueDeletionPolicy::DeleteIfEmpty
        || !has_finalizer
        || keeps_queue
        || metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let count = |key: &str| status.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (queued, processing) = (count("queuedMessages"), count("processingMessages"));
    let total = queued.saturating_add(processing);
    let queue = status.pointer("/queue/name").and_then(Value::as_str);
    (total > 0).then(|| {
        format!(
            "queue {} holds {total} messages ({queued} waiting, {processing} unacknowledged), so the actor is not \
             deleted (spec.queue.deletionPolicy: DeleteIfEmpty). Let its pods process them (policy Drain waits for \
             that), or set spec.queue.deletionPolicy to Retain, which keeps queue and messages",
            queue.unwrap_or_default()
        )
    })
}

#[cfg(test)]
mod tests;
