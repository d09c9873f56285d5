//! Checks of a target by its kind, without reading the target (VAC-4, VAC-6).

use asya_shared::admission::facts::Facts;
use asya_shared::api::{AsyncActorSpec, BindingRollout, BindingStrategy, ModeSpec, WorkloadRef};
use asya_shared::resolve;
use asya_shared::validate::{Violation, Warning};

/// Errors and warnings about a target.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why the binding cannot work.
    pub errors: Vec<Violation>,
    /// What users should know about a binding that can work.
    pub warnings: Vec<Warning>,
}

/// Checks a new binding.
pub fn judge(spec: &AsyncActorSpec, facts: &Facts) -> Findings {
    let mut found = Findings::default();
    let Ok(ModeSpec::Binding(binding)) = spec.mode() else {
        return found;
    };
    let target = binding.target;
    let WorkloadRef { kind, name, .. } = target;
    kind_is_readable(target, facts, &mut found);
    let mut warn = |path: &str, text: String| {
        let path = path.to_owned();
        found.warnings.push(Warning { path, text });
    };
    if binding.strategy == BindingStrategy::Pod && binding.rollout == BindingRollout::Always {
        warn(
            "spec.binding.rollout",
            format!("pods of {kind}/{name} will be restarted; OnRestart avoids it"),
        );
    }
    let never_scaled = resolve::resolver(target.group(), kind).never_scaled();
    if let Some(why) = never_scaled.filter(|_| spec.scaling_in_force().is_some()) {
        warn("spec.scaling", format!("{kind}/{name}: {why}"));
    }
    if binding.required && facts.replicas == Some(1) {
        warn(
            "spec.binding.required",
            format!(
                "the operator's webhook has one replica: while it is down, no pod of {kind}/{name} starts; run two"
            ),
        );
    }
    found
}

/// Warns about newly requested scaling, saying when it can first remove pods from a serving target (SAFE-23).
pub fn scale_down(spec: &AsyncActorSpec, old: Option<&AsyncActorSpec>) -> Option<Warning> {
    let ModeSpec::Binding(binding) = spec.mode().ok()? else {
        return None;
    };
    let scaling = spec.scaling_in_force()?;
    let target = binding.target;
    let is_known = old.is_some_and(|old| {
        old.workload_ref == spec.workload_ref && old.scaling_in_force() == Some(scaling)
    });
    let resolver = resolve::resolver(target.group(), &target.kind);
    if is_known || resolver.never_scaled().is_some() {
        return None;
    }
    let WorkloadRef { kind, name, .. } = target;
    let least = scaling.min_replicas;
    let window = scaling.scale_down_window();
    let to_zero = scaling
        .initial_cooldown_period
        .filter(|_| least == 0)
        .map(|seconds| format!("to 0 at the earliest {seconds} s later, "));
    let text = format!(
        "an empty queue scales {kind}/{name} down to {least} pods. Scaling starts once a Ready pod has the sidecar: \
         {}in other steps at the earliest {window} s later (scaling.behavior); a higher minReplicas keeps more pods",
        to_zero.unwrap_or_default()
    );
    Some(Warning {
        path: "spec.scaling.minReplicas".to_owned(),
        text,
    })
}

fn kind_is_readable(target: &WorkloadRef, facts: &Facts, found: &mut Findings) {
    let (group, kind) = (target.group(), &target.kind);
    let unreadable = facts
        .unreadable
        .iter()
        .find(|it| it.group == group && it.kind == *kind);
    let Some(unreadable) = unreadable else {
        return;
    };
    match &unreadable.missing_rule {
        Some(rule) => found.errors.push(Violation {
            path: "spec.workloadRef".to_owned(),
            problem: format!("asya-controller may not read {kind}.{group}"),
            fix: Some(format!(
                "add this rule to its ClusterRole:\n{}",
                rule.trim_end()
            )),
        }),
        None => found.warnings.push(Warning {
            path: "spec.workloadRef.kind".to_owned(),
            text: format!("{kind}.{group} is not installed; the actor binds once it is"),
        }),
    }
}
