//! Reviews pods without a cluster, with the code that serves reviews: for programs that preview the webhook's response.

use std::sync::Arc;

use asya_shared::config::{Settings, TransportsConfig};
use asya_shared::inject::bound::InjectionReason;
use asya_shared::key::Key;
use asya_shared::resolve::IntermediateOwners;
use asya_shared::review::Actor;
use serde_json::{Value, json};

use crate::index::{Index, Installation};
use crate::outcome::{ReviewOutcome, ReviewPath, ReviewReason};
use crate::pod::PodReviewer;
use crate::review::AdmissionRequest;

/// Configuration and watched state of the webhook when it reviews the pods of a namespace.
#[derive(Clone, Debug)]
pub struct ReviewContext<'a> {
    /// The configured transports.
    pub transports: &'a TransportsConfig,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// Hash of the runtime's scripts, as the controller publishes it.
    pub scripts_hash: &'a str,
    /// Namespace of the operator.
    pub operator_namespace: &'a str,
    /// Namespace of the pods and their actors.
    pub namespace: &'a str,
    /// Its `RayCluster`s, if known.
    pub clusters: Option<&'a IntermediateOwners>,
}

/// The webhook, without its watches.
pub struct Webhook {
    reviewer: PodReviewer,
    namespace: String,
}

/// A pod after its review.
#[derive(Clone, Debug, PartialEq)]
pub struct PodReview {
    /// The pod with the webhook's patch, or as it was.
    pub pod: Value,
    /// The reason, as in metrics and Events.
    pub reason: InjectionReason,
    /// Why the pod is denied, if it is.
    pub denied: Option<String>,
    /// Warnings for the client that creates the pod.
    pub warnings: Vec<String>,
}

impl Webhook {
    /// A webhook that knows these actors.
    #[must_use]
    pub fn new(context: &ReviewContext<'_>, actors: impl IntoIterator<Item = Arc<Actor>>) -> Self {
        let index = Index::new(Installation {
            transports: context.transports.clone(),
            settings: context.settings.clone(),
        });
        index.set_scripts_hash(context.scripts_hash);
        for actor in actors {
            index.apply(&actor);
        }
        for (name, owner) in context.clusters.into_iter().flatten() {
            index.apply_cluster(&Key::new(context.namespace, name), owner.clone());
        }
        index.init_done();
        Self {
            reviewer: PodReviewer {
                namespace: context.operator_namespace.to_owned(),
                index: Arc::new(index),
            },
            namespace: context.namespace.to_owned(),
        }
    }

    /// Reviews the creation of a pod.
    ///
    /// # Errors
    /// If the review itself fails, which would be a bug in the webhook.
    pub fn review(&self, pod: &Value) -> Result<PodReview, String> {
        let body = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "offline", "operation": "CREATE", "namespace": self.namespace, "object": pod,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
            },
        });
        let body = body.to_string();
        let request =
            AdmissionRequest::read(body.as_bytes()).map_err(|unreadable| unreadable.to_string())?;
        pod_review(self.reviewer.review(ReviewPath::Optional, &request), pod)
    }
}

fn pod_review(outcome: ReviewOutcome, pod: &Value) -> Result<PodReview, String> {
    let ReviewOutcome {
        response, reason, ..
    } = outcome;
    let ReviewReason::Pod(reason) = reason else {
        return Err(format!("the review of the pod failed: {reason:?}"));
    };
    let mut pod = pod.clone();
    if let Some(patch) = &response.patch {
        let patch: json_patch::Patch =
            serde_json::from_slice(patch).map_err(|error| error.to_string())?;
        json_patch::patch(&mut pod, &patch).map_err(|error| error.to_string())?;
    }
    Ok(PodReview {
        pod,
        reason,
        denied: response.denied.map(|it| it.message),
        warnings: response.warnings,
    })
}

#[cfg(test)]
mod tests {
    use asya_shared::review::ProjectedActor;

    use super::*;
    use crate::testing::{bound, installation, pod};

    fn webhook(actors: &[Value]) -> Webhook {
        let installation = installation();
        let context = ReviewContext {
            transports: &installation.transports,
            settings: &installation.settings,
            scripts_hash: "0123456789abcdef",
            operator_namespace: "asya-system",
            namespace: "models",
            clusters: None,
        };
        let read = |actor: &Value| serde_json::from_str::<ProjectedActor>(&actor.to_string());
        Webhook::new(
            &context,
            actors.iter().map(|actor| read(actor).unwrap().actor),
        )
    }

    /// INJ-1: optional and required actors, without a cluster.
    #[test]
    fn pods_are_reviewed_without_a_cluster() {
        let optional = [bound("models", "embed", "phi")];
        let mut required = optional.clone();
        required[0]["spec"]["binding"] = json!({"required": true});
        let mut opted_out = pod("phi");
        opted_out["metadata"]["labels"]["asya.sh/inject"] = json!("false");
        let (ours, other) = (pod("phi"), pod("other"));
        for (actors, pod, reason, containers, denied) in [
            (&[][..], &ours, InjectionReason::NoActor, 1, false),
            (&optional, &ours, InjectionReason::Injected, 3, false),
            (&required, &ours, InjectionReason::Injected, 3, false),
            (&optional, &other, InjectionReason::NoActor, 1, false),
            (&optional, &opted_out, InjectionReason::OptedOut, 1, false),
            (&required, &opted_out, InjectionReason::OptedOut, 1, true),
        ] {
            let found = webhook(actors).review(pod).unwrap();
            let count = found.pod["spec"]["containers"].as_array().unwrap().len();
            assert_eq!(
                (found.reason, count, found.denied.is_some()),
                (reason, containers, denied),
                "{actors:?}"
            );
        }
    }
}
