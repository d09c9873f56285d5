use std::time::Duration;

use asya_shared::resolve::ObjectRef;
use serde_json::{Value, json};

use super::{
    PAUSED_RETRY, ROLLING_RETRY, UNREADY_RETRY, blocked_change, blocked_rollout, check_uid,
    displaces_first, probe_failed,
};
use crate::binding::dry_run::ProbeFailure;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::outcome::TemplateOutcome;
use crate::reconcile::model::rollout::TargetObject;

fn workload() -> ObjectRef {
    ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("web-uid".to_owned()),
    }
}

fn reason(outcome: Option<TemplateOutcome>) -> Option<(Reason, Requeue)> {
    match outcome? {
        TemplateOutcome::Waiting(fault) => Some((fault.reason, fault.requeue)),
        other => panic!("{other:?}"),
    }
}

/// BIND-50
#[test]
fn template_is_left_alone_while_its_change_would_replace_no_pod_or_join_another_rollout() {
    for (paused, rolling, expected) in [
        (false, false, None),
        (
            false,
            true,
            Some((Reason::RolloutInProgress, ROLLING_RETRY)),
        ),
        (true, false, Some((Reason::RolloutWaiting, PAUSED_RETRY))),
        (true, true, Some((Reason::RolloutWaiting, PAUSED_RETRY))),
    ] {
        let target_object = TargetObject {
            rolling,
            paused,
            ..TargetObject::default()
        };
        let expected = expected.map(|(reason, wait)| (reason, Requeue::After(wait)));
        for is_first in [false, true] {
            let outcome = reason(blocked_rollout(&target_object, is_first));
            assert_eq!(outcome, expected, "{target_object:?}");
        }
    }
}

/// SAFE-13, SAFE-14: a change of the sidecar may be what makes its pods ready.
#[test]
fn sidecar_is_not_added_to_a_template_whose_rollout_would_cost_ready_pods() {
    let object = |deletes_pod_first, recreates, desired| TargetObject {
        deletes_pod_first,
        recreates,
        desired_replicas: Some(desired),
        ready: 1,
        ..TargetObject::default()
    };
    let waits = Some((Reason::RolloutWaiting, Requeue::After(UNREADY_RETRY)));
    for (object, to_add, to_change, to_give_up) in [
        (object(true, false, 2), waits, None, None),
        (object(true, false, 1), None, None, None),
        (object(false, true, 2), waits, waits, waits),
        (object(false, true, 1), None, None, None),
        (object(false, false, 2), None, None, None),
    ] {
        assert_eq!(reason(blocked_rollout(&object, true)), to_add, "{object:?}");
        assert_eq!(
            reason(blocked_rollout(&object, false)),
            to_change,
            "{object:?}"
        );
        assert_eq!(reason(blocked_change(&object)), to_give_up, "{object:?}");
    }
}

/// BIND-50
#[test]
fn sidecar_never_becomes_the_first_container() {
    let template_with = |names: &[&str]| -> Value {
        let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    };
    let previous = template_with(&["model"]);
    let after = template_with(&["model", "asya-runtime", "asya-sidecar"]);
    assert_eq!(displaces_first(&workload(), &previous, &after), None);
    let displaced = template_with(&["asya-runtime", "asya-sidecar", "model"]);
    let refused = displaces_first(&workload(), &previous, &displaced);
    let expected = (Reason::StrategyNotAllowed, Requeue::AwaitChange);
    assert_eq!(reason(refused), Some(expected));
}

/// SAFE-39
#[test]
fn failed_dry_run_is_reported_as_rejected_or_not_injected() {
    let wait = Duration::from_secs(7);
    let why = || "why".to_owned();
    for (failure, expected) in [
        (ProbeFailure::Rejected(why()), Reason::ProbeRejected),
        (ProbeFailure::NotCalled(why()), Reason::ProbeFailed),
        (ProbeFailure::NotInjected(why()), Reason::ProbeFailed),
    ] {
        let outcome = reason(Some(probe_failed(&failure, wait)));
        assert_eq!(
            outcome,
            Some((expected, Requeue::After(wait))),
            "{failure:?}"
        );
    }
}

/// BIND-50
#[test]
fn recreated_workload_is_not_written() {
    let with_uid = |uid: &str| json!({"metadata": {"uid": uid}});
    assert!(check_uid(&workload(), &with_uid("web-uid")).is_ok());
    assert!(check_uid(&workload(), &with_uid("another")).is_err());
}
