use asya_shared::api::{AsyncActorStatus, State};
use serde_json::json;

use super::{condition, lives, report, running};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::apply::entry;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState, ScalingOutcome, Stopped};
use crate::reconcile::status::parts::Report;
use crate::reconcile::tests::fixtures::{actor, observed, spec};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

/// Outcome of a reconcile that found the actor's `ScaledObject` as KEDA left it.
fn scaled(observed: &Observed, extra: &serde_json::Value) -> Ensured {
    let mut ensured = running(observed);
    ensured.scaling = Some(Box::new(ScalingOutcome {
        scaled_object: Some(scaled_object(extra)),
        fault: None,
        waits_for: None,
    }));
    ensured
}

/// KEDA-8, KEDA-10, STA-8, STA-10, API-7
#[test]
fn scaled_actor_reports_its_autoscaler_with_limits_and_health() {
    let on = json!({"scaling": {"enabled": true, "minReplicas": 1, "maxReplicas": 7}});
    let mut seen = observed(&actor(&json!({}), &spec(&on), &json!({})));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let Report { status, retry, .. } = report(&seen, scaled(&seen, &ready));
    assert_eq!(
        (status.status, retry),
        (Some(State::Running), Requeue::AwaitChange)
    );
    assert_eq!(condition(&status, "ScalingReady").1, "ScaledObjectReady");
    assert_eq!(condition(&status, "Ready").0, "True");
    let told = serde_json::to_value(&status).unwrap();
    for (field, value) in [
        ("scalingMode", json!("KEDA")),
        ("minReplicas", json!(1)),
        ("maxReplicas", json!(7)),
        ("readySummary", json!("3/3")),
        (
            "scaledObjectRef",
            json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "a", "namespace": "ns"}),
        ),
    ] {
        assert_eq!(told[field], value, "{field}");
    }

    let refused = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no trigger"}]}});
    let failing = report(&seen, scaled(&seen, &refused)).status;
    assert_eq!(failing.status, Some(State::ScalingError));
    assert_eq!(condition(&failing, "Ready").1, "ScaledObjectNotReady");
    assert_eq!(failing.ready_summary.as_deref(), Some("2/3"));

    let mut off = lives();
    off.previous = failing;
    let status = report(&off, running(&off)).status;
    assert!(
        status.conditions.iter().all(|c| c.type_ != "ScalingReady"),
        "off is nothing to tell of"
    );
    assert_eq!(
        (
            status.scaled_object_ref,
            status.max_replicas,
            status.ready_summary.as_deref()
        ),
        (None, None, Some("2/2"))
    );

    seen.desired = Err(Fault::until_change(Reason::ValidationError, "text"));
    seen.previous = report(&lives(), running(&lives())).status;
    seen.previous.max_replicas = Some(7);
    let invalid = report(&seen, Ensured::default()).status;
    assert_eq!(invalid.max_replicas, Some(7), "what was in force stays");
}

/// STA-9, KEDA-11
#[test]
fn change_of_desired_replicas_is_recorded_with_time_and_direction() {
    let mut seen = lives();
    let first = report(&seen, running(&seen)).status;
    assert_eq!(
        (
            first.last_scale_time.clone(),
            first.last_scale_formatted.as_deref()
        ),
        (None, Some("-"))
    );
    seen.previous = AsyncActorStatus {
        desired_replicas: Some(3),
        ..first
    };
    let fewer = report(&seen, running(&seen)).status;
    assert_eq!(fewer.last_scale_direction.as_deref(), Some("down"));
    assert_eq!(
        fewer.last_scale_formatted.as_deref(),
        Some("2026-01-01T00:01:00Z (down)")
    );
}

/// FW-25
#[test]
fn inventory_lists_every_child_in_order_until_it_is_deleted() {
    let mut seen = lives();
    let mut ensured = running(&seen);
    let found = scaled_object(&json!({}));
    let applied = entry(
        ("keda.sh", "ScaledObject"),
        &found.metadata,
        &found.last,
        "h",
    );
    ensured.applied.push(applied);
    seen.scaling.scaled_object = Child::Ours(found);
    let kinds = |status: &AsyncActorStatus| {
        let entries = status.inventory.iter();
        let entries = entries.map(|it| (it.kind.clone(), it.phase.clone().unwrap_or_default()));
        entries.collect::<Vec<_>>()
    };
    let is = |kind: &str, phase: &str| (kind.to_owned(), phase.to_owned());
    seen.previous = report(&seen, ensured).status;
    assert_eq!(
        kinds(&seen.previous),
        [is("Deployment", "Applied"), is("ScaledObject", "Applied")]
    );
    let rest = |seen: &Observed| {
        let ensured = Ensured {
            applied: Vec::new(),
            ..running(seen)
        };
        kinds(&report(seen, ensured).status)
    };
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    seen.scaling.scaled_object = Child::Ours(scaled_object(&going));
    assert_eq!(
        rest(&seen),
        [is("Deployment", "Applied"), is("ScaledObject", "Deleting")]
    );
    seen.scaling.scaled_object = Child::Absent;
    assert_eq!(rest(&seen), [is("Deployment", "Applied")]);
}

/// QUE-3, KEDA-8, FW-21
#[test]
fn stopped_workload_is_not_scaled_and_will_be_applied_again() {
    let on = json!({"scaling": {"enabled": true}});
    let once = json!({"annotations": {"asya.sh/reconcile": "Once"}});
    let mut seen = observed(&actor(&once, &spec(&on), &json!({})));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let mut runs = scaled(&seen, &ready);
    let workload = runs.workload.clone().unwrap();
    let applied = entry(
        ("apps", "Deployment"),
        &workload.metadata,
        &workload.last,
        "h",
    );
    runs.applied.push(applied);
    seen.previous = report(&seen, runs).status;
    assert!(seen.previous.scaled_object_ref.is_some());
    seen.previous.ready_generation = Some(2);

    seen.desired = Err(Fault::until_change(Reason::QueueConflict, "it is b's"));
    let mut ensured = running(&seen);
    ensured.queue = QueueState::Untouched;
    ensured.applied.clear();
    ensured.stopped = Some(Box::new(Stopped {
        kinds: vec!["Deployment"],
    }));
    let status = report(&seen, ensured).status;
    assert_eq!(status.status, Some(State::TransportError));
    assert!(status.conditions.iter().all(|c| c.type_ != "ScalingReady"));
    assert_eq!(status.scaled_object_ref, None);
    assert_eq!(status.ready_generation, None);
    let entries = status.inventory.iter();
    let hashes: Vec<_> = entries.map(|entry| (&*entry.kind, &entry.hash)).collect();
    assert_eq!(
        hashes,
        [("Deployment", &None)],
        "it is known, and not as wanted"
    );
}

/// SAFE-25
#[test]
fn foreign_autoscaler_is_a_fault_only_if_replicas_are_requested() {
    let told = |template: &serde_json::Value| {
        let mut workload = spec(&json!({}))["workload"].clone();
        workload
            .as_object_mut()
            .unwrap()
            .extend(template.as_object().unwrap().clone());
        let mut seen = observed(&actor(
            &json!({}),
            &spec(&json!({"workload": workload})),
            &json!({}),
        ));
        let theirs = json!({"metadata": {"name": "theirs", "ownerReferences": []}});
        seen.scaling.hpas = vec![hpa(&theirs)];
        report(&seen, running(&seen)).status
    };
    let fights = told(&json!({"replicas": 3}));
    assert_eq!(
        condition(&fights, "ScalingReady"),
        (
            "False",
            "RivalAutoscaler",
            "HorizontalPodAutoscaler theirs scales Deployment a, so spec.workload.replicas (3) has no effect; delete HorizontalPodAutoscaler theirs, or remove spec.workload.replicas to leave the number of pods to it"
        )
    );
    assert_eq!(fights.status, Some(State::ScalingError));
    assert_eq!(fights.ready_summary.as_deref(), Some("2/3"));

    let left = told(&json!({}));
    let (status, reason, text) = condition(&left, "ScalingReady");
    assert_eq!((status, reason), ("True", "ScaledByOther"));
    assert!(text.contains("HorizontalPodAutoscaler theirs"), "{text}");
    assert_eq!(left.status, Some(State::Running));
}
