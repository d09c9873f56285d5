//! Injects the sidecar into new pods of a binding (INJ-1 to INJ-3).

use std::sync::Arc;

use asya_shared::admission::KUBERNETES_NAMESPACES;
use asya_shared::inject::bound::{Action, Decision, PodView, Reason as Row, ReviewPath, decide};

use crate::events::{About, Note, Told};
use crate::index::Index;
use crate::outcome::{Path, Reason, Verdict};
use crate::review::{Answer, Request, Served};

const SERVED: Served = Served {
    group: "",
    version: "v1",
    kind: "Pod",
    resource: "pods",
    operations: &["CREATE"],
};

/// HTTP status codes of denials.
const FORBIDDEN: u16 = 403;
const UNREADABLE: u16 = 422;

/// Reviews the creation of pods.
pub struct Pods {
    /// The operator's own namespace.
    pub namespace: String,
    pub index: Arc<Index>,
}

impl Pods {
    pub fn judge(&self, path: Path, request: &Request<'_>) -> Verdict {
        if !request.is(&SERVED) {
            return Verdict::not_served(request);
        }
        let namespace = &*request.namespace;
        if namespace == self.namespace || KUBERNETES_NAMESPACES.contains(&namespace) {
            return Verdict::allowed(Reason::Pod(Row::NotServed));
        }
        if !self.index.is_synced() {
            return Verdict {
                answer: path.without_verdict("the actors have not been listed yet"),
                reason: Reason::NotSynced,
                told: None,
            };
        }
        let bindings = self.index.bindings_in(namespace);
        if bindings.is_empty() && path == Path::Pods {
            return Verdict::allowed(Reason::Pod(Row::NoActor));
        }
        let pod = request.object.map(|it| PodView::decode(it.get()));
        let Some(Ok(pod)) = pod else {
            return unreadable(path);
        };
        let policy = if path == Path::RequiredPods {
            ReviewPath::Required
        } else {
            ReviewPath::Optional
        };
        let pod = pod.in_dry_run(request.is_dry_run());
        let decision = decide(bindings.iter().map(AsRef::as_ref), policy, &pod);
        verdict(path, decision, &pod, request.is_dry_run())
    }
}

/// The verdict on a pod that cannot be decoded (ADM-3).
fn unreadable(path: Path) -> Verdict {
    let answer = match path {
        Path::RequiredPods => Answer::denied(
            UNREADABLE,
            "asya-webhook: cannot decode the pod, which must not start without the sidecar",
        ),
        _ => path.without_verdict("cannot decode the pod"),
    };
    Verdict {
        answer,
        reason: Reason::Pod(Row::Unreadable),
        told: None,
    }
}

fn verdict(by: Path, decision: Decision<'_>, pod: &PodView<'_>, dry_run: bool) -> Verdict {
    let told = Some(&decision).filter(|_| !dry_run);
    let told = told.and_then(|decision| told_of(decision, pod));
    let Decision {
        reason,
        action,
        warnings,
        ..
    } = decision;
    let patch = match action {
        Action::Allow => None,
        Action::Deny(text) => {
            return Verdict {
                answer: Answer::denied(FORBIDDEN, text),
                reason: Reason::Pod(reason),
                told,
            };
        }
        Action::Mark(patch) | Action::Inject(patch) => match patch.to_json() {
            Ok(text) => Some(text.into_bytes()),
            Err(_) => {
                return Verdict {
                    answer: by.without_verdict("cannot encode the patch"),
                    reason: Reason::Panicked,
                    told: None,
                };
            }
        },
    };
    Verdict {
        answer: Answer {
            denied: None,
            warnings,
            patch,
        },
        reason: Reason::Pod(reason),
        told,
    }
}

/// The Event for the actor and the pod's controller (OBS-2).
fn told_of(decision: &Decision<'_>, pod: &PodView<'_>) -> Option<Told> {
    let actor = decision.actor?;
    let owner = pod.controller();
    let pod_of = owner.map_or_else(
        || "a pod".to_owned(),
        |it| format!("a pod of {}/{}", it.kind, it.name),
    );
    let reason = decision.reason;
    let (note, text) = match (&decision.action, reason) {
        (Action::Inject(_), _) => (
            Note::Injected,
            format!(
                "injected asya-runtime and asya-sidecar of AsyncActor {} into {pod_of}",
                actor.name
            ),
        ),
        (Action::Deny(text), _) => (Note::InjectionDenied, text.clone()),
        // Reported whether the pod is marked now or was marked before.
        (Action::Mark(_), _) => {
            let why = decision.warnings.first().cloned();
            let why =
                why.unwrap_or_else(|| format!("sidecar not injected into {pod_of} ({reason})"));
            (Note::InjectionSkipped, why)
        }
        (Action::Allow, _) => return None,
    };
    let owner = owner
        .filter(|it| matches!(it.kind, "ReplicaSet" | "StatefulSet"))
        .map(|it| About {
            api_version: it.api_version.into(),
            kind: it.kind.into(),
            name: it.name.into(),
            uid: pod.controller_uid().unwrap_or_default().into(),
        });
    Some(Told {
        namespace: actor.namespace.as_str().into(),
        actor: About::actor(&actor.name, &actor.uid),
        owner,
        note,
        reason: reason.as_str(),
        text,
    })
}

#[cfg(test)]
mod tests;
