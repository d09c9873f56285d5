use std::sync::Arc;
use std::time::Duration;

use asya_shared::admission::Unenforced;
use asya_shared::api::{AsyncActorStatus, Mode, ScalingMode, State, TemplateStatus};
use asya_shared::resolve::{Related, Resolution, resolver};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::binding::unenforced_required::Enforcement;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::contention::history::FieldConflict;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{
    BindingOutcome, CommonOutcome, HandoffChange, ProbeOutcome, QueueState, RolloutOutcome,
    ScalingOutcome, ScalingWait, TemplateOutcome,
};
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::plan::template::write;
use crate::reconcile::status::active::{ActiveMode, active_report};
use crate::reconcile::status::common::Report;
use crate::reconcile::tests::bindings::{binding_to, refused, resolved};
use crate::reconcile::tests::fixtures::{actor, observed, record};
use crate::record::ActorRecord;
use crate::scaling::tests::fixtures::scaled_object;
use crate::telemetry::events::EventReason;

mod reports;
mod rollout;
mod scaling;

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
fn bound(extra: &Value, status: &AsyncActorStatus) -> (Observed, ObservedBinding, BindingOutcome) {
    let observed = observed(&actor(&json!({}), &spec(extra), &json!(status)));
    let outcome = BindingOutcome {
        common: CommonOutcome {
            queue: QueueState::Ready(None),
            ..CommonOutcome::default()
        },
        can_bind: true,
        ..BindingOutcome::default()
    };
    (observed, observed_target(), outcome)
}

fn observed_target() -> ObservedBinding {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let resolver = resolver("apps", "Deployment");
    let Resolution::Found(target) = resolver.resolve(&object, &Related::default()) else {
        panic!()
    };
    let mut binding = binding_to(resolved(*target));
    binding.injection.pods = Some(TargetPods::default());
    binding.into()
}

/// A target that cannot be bound, and whose pods have been listed.
fn refused_by(fault: Fault) -> ObservedBinding {
    let mut binding = refused(fault);
    binding.injection.pods = Some(TargetPods::default());
    binding.into()
}

fn report(
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &BindingOutcome,
    now: Timestamp,
) -> Report {
    active_report(observed, ActiveMode::Binding(binding, outcome), now)
}

fn condition(status: &AsyncActorStatus, kind: &str) -> (String, String) {
    let condition = status.conditions.iter().find(|c| c.type_ == kind);
    condition
        .map(|c| (c.status.clone(), c.reason.clone()))
        .unwrap_or_default()
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn status_of(
    (observed, binding, active_outcome): &(Observed, ObservedBinding, BindingOutcome),
) -> AsyncActorStatus {
    report(observed, binding, active_outcome, now()).status
}

/// BIND-3, BIND-4, BIND-5
#[test]
fn status_of_a_binding_reports_target_and_pods() {
    let mut inputs = bound(&json!({}), &AsyncActorStatus::default());
    inputs.1.resolved_mut().injection.pods = Some(TargetPods {
        uninjected: vec![record(
            &json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}}),
        )],
        ..TargetPods::default()
    });
    let status = status_of(&inputs);
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
    assert_eq!(
        condition(&status, "TransportReady"),
        is("True", "QueueReady")
    );
    assert_eq!(condition(&status, "TargetResolved"), is("True", "Resolved"));
    assert_eq!(
        condition(&status, "Injected"),
        is("False", "PodsNotInjected")
    );
    assert_eq!(condition(&status, "Conflict"), is("False", "NoConflict"));
    assert_eq!(condition(&status, "Ready"), is("False", "PodsNotInjected"));
    assert_eq!(condition(&status, "WorkloadReady"), is("", ""));
    assert_eq!(condition(&status, "ScalingReady"), is("", ""));
    assert_eq!(status.ready_summary.as_deref(), Some("2/3"));
    assert_eq!(status.replicas_summary.as_deref(), Some("0/1"));
    assert_eq!(status.conflict_count, Some(0));
}

/// CFG-7 (c)
#[test]
fn required_binding_over_the_limit_reports_that_it_is_not_enforced() {
    let required = json!({"binding": {"required": true, "rollout": "OnRestart"}});
    let injected = |extra: &Value, previous: &AsyncActorStatus, enforcement| {
        let mut inputs = bound(extra, previous);
        inputs.1.resolved_mut().injection.enforcement = enforcement;
        inputs.2.rollout = RolloutOutcome::NoPodsYet;
        let report = report(&inputs.0, &inputs.1, &inputs.2, now());
        let events: Vec<_> = report.events.iter().map(|event| event.reason).collect();
        (condition(&report.status, "Injected"), events, report.status)
    };
    let no_room = Enforcement::Impossible(Unenforced::NoRoom);
    let new = AsyncActorStatus::default();
    let injected_condition = is("True", "ScaledToZero");
    assert_eq!(
        injected(&json!({}), &new, no_room).0,
        injected_condition,
        "not required"
    );
    let (status, events, previous) = injected(&required, &new, no_room);
    assert_eq!(status, is("False", "WebhookNotReady"));
    assert_eq!(events, [EventReason::RequiredNotEnforced]);
    assert_eq!(condition(&previous, "Ready").0, "False");
    // `Unknown` is the state after a restart, when the limit has not been checked yet.
    for unchanged in [no_room, Enforcement::Unknown] {
        let (status, events, _) = injected(&required, &previous, unchanged);
        assert_eq!(
            (status, events),
            (is("False", "WebhookNotReady"), Vec::new())
        );
    }
    assert_eq!(
        injected(&required, &previous, Enforcement::Possible).0,
        injected_condition
    );
    assert_eq!(
        injected(&required, &new, Enforcement::Unknown).0,
        injected_condition
    );
}

/// BIND-3
#[test]
fn binding_is_effective_once_queue_and_script_exist_until_it_is_refused() {
    let new = AsyncActorStatus::default();
    let mut waiting = bound(&json!({}), &new);
    waiting.2.can_bind = false;
    let status = status_of(&waiting);
    assert_eq!(status.bound_since, None);
    assert_eq!(condition(&status, "Injected"), is("Unknown", "NotProven"));

    let previous = status_of(&bound(&json!({}), &new));
    let mut later = bound(&json!({}), &previous);
    later.2 = BindingOutcome::default();
    later.2.common.queue =
        QueueState::Fault(Fault::until_change(Reason::BrokerUnreachable, "away"));
    let status = status_of(&later);
    assert_eq!(
        status.bound_since, previous.bound_since,
        "a broker fault does not affect the binding"
    );
    assert_eq!(status.status, Some(State::TransportError));

    for (reason, expected) in [
        (Reason::TargetNotFound, true),
        (Reason::KindForbidden, true),
        (Reason::AlreadyBound, false),
        (Reason::CrossNamespace, false),
    ] {
        let mut refused = bound(&json!({}), &previous);
        let fault = Fault::until_change(reason, "why");
        refused.1 = refused_by(fault.clone());
        let status = status_of(&refused);
        assert_eq!(status.bound_since.is_some(), expected, "{reason}");
        assert_eq!(
            condition(&status, "TargetResolved"),
            is("False", &reason.to_string())
        );
        assert_eq!(
            status.resolved_target, None,
            "a new target may have other labels (BIND-41)"
        );
        assert_eq!(
            status.status,
            Some(State::WorkloadError),
            "it was bound before"
        );
        let mut again = bound(&json!({}), &status);
        again.1 = refused_by(fault);
        assert_eq!(
            status_of(&again).status,
            Some(State::WorkloadError),
            "and it stays so on the next reconcile"
        );
    }
    let mut absent = bound(&json!({}), &new);
    absent.1 = refused_by(Fault::until_change(Reason::TargetNotFound, "why"));
    let status = status_of(&absent);
    assert_eq!(status.status, Some(State::Creating));
    assert!(
        status.bound_since.is_some(),
        "its first pod must be injected (BIND-40)"
    );
}

/// BIND-3, ROLL-5: our clock is behind the API server's.
#[test]
fn binding_is_not_effective_before_the_pods_and_the_actor_that_exist_already() {
    let pod = |created: &str| {
        json!({"metadata": {
            "name": "p", "namespace": "ns", "uid": created, "resourceVersion": "1", "creationTimestamp": created,
        }})
    };
    let pods = |uninjected: &[&str]| TargetPods {
        uninjected: uninjected.iter().map(|it| record(&pod(it))).collect(),
        ..TargetPods::default()
    };
    let now = "2026-01-01T00:01:00Z";
    let earlier = "2026-01-01T00:00:10Z";
    let later = "2026-01-01T00:02:12Z";
    for (actor_created, pods, expected) in [
        (None, None, now),
        (Some(earlier), Some(pods(&[earlier])), now),
        (Some(earlier), Some(pods(&[earlier, later])), later),
        (Some(later), None, later),
    ] {
        let mut inputs = bound(&json!({}), &AsyncActorStatus::default());
        inputs.0.actor = Arc::new(ActorRecord {
            created: actor_created.map(|it| Time(it.parse().unwrap())),
            ..ActorRecord::clone(&inputs.0.actor)
        });
        inputs.1.resolved_mut().injection.pods = pods;
        let since = status_of(&inputs).bound_since.unwrap();
        assert_eq!(since.0, expected.parse().unwrap(), "{actor_created:?}");
    }
}

/// BIND-3: what waits for the binding, or for the result of a probe, goes on at once, and only once.
#[test]
fn binding_is_reconciled_again_at_once_after_it_takes_effect_or_its_probe_result_changes() {
    let requeue = |previous: &AsyncActorStatus, probed: ProbeOutcome| {
        let (observed, binding, mut outcome) = bound(&json!({}), previous);
        outcome.probe.outcome = probed;
        report(&observed, &binding, &outcome, now()).requeue
    };
    let status = status_of(&bound(&json!({}), &AsyncActorStatus::default()));
    assert_ne!(requeue(&status, ProbeOutcome::NotRun), Requeue::Now);
    assert_eq!(requeue(&status, ProbeOutcome::Admitted), Requeue::Now);
    let unbound = AsyncActorStatus {
        bound_since: None,
        ..status
    };
    assert_eq!(requeue(&unbound, ProbeOutcome::NotRun), Requeue::Now);
}

/// BIND-48
#[test]
fn second_reconcile_keeps_the_status_even_before_pods_are_listed() {
    let first = status_of(&bound(&json!({}), &AsyncActorStatus::default()));
    let stored: AsyncActorStatus = serde_json::from_str(&json!(first).to_string()).unwrap();
    let mut again = bound(&json!({}), &stored);
    assert_eq!(status_of(&again), stored);
    again.1.resolved_mut().injection.pods = None;
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
    for (outcome, expected, keeps_template) in [
        (
            TemplateOutcome::Refused(fault.clone()),
            is("False", "StrategyNotAllowed"),
            true,
        ),
        (
            TemplateOutcome::GivenUp(Some(fault)),
            is("False", "StrategyNotAllowed"),
            false,
        ),
        (
            TemplateOutcome::Applied(applied),
            is("True", "ScaledToZero"),
            true,
        ),
        (TemplateOutcome::Unchanged, is("True", "ScaledToZero"), true),
    ] {
        let mut inputs = bound(&template, &stored);
        inputs.2.template = outcome;
        let status = status_of(&inputs);
        assert_eq!(condition(&status, "Injected"), expected);
        assert_eq!(status.template.is_some(), keeps_template, "{expected:?}");
    }
}

/// BIND-45, CONF-6
#[test]
fn actor_that_may_not_bind_reports_no_conflict() {
    let rewritten = json!({
        "field": "f", "count": 2, "part": "Roll", "object": "Deployment/web", "uid": "web-uid",
        "state": "Held", "losses": 2,
    });
    let template = json!({"uid": "web-uid", "hash": "h", "target": "t", "fingerprint": "f"});
    let scaling = json!({"scaling": {"enabled": true}});
    let previous = json!({"conflicts": [rewritten], "claimed": "web-uid", "template": template});
    let previous: AsyncActorStatus = serde_json::from_value(previous).unwrap();
    let conflict_of = |target: ObservedBinding, outcome| {
        let mut inputs = bound(&scaling, &previous);
        inputs.2.template = outcome;
        inputs.0.binding = Some(target);
        let status = status_of(&inputs);
        (
            condition(&status, "Conflict").0,
            status.conflict_count,
            status.handoff_uid.is_some(),
            status.template.is_some(),
        )
    };
    let owner = conflict_of(observed_target(), TemplateOutcome::Unchanged);
    assert_eq!(owner, ("True".to_owned(), Some(2), true, true));
    let already_bound = || refused(Fault::until_change(Reason::AlreadyBound, "by b")).into();
    let waiting = conflict_of(already_bound(), TemplateOutcome::NotChecked);
    assert_eq!(waiting, ("False".to_owned(), Some(2), false, true));
    let given_up = conflict_of(already_bound(), TemplateOutcome::GivenUp(None));
    assert_eq!(given_up, ("False".to_owned(), Some(2), false, false));
}

/// CONF-3, BIND-43: its transport is disabled for a while, for example.
#[test]
fn handoff_is_remembered_while_the_spec_cannot_be_acted_upon() {
    let previous = json!({"claimed": "web-uid"});
    let previous: AsyncActorStatus = serde_json::from_value(previous).unwrap();
    let mut inputs = bound(&json!({"scaling": {"enabled": true}}), &previous);
    let fault = Fault::until_change(Reason::InvalidTransport, "disabled");
    inputs.0.desired = Err(fault);
    inputs.0.binding = Some(ObservedBinding::Unknown);
    assert_eq!(status_of(&inputs).handoff_uid, previous.handoff_uid);
}

/// CONF-3, SO-5
#[test]
fn handoff_is_remembered_while_the_queue_scales_the_target() {
    let handoff_after = |scaling: bool, previous: Option<&str>, now: Option<HandoffChange>| {
        let previous = AsyncActorStatus {
            handoff_uid: previous.map(str::to_owned),
            ..AsyncActorStatus::default()
        };
        let mut inputs = bound(&json!({"scaling": {"enabled": scaling}}), &previous);
        inputs.0.binding = Some(observed_target());
        inputs.2.contention.handoff = now;
        status_of(&inputs).handoff_uid
    };
    let web = Some("web-uid".to_owned());
    assert_eq!(handoff_after(true, None, Some(HandoffChange::Set)), web);
    assert_eq!(handoff_after(true, Some("web-uid"), None), web);
    assert_eq!(handoff_after(true, Some("previous-uid"), None), None);
    assert_eq!(
        handoff_after(true, Some("web-uid"), Some(HandoffChange::Remove)),
        None
    );
    assert_eq!(handoff_after(false, Some("web-uid"), None), None);
}

/// BIND-50, CONF-1
#[test]
fn reverted_template_is_reported_and_requeued() {
    let template = json!({
        "binding": {"strategy": "Template"}, "runtime": {"targetURL": "http://127.0.0.1:8000"},
    });
    let waiting = json!({
        "field": "f", "count": 1, "part": "Template", "object": "Deployment/web", "uid": "web-uid",
        "state": "Waiting", "losses": 1, "retryTime": "2026-01-01T00:00:00Z",
    });
    let report_of = |conflicts: Value, outcome| {
        let previous = json!({"conflicts": conflicts, "boundSince": "2026-01-01T00:00:00Z"});
        let previous: AsyncActorStatus = serde_json::from_value(previous).unwrap();
        let mut inputs = bound(&template, &previous);
        inputs.0.binding = Some(observed_target());
        inputs.2.template = outcome;
        let report = report(&inputs.0, &inputs.1, &inputs.2, now());
        let entry = report.status.conflicts.first();
        let state = entry.map(|entry| (entry.part.clone(), entry.state.clone(), entry.count));
        (condition(&report.status, "Injected"), report.requeue, state)
    };
    let entry = |state: &str| Some(("Template".to_owned(), state.to_owned(), 1));
    let conflict = FieldConflict {
        field: "f".to_owned(),
        object: "Deployment/web".to_owned(),
        manager: None,
        revision: SpecRevision::default(),
        yields: false,
    };
    let reverted = report_of(json!([]), TemplateOutcome::Conflict(conflict));
    let waiting_condition = is("False", "RolloutWaiting");
    assert_eq!(
        reverted,
        (waiting_condition.clone(), Requeue::Now, entry("Waiting"))
    );
    let soon = Requeue::After(Duration::from_secs(5));
    let wait = write::waiting(Reason::RolloutWaiting, "later", soon);
    let again = report_of(json!([waiting]), wait);
    assert_eq!(again, (waiting_condition, soon, entry("Waiting")));
    let applied = TemplateOutcome::Applied(TemplateStatus::default());
    let (.., state) = report_of(json!([waiting]), applied);
    assert_eq!(state, entry("Held"));
}

/// BIND-6
#[test]
fn invalid_spec_is_the_only_workload_fault_reported() {
    let previous = status_of(&bound(&json!({}), &AsyncActorStatus::default()));
    let (observed, ..) = bound(&json!({"timeout": {"processing": -5}}), &previous);
    assert!(observed.desired.is_err());
    let status = report(
        &observed,
        &ObservedBinding::Unknown,
        &BindingOutcome::default(),
        now(),
    )
    .status;
    assert_eq!(status.status, Some(State::WorkloadError));
    assert_eq!(
        condition(&status, "WorkloadReady"),
        is("False", "ValidationError")
    );
    assert_eq!(condition(&status, "Ready").0, "False");
    assert_eq!(status.resolved_target, previous.resolved_target);
    assert_eq!(status.bound_since, previous.bound_since);
    let valid = status_of(&bound(&json!({}), &status));
    assert_eq!(condition(&valid, "WorkloadReady"), is("", ""));
}
