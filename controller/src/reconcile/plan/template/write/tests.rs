use std::time::Duration;

use asya_shared::resolve::ObjectRef;
use serde_json::{Value, json};

use super::{PAUSED, ROLLS, cannot_roll, confirm, displaces_first, not_proven};
use crate::binding::probes::Failure;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::outcome::Templated;
use crate::reconcile::model::rollout::Live;

fn workload() -> ObjectRef {
    ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("web-uid".to_owned()),
    }
}

fn reason(outcome: Option<Templated>) -> Option<(Reason, Requeue)> {
    match outcome? {
        Templated::Waits(reason, _, retry) => Some((reason, retry)),
        other => panic!("{other:?}"),
    }
}

/// BIND-50
#[test]
fn template_is_left_alone_while_its_change_would_replace_no_pod_or_join_another_rollout() {
    for (paused, rolling, wanted) in [
        (false, false, None),
        (false, true, Some((Reason::RolloutInProgress, ROLLS))),
        (true, false, Some((Reason::RolloutWaiting, PAUSED))),
        (true, true, Some((Reason::RolloutWaiting, PAUSED))),
    ] {
        let live = Live {
            rolling,
            paused,
            ..Live::default()
        };
        let wanted = wanted.map(|(reason, wait)| (reason, Requeue::After(wait)));
        assert_eq!(reason(cannot_roll(&workload(), &live)), wanted, "{live:?}");
    }
}

/// BIND-50
#[test]
fn sidecar_never_becomes_the_first_container() {
    let of = |names: &[&str]| -> Value {
        let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    };
    let before = of(&["model"]);
    let after = of(&["model", "asya-runtime", "asya-sidecar"]);
    assert_eq!(displaces_first(&workload(), &before, &after), None);
    let displaced = of(&["asya-runtime", "asya-sidecar", "model"]);
    let refused = displaces_first(&workload(), &before, &displaced);
    let wanted = (Reason::StrategyNotAllowed, Requeue::AwaitChange);
    assert_eq!(reason(refused), Some(wanted));
}

/// SAFE-39
#[test]
fn failed_dry_run_is_reported_as_rejected_or_not_injected() {
    let wait = Duration::from_secs(7);
    let why = || "why".to_owned();
    for (failure, wanted) in [
        (Failure::Refused(why()), Reason::ProbeRejected),
        (Failure::Unasked(why()), Reason::ProbeFailed),
        (Failure::LeftAlone(why()), Reason::ProbeFailed),
    ] {
        let found = reason(Some(not_proven(&failure, wait)));
        assert_eq!(found, Some((wanted, Requeue::After(wait))), "{failure:?}");
    }
}

/// BIND-50
#[test]
fn workload_that_was_replaced_meanwhile_is_not_written() {
    let of = |uid: &str| json!({"metadata": {"uid": uid}});
    assert!(confirm(&workload(), &of("web-uid")).is_ok());
    assert!(confirm(&workload(), &of("another")).is_err());
}
