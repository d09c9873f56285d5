use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, Mode, ScalingMode, State, TemplateStatus};
use asya_shared::resolve::{Related, Resolution, resolver};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::report;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::contention::Specs;
use crate::reconcile::contention::history::FieldLoss;
use crate::reconcile::model::binding::{BindingSeen, Resolved};
use crate::reconcile::model::bound_pods::BoundPods;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState, Rolled, ScalingOutcome, Templated};
use crate::reconcile::tests::fixtures::{actor, observed, record};
use crate::scaling::tests::fixtures::scaled_object;
use crate::telemetry::events::EventReason;

mod rollout;
mod told;

fn now() -> Timestamp {
    "2026-01-01T00:01:00.5Z".parse().unwrap()
}

fn spec(extra: &Value) -> Value {
    let mut spec = json!({
        "transport": "mq",
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    spec
}

/// An actor with this spec and status, and the outcome of a reconcile that created everything.
fn bound(extra: &Value, status: &AsyncActorStatus) -> (Observed, BindingSeen, Ensured) {
    let observed = observed(&actor(&json!({}), &spec(extra), &json!(status)));
    let ensured = Ensured {
        queue: QueueState::Ready(None),
        bindable: true,
        ..Ensured::default()
    };
    (observed, found(), ensured)
}

fn found() -> BindingSeen {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let resolver = resolver("apps", "Deployment");
    let Resolution::Found(target) = resolver.resolve(&object, &Related::default()) else {
        panic!()
    };
    let target = Resolved {
        target: *target,
        replicas: Some(1),
        spec: "spec".into(),
        templated: None,
    };
    BindingSeen {
        target: Some(Ok(Box::new(target))),
        pods: Some(BoundPods::default()),
        ..BindingSeen::default()
    }
}

fn told(status: &AsyncActorStatus, kind: &str) -> (String, String) {
    let found = status.conditions.iter().find(|c| c.type_ == kind);
    found
        .map(|c| (c.status.clone(), c.reason.clone()))
        .unwrap_or_default()
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn status_of((observed, seen, ensured): &(Observed, BindingSeen, Ensured)) -> AsyncActorStatus {
    report(observed, seen, ensured, now()).status
}

/// BIND-3, BIND-4, BIND-5
#[test]
fn status_of_a_binding_reports_target_and_pods() {
    let mut pass = bound(&json!({}), &AsyncActorStatus::default());
    pass.1.pods = Some(BoundPods {
        bare: vec![record(
            &json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}}),
        )],
        ..BoundPods::default()
    });
    let status = status_of(&pass);
    assert_eq!(status.mode, Some(Mode::Binding));
    assert_eq!(
        status.bound_since.as_ref().unwrap().0,
        "2026-01-01T00:01:00Z".parse().unwrap()
    );
    let target = status.resolved_target.clone().unwrap();
    assert_eq!(
        (&*target.kind, &*target.name, target.uid.as_deref()),
        ("Deployment", "web", Some("web-uid"))
    );
    assert_eq!(
        (target.pod_selector.as_deref(), &*target.chain),
        (Some("app=web"), &["Deployment/web".to_owned()][..])
    );
    let pods = status.pods.clone().unwrap();
    assert_eq!((pods.matched, pods.injected, pods.not_injected), (1, 0, 1));
    assert_eq!(told(&status, "TransportReady"), is("True", "QueueReady"));
    assert_eq!(told(&status, "TargetResolved"), is("True", "Resolved"));
    assert_eq!(told(&status, "Injected"), is("False", "PodsNotInjected"));
    assert_eq!(told(&status, "Conflict"), is("False", "NoConflict"));
    assert_eq!(told(&status, "Ready"), is("False", "PodsNotInjected"));
    assert_eq!(told(&status, "WorkloadReady"), is("", ""));
    assert_eq!(told(&status, "ScalingReady"), is("", ""));
    assert_eq!(status.ready_summary.as_deref(), Some("2/3"));
    assert_eq!(status.replicas_summary.as_deref(), Some("0/1"));
    assert_eq!(status.conflict_count, Some(0));
}

/// CFG-7
#[test]
fn required_binding_over_the_limit_reports_that_it_is_not_enforced() {
    let required = json!({"binding": {"required": true, "rollout": "OnRestart"}});
    let injected = |extra: &Value, before: &AsyncActorStatus, not_enforced| {
        let mut pass = bound(extra, before);
        pass.1.not_enforced = not_enforced;
        *pass.2.rolled = Rolled::Proved;
        let report = report(&pass.0, &pass.1, &pass.2, now());
        let notes: Vec<_> = report.notes.iter().map(|(note, _)| *note).collect();
        (told(&report.status, "Injected"), notes, report.status)
    };
    let fresh = AsyncActorStatus::default();
    let good = is("True", "ScaledToZero");
    assert_eq!(
        injected(&json!({}), &fresh, Some(true)).0,
        good,
        "not required"
    );
    let (is_so, notes, before) = injected(&required, &fresh, Some(true));
    assert_eq!(is_so, is("False", "WebhookNotReady"));
    assert_eq!(notes, [EventReason::RequiredNotEnforced]);
    assert_eq!(told(&before, "Ready").0, "False");
    // `None` is the state after a restart, when the limit has not been checked yet.
    for unchanged in [Some(true), None] {
        let (is_so, notes, _) = injected(&required, &before, unchanged);
        assert_eq!((is_so, notes), (is("False", "WebhookNotReady"), Vec::new()));
    }
    assert_eq!(injected(&required, &before, Some(false)).0, good);
    assert_eq!(injected(&required, &fresh, None).0, good);
}

/// BIND-3
#[test]
fn binding_is_in_force_once_queue_and_script_exist_until_it_is_refused() {
    let fresh = AsyncActorStatus::default();
    let mut waits = bound(&json!({}), &fresh);
    waits.2.bindable = false;
    let status = status_of(&waits);
    assert_eq!(status.bound_since, None);
    assert_eq!(told(&status, "Injected"), is("Unknown", "NotProven"));

    let before = status_of(&bound(&json!({}), &fresh));
    let mut later = bound(&json!({}), &before);
    later.2 = Ensured {
        queue: QueueState::Fault(Fault::until_change(Reason::BrokerUnreachable, "away")),
        ..Ensured::default()
    };
    let status = status_of(&later);
    assert_eq!(
        status.bound_since, before.bound_since,
        "a fault of the broker changes nothing"
    );
    assert_eq!(status.status, Some(State::TransportError));

    for (reason, stays) in [
        (Reason::TargetNotFound, true),
        (Reason::KindForbidden, true),
        (Reason::AlreadyBound, false),
        (Reason::CrossNamespace, false),
    ] {
        let mut refused = bound(&json!({}), &before);
        refused.1.target = Some(Err(Fault::until_change(reason, "why")));
        let status = status_of(&refused);
        assert_eq!(status.bound_since.is_some(), stays, "{reason}");
        assert_eq!(
            told(&status, "TargetResolved"),
            is("False", &reason.to_string())
        );
        assert_eq!(
            status.resolved_target, None,
            "a new one may have other labels (BIND-41)"
        );
        assert_eq!(
            status.status,
            Some(State::WorkloadError),
            "it was bound before"
        );
        let mut again = bound(&json!({}), &status);
        again.1.target.clone_from(&refused.1.target);
        assert_eq!(
            status_of(&again).status,
            Some(State::WorkloadError),
            "and stays so"
        );
    }
    let mut absent = bound(&json!({}), &fresh);
    absent.1.target = Some(Err(Fault::until_change(Reason::TargetNotFound, "why")));
    let status = status_of(&absent);
    assert_eq!(status.status, Some(State::Creating));
    assert!(
        status.bound_since.is_some(),
        "its first pod is to be injected (BIND-40)"
    );
}

/// BIND-48
#[test]
fn second_reconcile_keeps_the_status_even_before_pods_are_listed() {
    let first = status_of(&bound(&json!({}), &AsyncActorStatus::default()));
    let stored: AsyncActorStatus = serde_json::from_str(&json!(first).to_string()).unwrap();
    let mut again = bound(&json!({}), &stored);
    assert_eq!(status_of(&again), stored);
    again.1.pods = None;
    assert_eq!(status_of(&again), stored);
}

/// BIND-50
#[test]
fn injected_reports_the_outcome_of_the_template() {
    let template = json!({"binding": {"strategy": "Template"}});
    let fault = Fault::until_change(Reason::StrategyNotAllowed, "an owner");
    let applied = TemplateStatus {
        uid: "web-uid".to_owned(),
        ..TemplateStatus::default()
    };
    let stored = AsyncActorStatus {
        template: Some(applied.clone()),
        ..AsyncActorStatus::default()
    };
    for (templated, wanted, keeps) in [
        (
            Templated::Refused(fault.clone()),
            is("False", "StrategyNotAllowed"),
            true,
        ),
        (
            Templated::Released(Some(fault)),
            is("False", "StrategyNotAllowed"),
            false,
        ),
        (
            Templated::Applied(applied),
            is("True", "ScaledToZero"),
            true,
        ),
        (Templated::Stands, is("True", "ScaledToZero"), true),
    ] {
        let mut pass = bound(&template, &stored);
        *pass.2.templated = templated;
        let status = status_of(&pass);
        assert_eq!(told(&status, "Injected"), wanted);
        assert_eq!(status.template.is_some(), keeps, "{wanted:?}");
    }
}

/// BIND-45, CONF-6
#[test]
fn actor_that_may_not_bind_contests_nothing() {
    let held = json!({
        "field": "f", "count": 2, "part": "Roll", "object": "Deployment/web", "uid": "web-uid",
        "state": "Held", "losses": 2,
    });
    let template = json!({"uid": "web-uid", "hash": "h", "target": "t", "fingerprint": "f"});
    let scaling = json!({"scaling": {"enabled": true}});
    let before = json!({"conflicts": [held], "claimed": "web-uid", "template": template});
    let before: AsyncActorStatus = serde_json::from_value(before).unwrap();
    let told_of = |target: BindingSeen, templated| {
        let mut pass = bound(&scaling, &before);
        *pass.2.templated = templated;
        pass.0.binding = Some(target);
        let status = status_of(&pass);
        (
            told(&status, "Conflict").0,
            status.conflict_count,
            status.claimed.is_some(),
            status.template.is_some(),
        )
    };
    let owner = told_of(found(), Templated::Stands);
    assert_eq!(owner, ("True".to_owned(), Some(2), true, true));
    let too_late = || BindingSeen {
        target: Some(Err(Fault::until_change(Reason::AlreadyBound, "by b"))),
        ..BindingSeen::default()
    };
    let waits = told_of(too_late(), Templated::Untouched);
    assert_eq!(waits, ("False".to_owned(), Some(2), false, true));
    let gone = told_of(too_late(), Templated::Released(None));
    assert_eq!(gone, ("False".to_owned(), Some(2), false, false));
}

/// CONF-3, SO-5
#[test]
fn claim_is_remembered_while_the_queue_scales_the_target() {
    let claimed = |scaling: bool, before: Option<&str>, now: Option<bool>| {
        let before = AsyncActorStatus {
            claimed: before.map(str::to_owned),
            ..AsyncActorStatus::default()
        };
        let mut pass = bound(&json!({"scaling": {"enabled": scaling}}), &before);
        pass.0.binding = Some(found());
        pass.2.contests.claimed = now;
        status_of(&pass).claimed
    };
    let web = Some("web-uid".to_owned());
    assert_eq!(claimed(true, None, Some(true)), web);
    assert_eq!(claimed(true, Some("web-uid"), None), web);
    assert_eq!(claimed(true, Some("of-before"), None), None);
    assert_eq!(claimed(true, Some("web-uid"), Some(false)), None);
    assert_eq!(claimed(false, Some("web-uid"), None), None);
}

/// BIND-50, CONF-1
#[test]
fn template_taken_back_is_reported_and_requeued() {
    let template = json!({
        "binding": {"strategy": "Template"}, "runtime": {"targetURL": "http://127.0.0.1:8000"},
    });
    let waiting = json!({
        "field": "f", "count": 1, "part": "Template", "object": "Deployment/web", "uid": "web-uid",
        "state": "Waiting", "losses": 1, "retryTime": "2026-01-01T00:00:00Z",
    });
    let pass = |conflicts: Value, templated| {
        let before = json!({"conflicts": conflicts, "boundSince": "2026-01-01T00:00:00Z"});
        let before: AsyncActorStatus = serde_json::from_value(before).unwrap();
        let mut pass = bound(&template, &before);
        pass.0.binding = Some(found());
        *pass.2.templated = templated;
        let report = report(&pass.0, &pass.1, &pass.2, now());
        let entry = report.status.conflicts.first();
        let state = entry.map(|it| (it.part.clone(), it.state.clone(), it.count));
        (told(&report.status, "Injected"), report.retry, state)
    };
    let entry = |state: &str| Some(("Template".to_owned(), state.to_owned(), 1));
    let taken = FieldLoss {
        field: "f".to_owned(),
        object: "Deployment/web".to_owned(),
        rival: None,
        specs: Specs::default(),
        last: false,
    };
    let lost = pass(json!([]), Templated::Lost(taken));
    let not_yet = is("False", "RolloutWaiting");
    assert_eq!(lost, (not_yet.clone(), Requeue::Now, entry("Waiting")));
    let soon = Requeue::After(Duration::from_secs(5));
    let wait = Templated::Waits(Reason::RolloutWaiting, "later".to_owned(), soon);
    let again = pass(json!([waiting]), wait);
    assert_eq!(again, (not_yet, soon, entry("Waiting")));
    let applied = Templated::Applied(TemplateStatus::default());
    let (.., state) = pass(json!([waiting]), applied);
    assert_eq!(state, entry("Held"));
}

/// BIND-48
#[test]
fn scaling_fault_is_kept_until_the_target_is_observed_again() {
    let scaling = json!({"scaling": {"enabled": true}});
    let pass = |status: &AsyncActorStatus, fault: Option<Fault>| {
        let mut pass = bound(&scaling, status);
        pass.2.scaling = Some(Box::new(ScalingOutcome {
            fault,
            ..ScalingOutcome::default()
        }));
        pass
    };
    let fault = Fault::until_change(Reason::KedaNotInstalled, "install it");
    let first = status_of(&pass(&AsyncActorStatus::default(), Some(fault)));
    let stored: AsyncActorStatus = serde_json::from_str(&json!(first).to_string()).unwrap();
    let mut again = pass(&stored, None);
    again.1 = BindingSeen::default();
    assert_eq!(status_of(&again), stored);
}

/// SO-1, SO-4
#[test]
fn scaling_of_a_target_is_reported_only_while_it_is_on() {
    let scaling = json!({"scaling": {"enabled": true, "maxReplicas": 7}});
    let mut pass = bound(&scaling, &AsyncActorStatus::default());
    pass.2.scaling = Some(Box::new(ScalingOutcome {
        scaled_object: Some(scaled_object(
            &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        )),
        fault: None,
        waits_for: None,
    }));
    let works = status_of(&pass);
    assert_eq!(
        told(&works, "ScalingReady"),
        is("True", "ScaledObjectReady")
    );
    assert_eq!(works.ready_summary.as_deref(), Some("3/4"));
    assert_eq!(
        (works.scaling_mode, works.min_replicas, works.max_replicas),
        (Some(ScalingMode::Keda), Some(0), Some(7))
    );
    assert_eq!(works.scaled_object_ref.unwrap().name, "a");

    let fault = Fault::until_change(Reason::ScalingNotSupported, "why");
    pass.2.scaling = Some(Box::new(ScalingOutcome {
        fault: Some(fault),
        ..ScalingOutcome::default()
    }));
    let refused = status_of(&pass);
    assert_eq!(
        told(&refused, "ScalingReady"),
        is("False", "ScalingNotSupported")
    );
    assert_eq!(refused.status, Some(State::ScalingError));

    let off = status_of(&bound(&json!({}), &refused));
    assert_eq!(told(&off, "ScalingReady"), is("", ""));
    assert_eq!(off.scaling_mode, Some(ScalingMode::Manual));
}

/// SAFE-20
#[test]
fn pending_scaled_object_is_reported_and_requeued_once_a_dry_run_passes() {
    let scaling = json!({"scaling": {"enabled": true}});
    let before = json!({"boundSince": "2026-01-01T00:00:00Z"});
    let mut pass = bound(&scaling, &serde_json::from_value(before).unwrap());
    pass.2.scaling = Some(Box::new(ScalingOutcome {
        waits_for: Some("the sidecar"),
        ..ScalingOutcome::default()
    }));
    let told_of = |pass: &(Observed, BindingSeen, Ensured)| {
        let told = report(&pass.0, &pass.1, &pass.2, now());
        let waits = is("Unknown", "NotProven");
        assert_eq!(super::tests::told(&told.status, "ScalingReady"), waits);
        told.retry
    };
    assert_ne!(told_of(&pass), Requeue::Now);
    *pass.2.rolled = Rolled::Proved;
    assert_eq!(told_of(&pass), Requeue::Now);
}

/// SO-7
#[test]
fn napping_target_is_not_requeued_without_a_change() {
    let scaling = json!({"scaling": {"enabled": true, "maxReplicas": 7}});
    let asleep = |status: &AsyncActorStatus, rolled: Rolled| {
        let mut pass = bound(&scaling, status);
        if let Some(Ok(resolved)) = &mut pass.1.target {
            resolved.replicas = Some(0);
        }
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        pass.2.scaling = Some(Box::new(ScalingOutcome {
            scaled_object: Some(scaled_object(&ready)),
            fault: None,
            waits_for: None,
        }));
        *pass.2.rolled = rolled;
        report(&pass.0, &pass.1, &pass.2, now())
    };
    let first = asleep(&AsyncActorStatus::default(), Rolled::Proved).status;
    let first: AsyncActorStatus = serde_json::from_str(&json!(first).to_string()).unwrap();
    let again = asleep(&first, Rolled::Rest);
    assert_eq!(told(&again.status, "Injected"), is("True", "ScaledToZero"));
    assert_eq!(again.status.status, Some(State::Napping));
    assert_eq!(again.retry, Requeue::AwaitChange);
    assert_eq!(again.status, first, "nothing is written");
}

/// BIND-6
#[test]
fn invalid_spec_is_the_only_workload_fault_reported() {
    let before = status_of(&bound(&json!({}), &AsyncActorStatus::default()));
    let (observed, ..) = bound(&json!({"timeout": {"processing": -5}}), &before);
    assert!(observed.desired.is_err());
    let status = report(
        &observed,
        &BindingSeen::default(),
        &Ensured::default(),
        now(),
    )
    .status;
    assert_eq!(status.status, Some(State::WorkloadError));
    assert_eq!(
        told(&status, "WorkloadReady"),
        is("False", "ValidationError")
    );
    assert_eq!(told(&status, "Ready").0, "False");
    assert_eq!(status.resolved_target, before.resolved_target);
    assert_eq!(status.bound_since, before.bound_since);
    let well = status_of(&bound(&json!({}), &status));
    assert_eq!(told(&well, "WorkloadReady"), is("", ""));
}
