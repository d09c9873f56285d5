//! Injects the sidecar into new pods of a binding (INJ-1 to INJ-3).

use std::sync::Arc;

use asya_shared::inject::bound::{Action, Decision, InjectionReason, PodView, decide};
use asya_shared::names::is_excluded_namespace;

use crate::events::{InvolvedObject, PodEvent, PodEventReason};
use crate::index::Index;
use crate::outcome::{EndpointPath, ReviewOutcome, ReviewPath, ReviewReason};
use crate::review::{AdmissionRequest, AdmissionResponse, Served};

const SERVED: Served = Served {
    group: "",
    version: "v1",
    kind: "Pod",
    resource: "pods",
    operations: &["CREATE"],
};

/// HTTP status codes of denials.
const FORBIDDEN: u16 = 403;
const UNPROCESSABLE_ENTITY: u16 = 422;

/// Reviews the creation of pods.
pub struct PodReviewer {
    /// The operator's own namespace.
    pub namespace: String,
    pub index: Arc<Index>,
}

impl PodReviewer {
    pub fn review(&self, endpoint: ReviewPath, request: &AdmissionRequest<'_>) -> ReviewOutcome {
        if !request.is_for(&SERVED) {
            return ReviewOutcome::not_served(request);
        }
        let namespace = &*request.namespace;
        if is_excluded_namespace(namespace, &self.namespace) {
            return ReviewOutcome::allowed(ReviewReason::Pod(InjectionReason::NotServed));
        }
        if !self.index.is_synced() {
            return ReviewOutcome {
                response: fallback_response(endpoint, "the actors have not been listed yet"),
                reason: ReviewReason::NotSynced,
                event: None,
            };
        }
        let bindings = self.index.bindings_in(namespace);
        if bindings.is_empty() && endpoint == ReviewPath::Optional {
            return ReviewOutcome::allowed(ReviewReason::Pod(InjectionReason::NoActor));
        }
        let pod = request.object.map(|pod| PodView::decode(pod.get()));
        let Some(Ok(pod)) = pod else {
            return unreadable(endpoint);
        };
        let pod = pod.with_dry_run(request.is_dry_run());
        let decision = decide(bindings.iter().map(AsRef::as_ref), &pod);
        outcome(endpoint, decision, &pod, request.is_dry_run())
    }
}

fn fallback_response(endpoint: ReviewPath, problem: &str) -> AdmissionResponse {
    EndpointPath::Pods(endpoint).fallback_response(problem)
}

/// The outcome for a pod that cannot be decoded (ADM-3).
fn unreadable(endpoint: ReviewPath) -> ReviewOutcome {
    let response = match endpoint {
        ReviewPath::Required => AdmissionResponse::denied(
            UNPROCESSABLE_ENTITY,
            "asya-webhook: cannot decode the pod, which must not start without the sidecar",
        ),
        ReviewPath::Optional => fallback_response(endpoint, "cannot decode the pod"),
    };
    ReviewOutcome {
        response,
        reason: ReviewReason::Pod(InjectionReason::Unreadable),
        event: None,
    }
}

fn outcome(
    endpoint: ReviewPath,
    decision: Decision<'_>,
    pod: &PodView<'_>,
    dry_run: bool,
) -> ReviewOutcome {
    let event = Some(&decision).filter(|_| !dry_run);
    let event = event.and_then(|decision| event_for(decision, pod));
    let Decision {
        reason,
        action,
        warnings,
        ..
    } = decision;
    let patch = match action {
        Action::Allow => None,
        Action::Deny(text) => {
            return ReviewOutcome {
                response: AdmissionResponse::denied(FORBIDDEN, text),
                reason: ReviewReason::Pod(reason),
                event,
            };
        }
        Action::Annotate(patch) | Action::Inject(patch) => match patch.to_json() {
            Ok(text) => Some(text.into_bytes()),
            Err(_) => {
                return ReviewOutcome {
                    response: fallback_response(endpoint, "cannot encode the patch"),
                    reason: ReviewReason::InternalError,
                    event: None,
                };
            }
        },
    };
    ReviewOutcome {
        response: AdmissionResponse {
            denied: None,
            warnings,
            patch,
        },
        reason: ReviewReason::Pod(reason),
        event,
    }
}

/// The Event for the actor and the pod's controller (OBS-2).
fn event_for(decision: &Decision<'_>, pod: &PodView<'_>) -> Option<PodEvent> {
    let actor = decision.actor?;
    let owner = pod.controller();
    let pod_name = owner.map_or_else(
        || "a pod".to_owned(),
        |controller| format!("a pod of {}/{}", controller.kind, controller.name),
    );
    let reason = decision.reason;
    let (event_reason, text) = match (&decision.action, reason) {
        (Action::Inject(_), _) => (
            PodEventReason::Injected,
            format!(
                "injected asya-runtime and asya-sidecar of AsyncActor {} into {pod_name}",
                actor.name
            ),
        ),
        (Action::Deny(text), _) => (PodEventReason::InjectionDenied, text.clone()),
        // A pod that already has this annotation results in `Allow`, so it is not reported again.
        (Action::Annotate(_), _) => {
            let warning = decision.warnings.first().cloned();
            let warning = warning
                .unwrap_or_else(|| format!("sidecar not injected into {pod_name} ({reason})"));
            (PodEventReason::InjectionSkipped, warning)
        }
        (Action::Allow, _) => return None,
    };
    let owner = owner
        .filter(|controller| matches!(controller.kind, "ReplicaSet" | "StatefulSet"))
        .map(|controller| InvolvedObject {
            api_version: controller.api_version.into(),
            kind: controller.kind.into(),
            name: controller.name.into(),
            uid: pod.controller_uid().unwrap_or_default().into(),
        });
    Some(PodEvent {
        namespace: actor.namespace.as_str().into(),
        actor: InvolvedObject::actor(&actor.name, &actor.uid),
        owner,
        event_reason,
        cause: reason.as_str(),
        text,
    })
}

#[cfg(test)]
mod tests;
