//! Checks of a target by its kind, without reading the target (VAC-4, VAC-6).

use crate::admission::facts::WebhookFacts;
use crate::api::{AsyncActorSpec, BindingRollout, BindingStrategy, ModeSpec, WorkloadRef};
use crate::resolve;
use crate::validate::{Violation, Warning};

/// Errors and warnings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Problems that keep the actor from working.
    pub errors: Vec<Violation>,
    /// Warnings about a valid actor.
    pub warnings: Vec<Warning>,
}

/// Checks a new binding.
pub(super) fn check_target(spec: &AsyncActorSpec, facts: &WebhookFacts) -> Findings {
    let mut findings = Findings::default();
    let Ok(ModeSpec::Binding(binding)) = spec.mode() else {
        return findings;
    };
    let target = binding.target;
    let WorkloadRef { kind, name, .. } = target;
    kind_is_readable(target, facts, &mut findings);
    let mut warn = |path: &str, text: String| {
        let path = path.to_owned();
        findings.warnings.push(Warning { path, text });
    };
    if binding.strategy == BindingStrategy::Pod && binding.rollout == BindingRollout::Always {
        warn(
            "spec.binding.rollout",
            format!("pods of {kind}/{name} will be restarted; OnRestart avoids it"),
        );
    }
    let unscalable = resolve::resolver(target.group(), kind).unscalable_reason();
    if let Some(reason) = unscalable.filter(|_| spec.effective_scaling().is_some()) {
        warn("spec.scaling", format!("{kind}/{name}: {reason}"));
    }
    if binding.required && facts.replicas == Some(1) {
        warn(
            "spec.binding.required",
            format!(
                "the operator's webhook has one replica: while it is down, no pod of {kind}/{name} starts; run two"
            ),
        );
    }
    findings
}

/// Warns about newly requested scaling, and when it can first remove pods of the target (SAFE-23).
pub(super) fn scale_down_warning(
    spec: &AsyncActorSpec,
    old: Option<&AsyncActorSpec>,
) -> Option<Warning> {
    let ModeSpec::Binding(binding) = spec.mode().ok()? else {
        return None;
    };
    let scaling = spec.effective_scaling()?;
    let target = binding.target;
    let is_unchanged = old.is_some_and(|old| {
        old.workload_ref == spec.workload_ref && old.effective_scaling() == Some(scaling)
    });
    let resolver = resolve::resolver(target.group(), &target.kind);
    if is_unchanged || resolver.unscalable_reason().is_some() {
        return None;
    }
    let WorkloadRef { kind, name, .. } = target;
    let min_replicas = scaling.min_replicas;
    let window = scaling.scale_down_window();
    let to_zero = scaling
        .initial_cooldown_period
        .filter(|_| min_replicas == 0)
        .map(|seconds| format!("to 0 at the earliest {seconds} s later, "));
    let text = format!(
        "an empty queue scales {kind}/{name} down to {min_replicas} pods. Scaling starts once a Ready pod has the sidecar: \
         {}in other steps at the earliest {window} s later (scaling.behavior); a higher minReplicas keeps more pods",
        to_zero.unwrap_or_default()
    );
    Some(Warning {
        path: "spec.scaling.minReplicas".to_owned(),
        text,
    })
}

fn kind_is_readable(target: &WorkloadRef, facts: &WebhookFacts, findings: &mut Findings) {
    let (group, kind) = (target.group(), &target.kind);
    let unreadable = facts
        .unreadable
        .iter()
        .find(|unreadable| unreadable.group == group && unreadable.kind == *kind);
    let Some(unreadable) = unreadable else {
        return;
    };
    match &unreadable.missing_rule {
        Some(rule) => findings.errors.push(Violation {
            path: "spec.workloadRef".to_owned(),
            problem: format!("asya-controller may not read {kind}.{group}"),
            fix: Some(format!(
                "add this rule to its ClusterRole:\n{}",
                rule.trim_end()
            )),
        }),
        None => findings.warnings.push(Warning {
            path: "spec.workloadRef.kind".to_owned(),
            text: format!("{kind}.{group} is not installed; the actor binds once it is"),
        }),
    }
}
