//! Tracks which foreign objects carry our annotation (SAFE-19).

use asya_shared::api::RollAnnotation;
use asya_shared::resolve::{ObjectRef, RolloutMethod};

use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{BindingOutcome, ReplacementMethod, RolloutOutcome};
use crate::reconcile::model::rollout::TEMPLATE_ANNOTATIONS;

/// Bounds the list for targets whose workloads come and go.
const MAX_RECORDED: usize = 32;

/// Objects that were annotated before, were observed with the annotation, or got it in this reconcile.
pub(super) fn annotated(observed: &Observed, outcome: &BindingOutcome) -> Vec<RollAnnotation> {
    let mut all = observed.previous.roll_annotations.clone();
    let Some(resolved) = observed.resolved() else {
        return all;
    };
    let is_written = matches!(
        &outcome.rollout,
        RolloutOutcome::Requested(ReplacementMethod::Annotation)
    );
    let target_objects = observed
        .rollout()
        .map(|rollout| &rollout.objects[..])
        .unwrap_or_default();
    let is_annotated = |object: &ObjectRef| {
        let target_object = target_objects
            .iter()
            .find(|candidate| candidate.object == *object);
        is_written || target_object.is_some_and(|it| it.roll_value.is_some())
    };
    for (object, path) in objects(&resolved.target.roll) {
        let annotation = to_status(object, &path);
        if is_annotated(object) && !all.contains(&annotation) {
            all.push(annotation);
        }
    }
    all.drain(..all.len().saturating_sub(MAX_RECORDED));
    all
}

fn objects(roll: &RolloutMethod) -> Vec<(&ObjectRef, String)> {
    match roll {
        RolloutMethod::Annotate(object, path) => vec![(object, path.join("."))],
        RolloutMethod::AnnotateTemplate(workloads) => {
            let all = workloads.iter();
            all.map(|workload| (workload, TEMPLATE_ANNOTATIONS.join(".")))
                .collect()
        }
        RolloutMethod::Evict => Vec::new(),
    }
}

fn to_status(object: &ObjectRef, path: &str) -> RollAnnotation {
    RollAnnotation {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
        path: path.to_owned(),
    }
}
