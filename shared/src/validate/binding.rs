//! How a binding injects the sidecar into pods.

use super::Subject;
use super::violation::Violations;
use crate::api::{Binding, BindingRollout, BindingStrategy, messages};

fn edits_the_template(binding: &Binding) -> bool {
    binding.strategy == Some(BindingStrategy::Template)
}

/// BIND-17.
pub(super) fn template_fits_the_kind(subject: &Subject<'_>, found: &mut Violations) {
    let (Some(binding), Some(target)) = (&subject.spec.binding, &subject.spec.workload_ref) else {
        return;
    };
    let fits =
        target.group() == "apps" && matches!(target.kind.as_str(), "Deployment" | "StatefulSet");
    if edits_the_template(binding) && !fits {
        found.add("spec.binding.strategy", messages::TEMPLATE_KIND);
    }
}

/// BIND-18.
pub(super) fn template_has_no_options(subject: &Subject<'_>, found: &mut Violations) {
    let contradicts = |it: &Binding| {
        edits_the_template(it)
            && (it.rollout == Some(BindingRollout::OnRestart) || it.required == Some(true))
    };
    if subject.spec.binding.as_ref().is_some_and(contradicts) {
        found.add("spec.binding", messages::TEMPLATE_OPTIONS);
    }
}
