//! The decision about a pod, and its patch (INJ-1 to INJ-10).

use serde_json::{Map, Value, json};

use super::actor::State;
use super::facts::Facts;
use super::gate::Gate;
use super::ours::{List, Ours};
use super::plan::BoundPlan;
use super::restore::{damaged, is_volume};
use super::{Action, BoundActor, Decision, Patch, Path, PodView, Reason, ReviewPath};
use crate::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation, label};

/// Decides about the creation of a pod. `actors` are the bindings of its namespace; the caller has already checked the
/// request, its kind and its namespace (row 1).
pub fn decide<'a>(
    actors: impl IntoIterator<Item = &'a BoundActor>,
    path: ReviewPath,
    pod: &PodView<'_>,
) -> Decision<'a> {
    let controller = pod.controller();
    let mut matching: Vec<_> = actors
        .into_iter()
        .filter(|it| it.pods.matches(|key| pod.label(key), controller.as_ref()))
        .collect();
    matching.sort_by(|one, other| one.age().cmp(&other.age()));
    let Some(actor) = matching.first().copied() else {
        return Decision {
            actor: None,
            reason: Reason::NoActor,
            action: Action::Allow,
            warnings: Vec::new(),
        };
    };
    if !actor.is_served_by(path) {
        return Decision {
            actor: Some(actor),
            reason: Reason::OtherPath,
            action: Action::Allow,
            warnings: Vec::new(),
        };
    }
    let mut decision = for_actor(actor, pod);
    if let Some(other) = matching.get(1) {
        decision.warnings.push(format!(
            "AsyncActors {actor} and {other} both bind this pod; the older one, {actor}, is used. Set \
             queue.deletionPolicy of one of them to Retain, which keeps its queue and messages, and delete it"
        ));
    }
    decision
}

fn for_actor<'a>(actor: &'a BoundActor, pod: &PodView<'_>) -> Decision<'a> {
    let answer = |reason, action, warnings| Decision {
        actor: Some(actor),
        reason,
        action,
        warnings,
    };
    let plan = match &actor.state {
        State::InForce(plan) => plan,
        State::NotInForce(reason) => return answer(*reason, Action::Allow, Vec::new()),
        State::Unusable(why) => {
            return left_alone(actor, pod, Reason::ActorUnusable, why);
        }
    };
    if let Some((reason, why)) = unfit(pod) {
        return left_alone(actor, pod, reason, why);
    }
    let Ok(ours) = Ours::of(pod) else {
        return left_alone(actor, pod, Reason::Unreadable, "it cannot be decoded");
    };
    if pod.annotation(annotation::INJECTED_BY).is_none()
        && let Some(stranger) = ours.any()
    {
        let why = format!(
            "its {stranger} has a name that is reserved by Asya; rename it in the pod template"
        );
        return left_alone(actor, pod, Reason::SpecConflict, &why);
    }
    let hash = plan.hash.to_string();
    let is_same = !ours.has_no_container()
        && pod.annotation(annotation::INJECTED_BY) == Some(&plan.uid)
        && pod.annotation(annotation::INJECTED_HASH) == Some(&hash);
    let Some(facts) = Facts::of(pod, plan, is_same.then_some(&ours)) else {
        let why = "the URL of its model is unknown: declare the port of the model's container, or set \
                   spec.runtime.targetURL of the actor";
        return left_alone(actor, pod, Reason::TargetUrlUnknown, why);
    };
    if let Some((reason, why)) = held(actor, pod, &ours) {
        return left_alone(actor, pod, reason, &why);
    }
    let patch = patch(pod, plan, &facts, &ours, is_same, &hash);
    let mut warnings = Vec::new();
    let grace = pod.spec.termination_grace_period_seconds;
    if grace.is_some_and(|it| it < i64::from(plan.grace_seconds)) {
        warnings.push(format!(
            "AsyncActor {actor}: this pod's terminationGracePeriodSeconds is less than the actor's \
             timeout.gracefulShutdown, so a message may be interrupted; raise it in the pod template"
        ));
    }
    let reason = match (is_same, ours.has_no_container()) {
        (true, _) if patch.is_empty() => Reason::AlreadyInjected,
        (true, _) => Reason::Restored,
        (false, true) => Reason::Injected,
        (false, false) => Reason::Replaced,
    };
    let action = if patch.is_empty() {
        Action::Allow
    } else {
        Action::Inject(patch)
    };
    answer(reason, action, warnings)
}

/// Whether the pod cannot run the sidecar at all (row 4).
pub(super) fn unfit(pod: &PodView<'_>) -> Option<(Reason, &'static str)> {
    if pod.label(label::INJECT) == Some("false") {
        Some((
            Reason::OptedOut,
            "its label asya.sh/inject is \"false\"; remove it from the pod template",
        ))
    } else if pod.spec.host_network == Some(true) {
        Some((
            Reason::HostNetwork,
            "it uses the host network; remove hostNetwork from the pod template",
        ))
    } else if pod.is_windows() {
        Some((
            Reason::Windows,
            "it is a Windows pod; the sidecar runs on Linux",
        ))
    } else if !pod.restarts_always() {
        Some((
            Reason::RestartPolicy,
            "its restartPolicy is not Always; a queue worker never completes",
        ))
    } else {
        None
    }
}

/// Why a pod that could get the sidecar does not get it yet: an optional binding must never keep a pod from starting
/// that would start without it (SAFE-1). A pod that has the sidecar already, because of reinvocation, keeps it.
fn held(actor: &BoundActor, pod: &PodView<'_>, ours: &Ours) -> Option<(Reason, String)> {
    if pod.is_probe_of(&actor.uid) || !ours.has_no_container() {
        return None;
    }
    match &actor.gate {
        Gate::Open => None,
        Gate::Unproved if actor.required => None,
        Gate::Unproved => Some((
            Reason::NotProved,
            "no dry run has shown yet that the API server admits pods with it; see condition Injected of the actor"
                .to_owned(),
        )),
        Gate::Refused(answer) => Some((
            Reason::ProbeRejected,
            format!(
                "the API server rejects pods with it, as a dry run has shown: {answer}; see condition Injected of the \
                 actor"
            ),
        )),
    }
}

/// Leaves a pod without the sidecar and says why; rejects it if the sidecar is required.
fn left_alone<'a>(
    actor: &'a BoundActor,
    pod: &PodView<'_>,
    reason: Reason,
    why: &str,
) -> Decision<'a> {
    let (action, warnings) = if actor.required {
        let text = format!(
            "AsyncActor {actor} has binding.required, and this pod cannot get its sidecar ({reason}): {why}"
        );
        (Action::Deny(text), Vec::new())
    } else {
        let mut patch = Patch::default();
        annotate(
            &mut patch,
            pod,
            &[(annotation::NOT_INJECTED, reason.as_str())],
        );
        let text = format!("AsyncActor {actor}: this pod gets no sidecar ({reason}): {why}");
        let action = if patch.is_empty() {
            Action::Allow
        } else {
            Action::Mark(patch)
        };
        // opting out is deliberate, so do not warn
        let is_wished = reason == Reason::OptedOut;
        (action, if is_wished { Vec::new() } else { vec![text] })
    };
    Decision {
        actor: Some(actor),
        reason,
        action,
        warnings,
    }
}

fn patch(
    pod: &PodView<'_>,
    plan: &BoundPlan,
    facts: &Facts,
    ours: &Ours,
    is_same: bool,
    hash: &str,
) -> Patch {
    let mut patch = Patch::default();
    let [runtime, sidecar] = plan.containers(facts);
    let wanted = [
        (RUNTIME_CONTAINER, List::Containers, runtime),
        (SIDECAR_CONTAINER, plan.sidecar_list, sidecar),
    ];
    // ordered so that no index shifts before it is used: first replace, then remove from the end, then append
    let mut missing = Vec::new();
    let mut kept = Vec::new();
    for (name, list, made) in wanted {
        let place = ours
            .containers
            .iter()
            .position(|it| it.name == name && it.list == list);
        let Some(place) = place else {
            missing.push((list, made));
            continue;
        };
        kept.push(place);
        let found = &ours.containers[place];
        let at = || Path::of("spec").then(list.name()).item(found.index);
        if is_same {
            for (field, value) in damaged(&made, &found.value) {
                if found.value.get(field).is_some() {
                    patch.replace(at().then(field), value);
                } else {
                    patch.add(at().then(field), value);
                }
            }
        } else if found.value != made {
            patch.replace(at(), made);
        }
    }
    restore_volumes(&mut patch, pod, plan, ours);
    for (at, surplus) in ours.containers.iter().enumerate().rev() {
        if !kept.contains(&at) {
            patch.remove(
                Path::of("spec")
                    .then(surplus.list.name())
                    .item(surplus.index),
            );
        }
    }
    for (list, made) in missing {
        let at = Path::of("spec").then(list.name());
        if list == List::InitContainers && pod.spec.init_containers.is_none() {
            patch.add(at, json!([made]));
        } else {
            patch.add(at.end(), made);
        }
    }
    tell(&mut patch, pod, plan, hash);
    patch
}

fn restore_volumes(patch: &mut Patch, pod: &PodView<'_>, plan: &BoundPlan, ours: &Ours) {
    let at = || Path::of("spec").then("volumes");
    let mut missing = Vec::new();
    let name_of = |volume: &Value| volume["name"].as_str().unwrap_or_default().to_owned();
    for made in &plan.volumes {
        let name = name_of(made);
        match ours.volumes.iter().find(|it| it.name == name) {
            Some(found) if is_volume(made, &found.value) => {}
            Some(found) => patch.replace(at().item(found.index), made.clone()),
            None => missing.push(made.clone()),
        }
    }
    for surplus in ours.volumes.iter().rev() {
        if !plan.volumes.iter().any(|it| name_of(it) == surplus.name) {
            patch.remove(at().item(surplus.index));
        }
    }
    if pod.spec.volumes.is_none() {
        patch.add(at(), Value::Array(missing));
    } else {
        for made in missing {
            patch.add(at().end(), made);
        }
    }
}

/// Sets labels and annotations (BIND-22).
fn tell(patch: &mut Patch, pod: &PodView<'_>, plan: &BoundPlan, hash: &str) {
    let labels: Vec<_> = plan
        .labels
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let has_labels = pod.metadata.as_ref().is_some_and(|it| it.labels.is_some());
    entries(patch, pod, "labels", has_labels, &labels, |key| {
        pod.label(key)
    });
    annotate(
        patch,
        pod,
        &[
            (annotation::INJECTED_BY, plan.uid.as_str()),
            (annotation::INJECTED_HASH, hash),
        ],
    );
    if pod.annotation(annotation::NOT_INJECTED).is_some() {
        patch.remove(
            Path::of("metadata")
                .then("annotations")
                .then(annotation::NOT_INJECTED),
        );
    }
}

fn annotate(patch: &mut Patch, pod: &PodView<'_>, wanted: &[(&str, &str)]) {
    let there = pod
        .metadata
        .as_ref()
        .is_some_and(|it| it.annotations.is_some());
    entries(patch, pod, "annotations", there, wanted, |key| {
        pod.annotation(key)
    });
}

/// Sets labels or annotations; creates the map if it is missing (INJ-5).
fn entries<'p>(
    patch: &mut Patch,
    pod: &PodView<'_>,
    member: &str,
    there: bool,
    wanted: &[(&str, &str)],
    found: impl Fn(&str) -> Option<&'p str>,
) {
    let at = || Path::of("metadata").then(member);
    if there {
        for (key, value) in wanted {
            if found(key) != Some(value) {
                patch.add(at().then(key), json!(value));
            }
        }
        return;
    }
    let all: Map<String, Value> = wanted
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    let is_first = !patch.operations().iter().any(
        |it| matches!(it, super::Operation::Add { path, .. } if *path == Path::of("metadata")),
    );
    if pod.metadata.is_none() && is_first {
        patch.add(Path::of("metadata"), json!({}));
    }
    patch.add(at(), Value::Object(all));
}
