//! Scaling of a target.

use super::*;

/// BIND-48
#[test]
fn scaling_fault_is_kept_until_the_target_is_observed_again() {
    let scaling = json!({"scaling": {"enabled": true}});
    let inputs_with = |status: &AsyncActorStatus, fault: Option<Fault>| {
        let mut inputs = bound(&scaling, status);
        inputs.2.common.scaling = Some(Box::new(ScalingOutcome {
            fault,
            ..ScalingOutcome::default()
        }));
        inputs
    };
    let fault = Fault::until_change(Reason::KedaNotInstalled, "install it");
    let first = status_of(&inputs_with(&AsyncActorStatus::default(), Some(fault)));
    let stored: AsyncActorStatus = serde_json::from_str(&json!(first).to_string()).unwrap();
    let mut again = inputs_with(&stored, None);
    again.1 = ObservedBinding::Unknown;
    assert_eq!(status_of(&again), stored);
}

/// SO-1, SO-4
#[test]
fn scaling_of_a_target_is_reported_only_while_it_is_on() {
    let scaling = json!({"scaling": {"enabled": true, "maxReplicas": 7}});
    let mut inputs = bound(&scaling, &AsyncActorStatus::default());
    inputs.2.common.scaling = Some(Box::new(ScalingOutcome {
        scaled_object: Some(scaled_object(
            &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        )),
        fault: None,
        waits_for: None,
    }));
    let scaled = status_of(&inputs);
    assert_eq!(
        condition(&scaled, "ScalingReady"),
        is("True", "ScaledObjectReady")
    );
    assert_eq!(scaled.ready_summary.as_deref(), Some("3/4"));
    assert_eq!(
        (
            scaled.scaling_mode,
            scaled.min_replicas,
            scaled.max_replicas
        ),
        (Some(ScalingMode::Keda), Some(0), Some(7))
    );
    assert_eq!(scaled.scaled_object_ref.unwrap().name, "a");

    let fault = Fault::until_change(Reason::ScalingNotSupported, "why");
    inputs.2.common.scaling = Some(Box::new(ScalingOutcome {
        fault: Some(fault),
        ..ScalingOutcome::default()
    }));
    let rejected = status_of(&inputs);
    assert_eq!(
        condition(&rejected, "ScalingReady"),
        is("False", "ScalingNotSupported")
    );
    assert_eq!(rejected.status, Some(State::ScalingError));

    let off = status_of(&bound(&json!({}), &rejected));
    assert_eq!(condition(&off, "ScalingReady"), is("", ""));
    assert_eq!(off.scaling_mode, Some(ScalingMode::Manual));
}

/// SO-6, SAFE-24: KEDA has been removed while the target was at 0, so no `ScaledObject` is left to tell who scaled it.
#[test]
fn target_that_the_queue_scaled_is_remembered_until_it_has_replicas() {
    let previous = json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}});
    let previous: AsyncActorStatus = serde_json::from_value(previous).unwrap();
    let not_installed = || Fault::until_change(Reason::KedaNotInstalled, "install it");
    let gone = || Fault::until_change(Reason::TargetNotFound, "gone");
    let long = Some(Duration::from_mins(1));
    for (enabled, replicas, lost_for, remembered) in [
        (true, Ok(Some(0)), long, true),
        (true, Ok(Some(2)), long, false),
        (true, Err(gone()), long, true),
        (false, Err(gone()), long, true),
        (false, Ok(Some(1)), long, false),
        (false, Ok(None), long, false),
        // A last write of KEDA may still be on its way, but not once scaling is off: KEDA's finalizer is gone then.
        (true, Ok(Some(2)), Some(Duration::ZERO), true),
        (false, Ok(Some(2)), Some(Duration::ZERO), false),
        (true, Ok(Some(2)), None, false),
    ] {
        let mut inputs = bound(&json!({"scaling": {"enabled": enabled}}), &previous);
        match &replicas {
            Ok(replicas) => inputs.1.resolved_mut().target.replicas = *replicas,
            Err(fault) => inputs.1 = refused_by(fault.clone()),
        }
        inputs.2.common.scaling = enabled.then(|| {
            Box::new(ScalingOutcome {
                fault: Some(not_installed()),
                ..ScalingOutcome::default()
            })
        });
        inputs.0.scaling.lost_for = lost_for;
        let reference = status_of(&inputs).scaled_object_ref;
        let case = format!("{enabled} {replicas:?} {lost_for:?}");
        assert_eq!(reference.is_some(), remembered, "{case}");
    }
}

/// SO-6: seed 2976 of the simulation, in which KEDA scales a target to 0 in the second in which it is uninstalled.
#[test]
fn binding_that_lost_keda_is_requeued_when_its_last_write_must_have_arrived() {
    let previous = json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}});
    let previous: AsyncActorStatus = serde_json::from_value(previous).unwrap();
    let scaling = json!({"scaling": {"enabled": true}});
    let first = bound(&scaling, &previous);
    let previous = AsyncActorStatus {
        scaled_object_ref: previous.scaled_object_ref,
        ..status_of(&first)
    };
    let requeue_of = |lost_for: Option<Duration>| {
        let mut inputs = bound(&scaling, &previous);
        inputs.0.scaling.lost_for = lost_for;
        inputs.1.resolved_mut().target.replicas = Some(2);
        report(&inputs.0, &inputs.1, &inputs.2, now()).requeue
    };
    let seconds = Duration::from_secs;
    let settled = requeue_of(None);
    for (lost_for, requeue) in [
        (seconds(0), Requeue::After(seconds(30))),
        (seconds(29), Requeue::After(seconds(1))),
        (seconds(30), settled),
    ] {
        assert_eq!(requeue_of(Some(lost_for)), requeue, "{lost_for:?}");
    }
}

/// SAFE-20
#[test]
fn pending_scaled_object_is_reported_and_requeued_once_a_dry_run_passes() {
    let scaling = json!({"scaling": {"enabled": true}});
    let previous = json!({"boundSince": "2026-01-01T00:00:00Z"});
    let mut inputs = bound(&scaling, &serde_json::from_value(previous).unwrap());
    inputs.2.common.scaling = Some(Box::new(ScalingOutcome {
        waits_for: Some(ScalingWait::Sidecar("the sidecar")),
        ..ScalingOutcome::default()
    }));
    let requeue_of = |inputs: &(Observed, ObservedBinding, BindingOutcome)| {
        let report = report(&inputs.0, &inputs.1, &inputs.2, now());
        let pending = is("Unknown", "NotProven");
        assert_eq!(condition(&report.status, "ScalingReady"), pending);
        report.requeue
    };
    assert_ne!(requeue_of(&inputs), Requeue::Now);
    inputs.2.rollout = RolloutOutcome::NoPodsYet;
    assert_eq!(requeue_of(&inputs), Requeue::Now);
}

/// SO-5
#[test]
fn handoff_that_has_to_wait_is_reported() {
    let scaling = json!({"scaling": {"enabled": true}});
    let previous = json!({"boundSince": "2026-01-01T00:00:00Z"});
    let mut inputs = bound(&scaling, &serde_json::from_value(previous).unwrap());
    inputs.2.common.scaling = Some(Box::new(ScalingOutcome {
        waits_for: Some(ScalingWait::Handoff("the budget".to_owned())),
        ..ScalingOutcome::default()
    }));
    let report = report(&inputs.0, &inputs.1, &inputs.2, now());
    let waiting = is("Unknown", "RolloutWaiting");
    assert_eq!(condition(&report.status, "ScalingReady"), waiting);
}

/// SO-7
#[test]
fn napping_target_is_not_requeued_without_a_change() {
    let scaling = json!({"scaling": {"enabled": true, "maxReplicas": 7}});
    let nap = |status: &AsyncActorStatus, outcome: RolloutOutcome| {
        let mut inputs = bound(&scaling, status);
        inputs.1.resolved_mut().target.replicas = Some(0);
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        inputs.2.common.scaling = Some(Box::new(ScalingOutcome {
            scaled_object: Some(scaled_object(&ready)),
            fault: None,
            waits_for: None,
        }));
        inputs.2.rollout = outcome;
        report(&inputs.0, &inputs.1, &inputs.2, now())
    };
    let first = nap(&AsyncActorStatus::default(), RolloutOutcome::NoPodsYet).status;
    let first: AsyncActorStatus = serde_json::from_str(&json!(first).to_string()).unwrap();
    let again = nap(&first, RolloutOutcome::NotNeeded);
    assert_eq!(
        condition(&again.status, "Injected"),
        is("True", "ScaledToZero")
    );
    assert_eq!(again.status.status, Some(State::Napping));
    assert_eq!(again.requeue, Requeue::AwaitChange);
    assert_eq!(again.status, first, "status is unchanged");
}
