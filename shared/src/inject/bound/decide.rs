//! The decision about a pod, and its patch (INJ-1 to INJ-10).

use serde_json::{Map, Value, json};

use super::actor::InjectionState;
use super::eviction::local_volumes;
use super::existing::{ContainerList, ExistingContainer, ExistingItems};
use super::plan::BoundPlan;
use super::pod_properties::PodProperties;
use super::probe_result::ProbeResult;
use super::restore::{drifted_fields, is_volume};
use super::spec_conflict::spec_conflict;
use super::{
    Action, BoundActor, Decision, InjectionReason, JsonPointer, NotInjectable, Patch, PodView,
};
use crate::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation, label};

/// Decides about the creation of a pod. `actors` are the bindings of its namespace; the caller has already checked the
/// request, its kind and its namespace (INJ-1, row 1). The path of the review does not matter: the webhook
/// configurations may lag behind `binding.required` (INJ-2).
pub fn decide<'a>(
    actors: impl IntoIterator<Item = &'a BoundActor>,
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
            reason: InjectionReason::NoActor,
            action: Action::Allow,
            warnings: Vec::new(),
        };
    };
    let decision = for_actor(actor, pod);
    let mut decision = decision.unwrap_or_else(|obstacle| skip_or_deny(actor, pod, &obstacle));
    if let Some(other) = matching.get(1) {
        decision.warnings.push(format!(
            "AsyncActors {actor} and {other} both bind this pod; the older one, {actor}, is used. Set \
             queue.deletionPolicy of one of them to Retain, which keeps its queue and messages, and delete it"
        ));
    }
    decision
}

fn for_actor<'a>(actor: &'a BoundActor, pod: &PodView<'_>) -> Result<Decision<'a>, NotInjectable> {
    let plan = match &actor.state {
        InjectionState::InEffect(plan) => plan,
        InjectionState::NotInEffect(reason) => {
            return Ok(Decision {
                actor: Some(actor),
                reason: *reason,
                action: Action::Allow,
                warnings: Vec::new(),
            });
        }
        InjectionState::Unusable(why) => {
            return Err(NotInjectable::new(
                InjectionReason::ActorUnusable,
                why.clone(),
            ));
        }
    };
    check_supported(pod)?;
    let existing = ExistingItems::of(pod).map_err(|_| NotInjectable::unreadable())?;
    if let Some(why) = spec_conflict(actor, plan, pod, &existing) {
        return Err(NotInjectable::new(InjectionReason::SpecConflict, why));
    }
    let hash = plan.hash.to_string();
    let is_already_injected = !existing.has_no_container()
        && pod.annotation(annotation::INJECTED_BY) == Some(&plan.uid)
        && pod.annotation(annotation::INJECTED_HASH) == Some(&hash);
    let known = is_already_injected.then_some(&existing);
    let properties = PodProperties::from_pod(pod, plan, known);
    let properties = properties.ok_or_else(NotInjectable::target_url_unknown)?;
    check_probe_result(actor, pod, &existing)?;
    Ok(injected(
        actor,
        plan,
        pod,
        &properties,
        &existing,
        is_already_injected,
    ))
}

/// The decision about a pod that gets the sidecar, or has it already.
fn injected<'a>(
    actor: &'a BoundActor,
    plan: &BoundPlan,
    pod: &PodView<'_>,
    properties: &PodProperties,
    existing: &ExistingItems,
    is_already_injected: bool,
) -> Decision<'a> {
    let patch = patch(pod, plan, properties, existing, is_already_injected);
    let mut warnings = Vec::new();
    let grace = pod.spec.termination_grace_period_seconds;
    if grace.is_some_and(|it| it < i64::from(plan.grace_seconds)) {
        warnings.push(format!(
            "AsyncActor {actor}: this pod's terminationGracePeriodSeconds is less than the actor's \
             timeout.gracefulShutdown, so a message may be interrupted; raise it in the pod template"
        ));
    }
    let reason = match (is_already_injected, existing.has_no_container()) {
        (true, _) if patch.is_empty() => InjectionReason::AlreadyInjected,
        (true, _) => InjectionReason::Restored,
        (false, true) => InjectionReason::Injected,
        (false, false) => InjectionReason::Replaced,
    };
    let action = if patch.is_empty() {
        Action::Allow
    } else {
        Action::Inject(patch)
    };
    Decision {
        actor: Some(actor),
        reason,
        action,
        warnings,
    }
}

/// Whether the pod can run the sidecar at all (INJ-1, row 4).
///
/// # Errors
/// Why it cannot.
pub(super) fn check_supported(pod: &PodView<'_>) -> Result<(), NotInjectable> {
    let (reason, text) = if pod.label(label::INJECT) == Some("false") {
        (
            InjectionReason::OptedOut,
            "its label asya.sh/inject is \"false\"; remove it from the pod template",
        )
    } else if pod.spec.host_network == Some(true) {
        (
            InjectionReason::HostNetwork,
            "it uses the host network; remove hostNetwork from the pod template",
        )
    } else if pod.is_windows() {
        (
            InjectionReason::Windows,
            "it is a Windows pod; the sidecar runs on Linux",
        )
    } else if !pod.restarts_always() {
        (
            InjectionReason::RestartPolicy,
            "its restartPolicy is not Always; a queue worker never completes",
        )
    } else {
        return Ok(());
    };
    Err(NotInjectable::new(reason, text))
}

/// Whether a pod that could get the sidecar may get it now: an optional binding must never keep a pod from starting
/// that would start without it (SAFE-1). A pod that has the sidecar already, because of reinvocation, keeps it.
///
/// # Errors
/// Why it does not get it yet.
fn check_probe_result(
    actor: &BoundActor,
    pod: &PodView<'_>,
    existing: &ExistingItems,
) -> Result<(), NotInjectable> {
    if pod.is_probe_of(&actor.uid) || !existing.has_no_container() {
        return Ok(());
    }
    match &actor.probe_result {
        ProbeResult::Verified => Ok(()),
        ProbeResult::Unverified if actor.required => Ok(()),
        ProbeResult::Unverified => Err(NotInjectable::new(
            InjectionReason::NotProved,
            "no dry run has shown yet that the API server admits pods with it; see condition Injected of the actor",
        )),
        ProbeResult::Rejected(answer) => Err(NotInjectable::new(
            InjectionReason::ProbeRejected,
            format!(
                "the API server rejects pods with it, as a dry run has shown: {answer}; see condition Injected of the \
                 actor"
            ),
        )),
    }
}

/// Leaves a pod without the sidecar and says why; rejects it if the sidecar is required.
fn skip_or_deny<'a>(
    actor: &'a BoundActor,
    pod: &PodView<'_>,
    obstacle: &NotInjectable,
) -> Decision<'a> {
    let NotInjectable { reason, text: why } = obstacle;
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
            Action::Annotate(patch)
        };
        // opting out is deliberate, so do not warn
        let is_deliberate = *reason == InjectionReason::OptedOut;
        (
            action,
            if is_deliberate {
                Vec::new()
            } else {
                vec![text]
            },
        )
    };
    Decision {
        actor: Some(actor),
        reason: *reason,
        action,
        warnings,
    }
}

fn patch(
    pod: &PodView<'_>,
    plan: &BoundPlan,
    properties: &PodProperties,
    existing: &ExistingItems,
    is_already_injected: bool,
) -> Patch {
    let mut patch = Patch::default();
    let [runtime, sidecar] = plan.containers(properties);
    let desired_containers = [
        (RUNTIME_CONTAINER, ContainerList::Containers, runtime),
        (SIDECAR_CONTAINER, plan.sidecar_list, sidecar),
    ];
    // ordered so that no index shifts before it is used: first replace, then remove from the end, then append
    let mut missing = Vec::new();
    let mut kept = Vec::new();
    for (name, list, desired) in desired_containers {
        let position = existing
            .containers
            .iter()
            .position(|it| it.name == name && it.list == list);
        let Some(position) = position else {
            missing.push((list, desired));
            continue;
        };
        kept.push(position);
        let found = &existing.containers[position];
        restore_container(&mut patch, found, desired, is_already_injected);
    }
    restore_volumes(&mut patch, pod, plan, existing);
    for (at, leftover) in existing.containers.iter().enumerate().rev() {
        if !kept.contains(&at) {
            patch.remove(leftover.pointer());
        }
    }
    for (list, desired) in missing {
        let at = JsonPointer::of("spec").then(list.name());
        if list == ContainerList::InitContainers && pod.spec.init_containers.is_none() {
            patch.add(at, json!([desired]));
        } else {
            patch.add(at.end(), desired);
        }
    }
    set_metadata(&mut patch, pod, plan, &plan.hash.to_string());
    patch
}

/// Sets a container to what is desired: as a whole, or only the fields that have drifted since the webhook injected it.
fn restore_container(
    patch: &mut Patch,
    found: &ExistingContainer,
    desired: Value,
    is_already_injected: bool,
) {
    if is_already_injected {
        for (field, value) in drifted_fields(&desired, &found.value) {
            let at = found.pointer().then(field);
            if found.value.get(field).is_some() {
                patch.replace(at, value);
            } else {
                patch.add(at, value);
            }
        }
    } else if found.value != desired {
        patch.replace(found.pointer(), desired);
    }
}

fn restore_volumes(
    patch: &mut Patch,
    pod: &PodView<'_>,
    plan: &BoundPlan,
    existing: &ExistingItems,
) {
    let at = || JsonPointer::of("spec").then("volumes");
    let mut missing = Vec::new();
    let name_of = |volume: &Value| volume["name"].as_str().unwrap_or_default().to_owned();
    for desired in &plan.volumes {
        let name = name_of(desired);
        match existing.volumes.iter().find(|it| it.name == name) {
            Some(found) if is_volume(desired, &found.value) => {}
            Some(found) => patch.replace(at().item(found.index), desired.clone()),
            None => missing.push(desired.clone()),
        }
    }
    for leftover in existing.volumes.iter().rev() {
        if !plan.volumes.iter().any(|it| name_of(it) == leftover.name) {
            patch.remove(at().item(leftover.index));
        }
    }
    if pod.spec.volumes.is_none() {
        patch.add(at(), Value::Array(missing));
    } else {
        for desired in missing {
            patch.add(at().end(), desired);
        }
    }
}

/// Sets labels and annotations (BIND-22, BIND-33).
fn set_metadata(patch: &mut Patch, pod: &PodView<'_>, plan: &BoundPlan, hash: &str) {
    let labels: Vec<_> = plan
        .labels
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let has_labels = pod.metadata.as_ref().is_some_and(|it| it.labels.is_some());
    set_entries(patch, pod, "labels", has_labels, &labels, |key| {
        pod.label(key)
    });
    let mut annotations = vec![
        (annotation::INJECTED_BY, plan.uid.as_str()),
        (annotation::INJECTED_HASH, hash),
    ];
    let local_volumes = local_volumes(plan, pod);
    annotations.extend(
        local_volumes
            .as_deref()
            .map(|names| (annotation::LOCAL_VOLUMES, names)),
    );
    annotate(patch, pod, &annotations);
    if pod.annotation(annotation::NOT_INJECTED).is_some() {
        patch.remove(
            JsonPointer::of("metadata")
                .then("annotations")
                .then(annotation::NOT_INJECTED),
        );
    }
}

fn annotate(patch: &mut Patch, pod: &PodView<'_>, entries: &[(&str, &str)]) {
    let map_exists = pod
        .metadata
        .as_ref()
        .is_some_and(|it| it.annotations.is_some());
    set_entries(patch, pod, "annotations", map_exists, entries, |key| {
        pod.annotation(key)
    });
}

/// Sets labels or annotations; creates the map if it is missing (INJ-5).
fn set_entries<'p>(
    patch: &mut Patch,
    pod: &PodView<'_>,
    member: &str,
    map_exists: bool,
    entries: &[(&str, &str)],
    found: impl Fn(&str) -> Option<&'p str>,
) {
    let at = || JsonPointer::of("metadata").then(member);
    if map_exists {
        for (key, value) in entries {
            if found(key) != Some(value) {
                patch.add(at().then(key), json!(value));
            }
        }
        return;
    }
    let all: Map<String, Value> = entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    let is_first = !patch.operations().iter().any(
        |it| matches!(it, super::Operation::Add { path, .. } if *path == JsonPointer::of("metadata")),
    );
    if pod.metadata.is_none() && is_first {
        patch.add(JsonPointer::of("metadata"), json!({}));
    }
    patch.add(at(), Value::Object(all));
}
