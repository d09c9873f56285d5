//! What a pod has of its own that the webhook would have to overwrite (INJ-1, row 7; BIND-46).

use super::existing::ExistingItems;
use super::plan::BoundPlan;
use super::{BoundActor, PodView};
use crate::names::annotation;

/// Why the sidecar cannot be added without overwriting something of the pod's own, and how to fix it.
pub(super) fn spec_conflict(
    actor: &BoundActor,
    plan: &BoundPlan,
    pod: &PodView<'_>,
    existing: &ExistingItems,
) -> Option<String> {
    let is_annotated = pod.annotation(annotation::INJECTED_BY).is_some();
    if !is_annotated && let Some(reserved_item) = existing.describe_first() {
        return Some(format!(
            "its {reserved_item} has a name that is reserved by Asya; rename it in the pod template"
        ));
    }
    // Labels of an earlier injection are replaced together with its containers.
    let has_sidecar = is_annotated && !existing.has_no_container();
    let foreign = plan.foreign_label(|key| pod.label(key));
    foreign
        .filter(|_| !has_sidecar)
        .or_else(|| label_that_the_selector_excludes(actor, plan, pod))
}

impl BoundPlan {
    /// Says that one of our labels is present with another value. It may be part of the workload's selector: the
    /// workload's controller would release a pod with our value and create another pod, again and again.
    pub(super) fn foreign_label<'p>(
        &self,
        label: impl Fn(&str) -> Option<&'p str>,
    ) -> Option<String> {
        self.labels.iter().find_map(|(key, ours)| {
            let found = label(key).filter(|found| found != ours)?;
            Some(format!(
                "its label {key} is \"{found}\", but the sidecar needs \"{ours}\"; remove the label from the pod \
                 template, and if the workload's selector, which cannot be changed, has it as well, recreate the \
                 workload without it"
            ))
        })
    }
}

/// Says that the workload's selector would no longer match the pod with our labels, whoever set the present ones.
fn label_that_the_selector_excludes(
    actor: &BoundActor,
    plan: &BoundPlan,
    pod: &PodView<'_>,
) -> Option<String> {
    let with_ours = |key: &str| {
        let ours = plan.labels.iter().find(|(name, _)| *name == key);
        ours.map(|(_, value)| &**value).or_else(|| pod.label(key))
    };
    let selector = &actor.pods.labels;
    (!selector.matches(&with_ours)).then(|| {
        let keys = plan.labels.each_ref().map(|(key, _)| *key).join(" or ");
        format!(
            "the workload's selector would not match it with the labels of the sidecar; the selector cannot be \
             changed, so recreate the workload with a selector that does not name {keys}"
        )
    })
}
