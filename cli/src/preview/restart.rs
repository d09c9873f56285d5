//! Which pods would be replaced, by which controller, and in which order.

use asya_shared::api::BindingRollout;
use asya_shared::resolve::{ObjectRef, RolloutMethod};
use asya_shared::roll::{
    UpdateStrategy, eviction_spares_most_pods, next_to_evict, requires_eviction, several_lose_a_pod,
};
use serde::Serialize;

/// The pods that are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    pub by: ReplacedBy,
    /// Number of pods that are replaced.
    pub pods: usize,
    /// Number of all pods.
    #[serde(rename = "of")]
    pub total: usize,
    /// How many pods may exist at a time beyond the desired number.
    pub surge: i32,
    /// How many of the desired pods may be unready at a time.
    pub unavailable: i32,
    /// Names of the pods that are replaced.
    pub names: Vec<String>,
    /// Names in the order of replacement, if it is fixed.
    pub order: Vec<String>,
    /// The rule that determines the order, if it is not fixed.
    pub order_rule: Option<String>,
    pub text: String,
    /// Conditions that must be met first.
    pub waits: Vec<String>,
}

impl Restart {
    /// Whether a controller replaces the pods because of an annotation that the operator writes.
    pub fn is_by_annotation(&self) -> bool {
        self.pods > 0 && matches!(self.by, ReplacedBy::Workload | ReplacedBy::Owner)
    }
}

/// Who replaces the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplacedBy {
    /// Nobody.
    #[default]
    None,
    /// The workload's own controller.
    Workload,
    /// The controller of the object that owns the workload.
    Owner,
    /// The operator, by eviction.
    Operator,
}

/// A pod of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodState {
    pub name: String,
    pub ready: bool,
    /// Whether the pod has what a new pod of the actor would get.
    pub is_current: bool,
}

/// A workload whose pods may be replaced.
#[derive(Clone, Debug)]
pub struct RestartedWorkload {
    pub object: ObjectRef,
    pub strategy: UpdateStrategy,
}

/// Inputs of [`of_binding`].
#[derive(Clone, Copy, Debug)]
pub struct RestartInputs<'a> {
    pub roll: &'a RolloutMethod,
    pub rollout: BindingRollout,
    pub roll_now: bool,
    pub workloads: &'a [RestartedWorkload],
    /// The target's pods that are not terminating.
    pub pods: &'a [PodState],
    /// A `PodDisruptionBudget` that allows no disruption of these pods.
    pub budget: Option<&'a str>,
    /// Why new pods would not get the sidecar.
    pub blocked: Option<&'a str>,
}

/// The restart of a target whose pods get the sidecar from the webhook.
pub fn of_binding(inputs: &RestartInputs<'_>) -> Restart {
    let outdated: Vec<&PodState> = inputs.pods.iter().filter(|it| !it.is_current).collect();
    let none = |text: &str| Restart {
        total: inputs.pods.len(),
        text: text.to_owned(),
        ..Restart::default()
    };
    if outdated.is_empty() {
        return none("no pod is replaced");
    }
    if let Some(why) = inputs.blocked {
        return none(&format!(
            "no pod is replaced, because a new one would not get the sidecar: {why}"
        ));
    }
    if inputs.rollout == BindingRollout::OnRestart && !inputs.roll_now {
        let count = outdated.len();
        return none(&format!(
            "spec.binding.rollout is OnRestart: {count} of {} pods get the sidecar when they restart",
            inputs.pods.len()
        ));
    }
    if let Some(paused) = inputs.workloads.iter().find(|it| it.strategy.paused) {
        return none(&format!(
            "{}: spec.paused is true, so no pod is replaced; resume the rollout",
            paused.object
        ));
    }
    let mut restart = if is_by_eviction(inputs, outdated.len()) {
        by_eviction(inputs, &outdated)
    } else {
        by_controller(inputs)
    };
    restart.total = inputs.pods.len();
    restart.waits = waits(inputs, restart.by);
    restart
}

/// The restart of a workload whose pod template changes, by its own update strategy.
pub fn of_template(workload: &RestartedWorkload, pods: &[PodState]) -> Restart {
    let mut restart = rollout(std::slice::from_ref(workload), pods);
    let UpdateStrategy {
        paused, rolling, ..
    } = workload.strategy;
    if paused {
        return Restart {
            total: pods.len(),
            text: format!(
                "{}: spec.paused is true, so no pod is replaced; resume the rollout",
                workload.object
            ),
            ..Restart::default()
        };
    }
    if rolling {
        restart
            .waits
            .push(format!("{} is replacing pods now", workload.object));
    }
    restart
}

impl RestartInputs<'_> {
    fn deletes_pod_first(&self) -> impl Iterator<Item = bool> {
        let strategies = self.workloads.iter().map(|it| &it.strategy);
        strategies.map(|it| it.deletes_pod_first)
    }
}

fn is_by_eviction(inputs: &RestartInputs<'_>, outdated: usize) -> bool {
    let reduces_ready = inputs.workloads.iter().map(|it| it.strategy.reduces_ready);
    let needs_eviction = inputs.workloads.iter().map(|it| it.strategy.needs_eviction);
    requires_eviction(inputs.roll, needs_eviction, inputs.deletes_pod_first())
        || eviction_spares_most_pods(inputs.roll, reduces_ready, outdated, inputs.pods.len())
}

fn by_eviction(inputs: &RestartInputs<'_>, outdated: &[&PodState]) -> Restart {
    let mut left: Vec<PodState> = outdated.iter().map(|it| (*it).clone()).collect();
    let mut order = Vec::new();
    while let Some(next) = next_to_evict(&left, |it| it.ready, |it| &it.name) {
        let name = next.name.clone();
        left.retain(|it| it.name != name);
        order.push(name);
    }
    let why = match inputs.roll {
        RolloutMethod::Evict => "nothing else rolls the target's pods",
        _ if inputs.workloads.iter().any(|it| it.strategy.needs_eviction) => {
            "the target's own update strategy would replace none of them, or all together"
        }
        _ if several_lose_a_pod(inputs.deletes_pod_first()) => {
            "its workloads would each lose a pod at the same time"
        }
        _ => "most pods have the current sidecar already",
    };
    Restart {
        by: ReplacedBy::Operator,
        pods: order.len(),
        unavailable: 1,
        names: order.clone(),
        order,
        text: format!(
            "the operator evicts one pod at a time, and the next one once its replacement is ready ({why})"
        ),
        ..Restart::default()
    }
}

fn by_controller(inputs: &RestartInputs<'_>) -> Restart {
    match inputs.roll {
        RolloutMethod::Annotate(object, _) => {
            let mut restart = rollout(inputs.workloads, inputs.pods);
            restart.by = ReplacedBy::Owner;
            restart.order.clear();
            restart.order_rule = Some(format!("as the controller of {object} chooses"));
            restart.text = format!(
                "annotation asya.sh/roll on {object} makes its controller replace all pods, according to its kind"
            );
            restart
        }
        RolloutMethod::AnnotateTemplate(_) | RolloutMethod::Evict => {
            rollout(inputs.workloads, inputs.pods)
        }
    }
}

/// The order in which a workload's own controller replaces its pods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RolloutOrder {
    /// All are deleted before new ones are created.
    Recreate,
    /// One at a time, highest ordinal first.
    ByOrdinal,
    /// The controller chooses.
    Unordered,
}

impl RolloutOrder {
    fn of(workloads: &[RestartedWorkload]) -> Self {
        match workloads {
            all if all.iter().any(is_recreated) => Self::Recreate,
            [one] if one.strategy.deletes_pod_first => Self::ByOrdinal,
            _ => Self::Unordered,
        }
    }

    fn rule(self) -> Option<&'static str> {
        match self {
            Self::Recreate => Some("all together"),
            Self::ByOrdinal => None,
            Self::Unordered => Some(
                "not fixed: old pods that are not ready first, the others as their ReplicaSet chooses",
            ),
        }
    }
}

/// A rollout in which the workloads' own controllers replace all pods.
fn rollout(workloads: &[RestartedWorkload], pods: &[PodState]) -> Restart {
    let sum = |part: fn(&UpdateStrategy) -> i32| {
        let parts = workloads.iter().map(|it| part(&it.strategy));
        parts.fold(0, i32::saturating_add)
    };
    let rollout_order = RolloutOrder::of(workloads);
    let (surge, unavailable) = match rollout_order {
        RolloutOrder::Recreate => (0, i32::try_from(pods.len()).unwrap_or(i32::MAX)),
        RolloutOrder::ByOrdinal | RolloutOrder::Unordered => {
            (sum(|it| it.max_surge), sum(|it| it.max_unavailable))
        }
    };
    let names: Vec<String> = pods.iter().map(|it| it.name.clone()).collect();
    let mut order = Vec::new();
    if rollout_order == RolloutOrder::ByOrdinal {
        order.clone_from(&names);
        order.sort_by_key(|name| std::cmp::Reverse(ordinal(name)));
    }
    Restart {
        by: if workloads.is_empty() {
            ReplacedBy::Owner
        } else {
            ReplacedBy::Workload
        },
        pods: pods.len(),
        total: pods.len(),
        surge,
        unavailable,
        names,
        order,
        order_rule: rollout_order.rule().map(str::to_owned),
        text: rollout_text(workloads, rollout_order, surge, unavailable),
        waits: Vec::new(),
    }
}

fn rollout_text(
    workloads: &[RestartedWorkload],
    order: RolloutOrder,
    surge: i32,
    unavailable: i32,
) -> String {
    let names: Vec<String> = workloads.iter().map(|it| it.object.to_string()).collect();
    let names = names.join(", ");
    match order {
        RolloutOrder::Recreate => format!(
            "{names} deletes all of its pods together, and then creates new ones (strategy Recreate)"
        ),
        RolloutOrder::ByOrdinal => format!(
            "{names} replaces one pod at a time, highest ordinal first, each after the previous one is ready"
        ),
        RolloutOrder::Unordered => {
            let extra = match surge {
                0 => "no extra pod".to_owned(),
                1 => "up to 1 extra pod".to_owned(),
                _ => format!("up to {surge} extra pods"),
            };
            let fewer = match unavailable {
                0 => "none unavailable".to_owned(),
                _ => format!("up to {unavailable} unavailable"),
            };
            format!("{names} replaces its pods in a rolling update: {extra}, {fewer}")
        }
    }
}

fn is_recreated(workload: &RestartedWorkload) -> bool {
    workload.object.group_kind().kind == "Deployment" && workload.strategy.needs_eviction
}

/// The number at the end of a pod's name.
fn ordinal(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}

fn waits(inputs: &RestartInputs<'_>, by: ReplacedBy) -> Vec<String> {
    let mut waits = Vec::new();
    for workload in inputs.workloads.iter().filter(|it| it.strategy.rolling) {
        waits.push(format!("{} is replacing pods now", workload.object));
    }
    let reduces_ready = inputs.workloads.iter().any(|it| it.strategy.reduces_ready);
    if let Some(budget) = inputs
        .budget
        .filter(|_| by == ReplacedBy::Operator || reduces_ready)
    {
        waits.push(format!(
            "PodDisruptionBudget {budget} allows no disruption now"
        ));
    }
    let deletes_first = by == ReplacedBy::Workload
        && inputs
            .workloads
            .iter()
            .any(|it| it.strategy.deletes_pod_first);
    let unready = inputs.pods.iter().filter(|it| !it.ready);
    let unready = unready.filter(|it| deletes_first || it.is_current);
    if by == ReplacedBy::Operator || deletes_first {
        waits.extend(unready.map(|it| format!("pod {} is not ready", it.name)));
    }
    waits
}

#[cfg(test)]
mod tests;
