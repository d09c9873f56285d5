//! Tracks which foreign objects carry our annotation (SAFE-19).

use asya_shared::api::RollAnnotation;
use asya_shared::resolve::{ObjectRef, Roll};

use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{By, Ensured, Rolled};
use crate::reconcile::model::rollout::TEMPLATE;

/// Bounds the list for targets whose workloads come and go.
const MOST: usize = 32;

/// Objects that had it before, that were observed with it, or that got it in this reconcile.
pub(super) fn annotated(observed: &Observed, ensured: &Ensured) -> Vec<RollAnnotation> {
    let mut all = observed.previous.roll_annotations.clone();
    let Some(resolved) = observed.resolved() else {
        return all;
    };
    let is_written = matches!(&*ensured.rolled, Rolled::Asked(By::Annotation, ..));
    let live = observed
        .rollout()
        .map(|seen| &seen.live[..])
        .unwrap_or_default();
    let has_it = |object: &ObjectRef| {
        let seen = live.iter().find(|it| it.object == *object);
        is_written || seen.is_some_and(|it| it.value.is_some())
    };
    for (object, path) in objects(&resolved.target.roll) {
        let mark = mark(object, &path);
        if has_it(object) && !all.contains(&mark) {
            all.push(mark);
        }
    }
    all.drain(..all.len().saturating_sub(MOST));
    all
}

fn objects(roll: &Roll) -> Vec<(&ObjectRef, String)> {
    match roll {
        Roll::Annotate(object, path) => vec![(object, path.join("."))],
        Roll::AnnotateTemplate(workloads) => {
            let all = workloads.iter();
            all.map(|it| (it, TEMPLATE.join("."))).collect()
        }
        Roll::Evict => Vec::new(),
    }
}

fn mark(object: &ObjectRef, path: &str) -> RollAnnotation {
    RollAnnotation {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
        path: path.to_owned(),
    }
}
